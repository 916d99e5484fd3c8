#!/usr/bin/env python3
"""names.py SOURCE: the files, functions and constants that docs/ names in `…` are there, as are the public headers and the
names of weir's in the guides; those of docs/policy.md have the values that it says, so that the pages follow the code; and
tables of public headers are in docs/guide as they are there.

A file is named from the root, from src/, or alone; `wi_…`, `weir_…`, `WI_…` and `WEIR_…` by their whole name, or with a … or
a * for several."""

import re
import stat
import sys
import tempfile
from pathlib import Path

PAGES = ["README.md", "CONTRIBUTING.md", "docs/overview.md", "docs/glossary.md", "docs/allocation.md", "docs/policy.md",
         "docs/decisions.md", "docs/engines-seen.md", "docs/next.md", "docs/where.md"]
HEADER = re.compile(r"(?<![\w/.-])weir/(?:\w+/)*\w+\.h\b")
FILE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:c|h|py|cmake))`")
NAME = re.compile(r"(?<![\w./-])((?:wi|weir|WI|WEIR)_\w*\w)\b(?![*…/.])")
FUNCTION = re.compile(r"`(?!wi_|weir_)([a-z]+(?:_[a-z]+)+|[A-Z]{3,}(?:_[A-Z]+)*)`")
# Targets of CMake, recorded traces.
ELSEWHERE = {"weir_static", "bert_serve", "gpt2_train", "llama_serve", "segment_train", "four_streams", "unet_images",
             "moe_train"}


FOLDERS = ("src", "include", "bench/command", "tests", "cmake", "scripts")
ENDINGS = {".c", ".h", ".cpp", ".py", ".cmake"}


def stamps(source):
    """The files that are read, and what changes when they do; a file that is just being replaced is none of them."""
    found = {}
    for p in [*(p for name in FOLDERS for p in (source / name).rglob("*") if p.suffix in ENDINGS), source / "CMakeLists.txt",
              *(source / page for page in PAGES), *(source / "docs").rglob("*.md")]:
        try:
            its = p.stat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(its.st_mode):
            found[p] = its.st_ino, its.st_size, its.st_mtime_ns, its.st_ctime_ns
    return found


def read(source):
    """The texts of all of them as they stand together: again, for as long as files are written while they are read."""
    while True:
        before = stamps(source)
        try:
            texts = {str(p.relative_to(source)): p.read_text(errors="replace") for p in before}
        except FileNotFoundError:
            continue
        if stamps(source) == before:
            return texts


def code(texts):
    """The files of the code, and the words in them."""
    files = {name for name in texts if name.startswith(tuple(f"{folder}/" for folder in FOLDERS)) and Path(name).suffix in ENDINGS}
    return files, {word for name in [*files, "CMakeLists.txt"] for word in re.findall(r"\w+", texts[name])}


def values(text):
    """(line, name, number) of rows `| `NAME` | number …`; of a share like 1/512 the lower number."""
    for number, line in enumerate(text.splitlines(), 1):
        row = re.match(r"\| `([A-Z_]+)` \| (?:1/)?([\d,]+)", line)
        if row:
            yield number, row[1], row[2].replace(",", "")


def other_values(text, definitions):
    """Rows whose number is in no definition of the name."""
    for line, name, number in values(text):
        if not any(re.search(rf"(?<![\w.]){number}(?![\w.])", one) for one in definitions.get(name, [])):
            yield line, name, number


def definitions_in(text):
    """The text behind `NAME =` in an enum and behind `#define NAME`."""
    found = {}
    for name, value in re.findall(r"\b([A-Z][A-Z_]+) = ([^,;}]+)", text) + re.findall(r"#define +([A-Z_]+) +([^\n]+)", text):
        found.setdefault(name, []).append(re.sub(r"U?INT64_C", "", value))
    return found


def prose(text):
    """The text without its blocks of code, line by line."""
    return re.sub(r"^```.*?^```$", lambda m: "\n" * m.group().count("\n"), text, flags=re.M | re.S).splitlines()


def missing_public(text, files, words):
    """The public headers, and names of weir's, that the text has and the code has not: (line, name)."""
    for number, line in enumerate(prose(text), 1):
        yield from ((number, name) for name in HEADER.findall(line) if f"include/{name}" not in files)
        for part in re.findall(r"`[^`]*`", line):
            yield from ((number, name) for name in NAME.findall(part) if name not in words | ELSEWHERE)


