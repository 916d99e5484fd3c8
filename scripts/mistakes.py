"""The small mistakes of tests/mutants: reading the files that list them, finding their places, making them.

A file lists the mistakes of one source:

    source: src/memory/budget.c

    budget-claim-not-returned: a refused allocation keeps what it has claimed
      test core-ladder
      in budget_allocate
      - return_bytes(b, p);
      + (void)b;

A mistake has a name, a sentence, the test that is known to find it (where one is known: it is tried first, no more),
and one place or several. A place begins with `in` and the name of the function, structure, table, enumerator or macro
where the old text (-) becomes the new one (+); without a + line the old text goes. The name - stands for the whole file.
The old text is there exactly once; blanks, line breaks and comments do not count. A line that begins with # is a remark.

A place whose function the source no longer has is looked for in all other sources: code can move without a change
here."""

import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

WHOLE_FILE = "-"
FOLDERS = ("src", "include", "bench/command")  # where code that has moved may be
SUFFIXES = (".c", ".h", ".cpp", ".hpp")
TOKEN = re.compile(r"""(?P<skip> \s+ | //[^\n]* | /\*.*?(?:\*/|\Z) )
                     | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | \w+ | .""", re.S | re.X)
DIRECTIVE = re.compile(r"#(?:\\\n|/\*.*?\*/|[^\n])*", re.S)
MACRO = re.compile(r"#\s*define\s+(\w+)")
WORD = re.compile(r"[A-Za-z_]\w*")
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# What nothing is called by, though it may stand where a name does.
KEYWORDS = {"static", "const", "extern", "inline", "struct", "union", "enum", "typedef", "unsigned", "void", "bool", "char",
            "int", "_Alignas", "_Atomic", "_Noreturn", "_Static_assert", "_Thread_local", "__attribute__"}


class FormError(ValueError):
    """What is wrong in a list of mistakes, and where."""


class Stale(ValueError):
    """Why a mistake cannot be made."""


# ---- sources -----------------------------------------------------------------

@dataclass
class Token:
    text: str
    start: int
    end: int


@dataclass
class Item:
    """Something that is declared at file level: the names it goes by, and its tokens."""
    names: set
    tokens: list


def split(text):
    return [Token(m[0], *m.span()) for m in TOKEN.finditer(text) if m.lastgroup != "skip"]


def words(text):
    return [token.text for token in split(text)]


class Source:
    def __init__(self, text):
        self.text = text
        self.tokens = split(text)
        self.items = []
        self.read_items()

    def read_items(self):
        """What an #if leaves out counts, too. Each of its branches goes on with the braces that were open before the first."""
        item, depth, directive, branches = [], 0, None, []
        for token in self.tokens:
            if directive and token.start < directive.end():
                self.items[-1].tokens.append(token)
                continue
            directive = self.directive_at(token)
            if directive:
                macro = MACRO.match(directive[0])
                self.items.append(Item({macro[1]} if macro else set(), [token]))
                depth = follow_branches(directive[0], branches, depth)
                continue
            item.append(token)
            depth = max(0, depth + (token.text in "({[") - (token.text in ")}]"))
            if token.text == "{" and [t.text for t in item[:4]] == ["extern", '"C"', "{"]:
                item, depth = [], 0
            elif depth == 0 and (token.text == ";" or (token.text == "}" and function_in(item))):
                self.items.append(Item(names_in(item), item))
                item = []
        if item:
            self.items.append(Item(names_in(item), item))

    def directive_at(self, token):
        first = token.text == "#" and not self.text[self.text.rfind("\n", 0, token.start) + 1:token.start].strip()
        return DIRECTIVE.match(self.text, token.start) if first else None

    def has(self, name):
        """A prototype alone is no function."""
        return name == WHOLE_FILE or any(name in item.names and not is_prototype(item.tokens) for item in self.items)

    def find(self, place):
        """Where the old text is, as pairs of offsets."""
        parts = [self.tokens] if place.name == WHOLE_FILE else [i.tokens for i in self.items if place.name in i.names]
        return [span for part in parts for span in spans_in(part, words(place.old))]

    def holders(self, place):
        """The names of what has the old text, whatever the place is called."""
        return [sorted(item.names)[0] for item in self.items if item.names and spans_in(item.tokens, words(place.old))]


def spans_in(tokens, wanted):
    return [(tokens[i].start, tokens[i + len(wanted) - 1].end) for i in range(len(tokens) - len(wanted) + 1)
            if tokens[i].text == wanted[0] and [t.text for t in tokens[i:i + len(wanted)]] == wanted]