def missing(text, files, words):
    """What of the text's names there is not: (line, name)."""
    for number, line in enumerate(prose(text), 1):
        for name in FILE.findall(line):
            alone = "/" not in name and any(f.endswith(f"/{name}") for f in files)
            if not alone and not {name, f"src/{name}", f"include/{name}"} & files:
                yield number, name
        for part in re.findall(r"`[^`]*`", line):
            yield from ((number, name) for name in NAME.findall(part) if name not in words | ELSEWHERE)
            yield from ((number, name) for name in FUNCTION.findall(part) if name not in words | ELSEWHERE)


def rows_that_differ(header, pages):
    """Rows of tables in a header's comments that no page of the guide has word for word: (line, row)."""
    for number, line in enumerate(header.splitlines(), 1):
        row = re.match(r" \* (\|.*\|)$", line)
        if row and not any(row[1] in page for page in pages):
            yield number, row[1]


def check_reading():
    """A file that is replaced while others are read is neither left out nor read half."""
    with tempfile.TemporaryDirectory() as folder:
        top, (name, text), steps = Path(folder), ("src/a.c", "int whole;"), []
        (top / "src").mkdir()
        (top / "src/a.c").write_text(text)
        (top / "CMakeLists.txt").write_text("project(a)")
        look, at = Path.read_text, [lambda p: p.unlink(), lambda p: p.write_text(""), lambda p: p.write_text("int h"),
                                    lambda p: p.write_text(text)]

        def replaced(path, **how):
            if at:
                steps.append(at.pop(0)(top / name))
            return look(path, **how)
        Path.read_text = replaced
        try:
            texts = read(top)
        finally:
            Path.read_text = look
        assert len(steps) == 4 and code(texts) == ({name}, {"int", "whole", "project", "a"}), texts


def main():
    assert list(missing("`memory/a.c` `wi_b` `c_d`", {"src/memory/a.c"}, {"wi_b", "c_d"})) == []
    gone = list(missing("`memory/b.c`\n`wi_b`, `c_d`", {"src/memory/a.c"}, set()))
    assert gone == [(1, "memory/b.c"), (2, "wi_b"), (2, "c_d")]
    gone = list(missing_public("weir/a.h and `weir_b`, weir/c.h", {"include/weir/a.h"}, set()))
    assert gone == [(1, "weir/c.h"), (1, "weir_b")]
    assert definitions_in("enum { A_B = 3, MOST = 64 << 10 };\n#define LONGEST (64 * WI_MIB)\n")["MOST"] == ["64 << 10 "]
    assert list(other_values("| `FAR` | 1/64 of |\n| `MOST` | 3 % |", {"FAR": ["64"], "MOST": ["13"]})) == [(2, "MOST", "3")]
    assert list(rows_that_differ(" * | a | b |\n * | c |\n | d |", [["| a | b |", "| d |"]])) == [(2, "| c |")]
    check_reading()
    texts = read(Path(sys.argv[1]))
    files, words = code(texts)
    found = [f"{page}:{line}: there is no {name}" for page in PAGES for line, name in missing(texts[page], files, words)]
    guide = sorted(name for name in texts if re.fullmatch(r"docs/guide/[^/]+\.md", name))
    found += [f"{page}:{line}: there is no {name}" for page in ["docs/command.md", "docs/not.md", *guide, *PAGES]
              for line, name in missing_public(texts[page], files, words)]
    headers = [name for name in files if re.fullmatch(r"include/.*\.h", name)]
    core = headers + [name for name in files if re.fullmatch(r"src/.*\.[ch]", name)]
    definitions = definitions_in("\n".join(texts[name] for name in core))
    found += [f"docs/policy.md:{line}: {name} is not {number} in the code"
              for line, name, number in other_values(texts["docs/policy.md"], definitions)]
    rows = [texts[name].splitlines() for name in guide]
    found += [f"{header}:{line}: no page of docs/guide has this row: {row}"
              for header in headers for line, row in rows_that_differ(texts[header], rows)]
    print("\n".join(dict.fromkeys(found)))
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