def follow_branches(directive, branches, depth):
    """How many braces are open behind it."""
    word = re.match(r"#\s*(if|el|endif)?", directive)[1]
    if word == "if":
        branches.append(depth)
    elif word == "el" and branches:
        return branches[-1]
    elif word == "endif" and branches:
        branches.pop()
    return depth


def is_name(token):
    return WORD.fullmatch(token.text) and token.text not in KEYWORDS


def function_in(tokens):
    """The name of the function that is declared or defined; or nothing."""
    head = next((i for i, t in enumerate(tokens) if t.text in ("{", "=", ";")), len(tokens))
    return next((word.text for word, bracket in zip(tokens[:head], tokens[1:head])
                 if bracket.text == "(" and is_name(word)), None)


def is_prototype(tokens):
    return function_in(tokens) and tokens[-1].text == ";"


def names_in(tokens):
    """A function's name; or all names outside of brackets, and enumerators."""
    if function_in(tokens):
        return {function_in(tokens)}
    deepest = 1 if "enum" in [t.text for t in tokens[:3]] else 0
    names, depth, value = set(), 0, False
    for token in tokens:
        if depth <= deepest and token.text in "=,":
            value = token.text == "="
        depth += (token.text in "({[") - (token.text in ")}]")
        if depth <= deepest and not value and is_name(token):
            names.add(token.text)
    return names


class Sources:
    """The sources below a folder, each read once."""

    def __init__(self, root):
        self.root = Path(root)
        self.known = {}

    def read(self, path):
        if path not in self.known:
            file = self.root / path
            self.known[path] = Source(file.read_text(errors="surrogateescape")) if file.is_file() else None
        return self.known[path]

    def all(self):
        for folder in FOLDERS:
            for file in sorted((self.root / folder).rglob("*")):
                if file.suffix in SUFFIXES and file.is_file():
                    yield file.relative_to(self.root).as_posix()

    def locate(self, path, place):
        """The source, and the start and end of the old text in it."""
        source = self.read(path)
        if source and source.has(place.name):
            found = [(path, *span) for span in source.find(place)]
            where = path
        else:
            found = [(other, *span) for other in self.all() for span in self.read(other).find(place)
                     if place.name != WHOLE_FILE]
            where = f"{path}, which is not there, or in any other" if not source else f"any other source than {path}"
        if len(found) != 1:
            raise Stale(f"{place.where}: the old text is there {len(found)} times, in {place.name} of {where}"
                        f"{'' if found else self.rumour(place)}")
        return found[0]

    def rumour(self, place):
        """Where a text is that was not found in its place, as far as that is one place; for who mends the list."""
        there = [(name, path) for path in self.all() for name in self.read(path).holders(place)]
        return f"; it is in {there[0][0]} of {there[0][1]}" if len(there) == 1 else ""


# ---- mistakes ----------------------------------------------------------------

@dataclass
class Place:
    name: str
    where: str  # file and line, for messages
    old: str = ""
    new: str = ""


@dataclass
class Mistake:
    name: str
    sentence: str
    file: Path
    line: int
    source: str
    test: str = ""
    places: list = field(default_factory=list)


class Reader:
    """Reads one list."""

    def __init__(self, file):
        self.file, self.source, self.mistakes = file, "", []

    def read(self):
        try:
            text = self.file.read_text()
        except UnicodeDecodeError as error:
            raise FormError(f"{self.file}: {error}") from error
        for number, line in enumerate(text.split("\n"), 1):
            self.where = f"{self.file.name}:{number}"
            if line.strip() and not line.lstrip().startswith("#"):
                self.indented(line.strip("\r"), number) if line[0].isspace() else self.begin(line.strip(), number)
        self.end()
        if not self.source:
            raise FormError(f"{self.where}: no source is named")
        return self.mistakes

    def refuse(self, what):
        raise FormError(f"{self.where}: {what}")

    def begin(self, line, number):
        word, colon, rest = line.partition(":")
        self.end()
        if not colon or not rest.strip():
            self.refuse(f"'{line[:60]}' is neither 'source: PATH' nor 'NAME: SENTENCE'")
        if word == "source":
            path = Path(rest.strip())
            if path.is_absolute() or ".." in path.parts:
                self.refuse(f"the source {path} is not in the repository")
            self.source = path.as_posix()
        elif not NAME.fullmatch(word):
            self.refuse(f"'{word[:60]}' is no name: small letters, digits and single dashes are")
        elif not self.source:
            self.refuse("a mistake before its source")
        else:
            self.mistakes.append(Mistake(word, rest.strip(), self.file, number, self.source))

    def indented(self, line, number):
        word, _, rest = line.strip().partition(" ")
        if not self.mistakes:
            self.refuse("this belongs to no mistake")
        last = self.mistakes[-1]
        if word == "test" and NAME.fullmatch(rest) and not last.test and not last.places:
            last.test = rest
        elif word == "in" and (rest == WHOLE_FILE or WORD.fullmatch(rest)):
            last.places.append(Place(rest, self.where))
        elif word == "-" and last.places and not last.places[-1].new:
            last.places[-1].old += line.lstrip()[2:] + "\n"
        elif word == "+" and last.places:
            last.places[-1].new += line.lstrip()[2:] + "\n"
        else:
            self.refuse(f"'{line.strip()[:60]}' is not expected here")

    def end(self):
        """Of a mistake that has been read."""
        if not self.mistakes:
            return
        last = self.mistakes[-1]
        if not last.places:
            raise FormError(f"{self.file.name}:{last.line}: {last.name} has no place")
        for place in last.places:
            if not words(place.old):
                raise FormError(f"{place.where}: there is no old text")
            if words(place.old) == words(place.new):
                raise FormError(f"{place.where}: the new text is the old one")


def read_lists(folder):
    """All mistakes, by name. Each is there once, by name and by what it changes."""
    known, alike = {}, {}
    for file in sorted(Path(folder).glob("*.mut")):
        for mistake in Reader(file).read():
            does = (mistake.source, *((p.name, *words(p.old), "", *words(p.new)) for p in mistake.places))
            other = known.setdefault(mistake.name, mistake), alike.setdefault(does, mistake)
            if other[0] is not mistake:
                raise FormError(f"{file.name}:{mistake.line}: {mistake.name} is in {other[0].file.name}, too")
            if other[1] is not mistake:
                raise FormError(f"{file.name}:{mistake.line}: {mistake.name} is {other[1].name} under another name")
    return [known[name] for name in sorted(known)]


def changed(text, spans):
    """The text with each (start, end, new text) in its place."""
    for start, end, new in sorted(spans, reverse=True):
        line = text[text.rfind("\n", 0, start) + 1:start]
        indent = line[:len(line) - len(line.lstrip())]
        text = text[:start] + textwrap.indent(textwrap.dedent(new), indent).strip() + text[end:]
    return text


def make(mistake, sources):
    """The sources that change, and what they become; nothing is written."""
    spans = {}
    for place in mistake.places:
        path, start, end = sources.locate(mistake.source, place)
        if any(start < e and s < end for s, e, _ in spans.get(path, [])):
            raise Stale(f"{place.where}: it overlaps another place of {mistake.name}")
        spans.setdefault(path, []).append((start, end, place.new))
    return {path: changed(sources.read(path).text, at) for path, at in spans.items()}


def entries_of(text):
    """What is in front of the first mistake of a list, and the lines of each by its name."""
    entries, name = {"": []}, ""
    for line in text.rstrip("\n").split("\n"):
        begun = re.match(r"([\w-]+):", line)
        name = begun[1] if begun and begun[1] != "source" else name
        entries.setdefault(name, []).append(line)
    return entries


def list_name(source):
    """The file that lists the mistakes of a source: src/memory/budget.c has memory-budget.mut."""
    return re.sub(r"^(src|include)-|\.c$", "", source.replace("/", "-")) + ".mut"


def tidy(folder, sources):
    """Puts each mistake into the list of the source that it is in by now; returns how many were elsewhere."""
    text, moved = {}, {}
    for mistake in read_lists(folder):
        at = sources.locate(mistake.source, mistake.places[0])[0]
        text.setdefault(mistake.file, entries_of(mistake.file.read_text()))
        if at != mistake.source:
            moved.setdefault(at, []).append(text[mistake.file].pop(mistake.name))
    for file, entries in text.items():
        write_list(file, list(entries.values()))
    for source, entries in moved.items():
        file = Path(folder) / list_name(source)
        old = entries_of(file.read_text()) if file.exists() else {"": [f"source: {source}"]}
        write_list(file, [*old.values(), *entries])
    return sum(len(entries) for entries in moved.values())


def write_list(file, entries):
    """One without mistakes goes."""
    if len(entries) < 2:
        file.unlink()
        return
    first, *others = ["\n".join(lines).strip("\n") for lines in entries]
    file.write_text("\n\n".join([first, *sorted(others, key=lambda entry: entry.partition(":")[0])]) + "\n")


def note_test(mistake, test):
    """Writes into its list which test finds it. The list may have changed since it was read."""
    entries = entries_of(mistake.file.read_text()) if mistake.file.exists() else {}
    if mistake.name in entries:  # nobody has taken it out meanwhile
        entry = [line for line in entries[mistake.name] if line.split()[:1] != ["test"]]
        entries[mistake.name] = [entry[0], f"  test {test}", *entry[1:]]
        mistake.file.write_text("\n".join(line for entry in entries.values() for line in entry) + "\n")
