#!/usr/bin/env python3
"""How many sentences of comments have to be read twice, and how many static functions share their name with another file's, by room:
both only become fewer.

    house.py SOURCE          checks the tree against house.json; its own tests run before
    house.py SOURCE --where  also says where they are
    house.py SOURCE --write  writes the figures down, where none has grown

A sentence is dense when more than a quarter of its words, of six or more, stand for something that is named elsewhere: it, that, which,
one, others and the like. A namesake is a static function that another file has too, so that neither is found by its name. Rooms are
the folders of src/, where they hold several subjects (SPLIT) the folders there; include/; and bench/, of which only the program
weir-bench is looked at."""

import argparse
import collections
import json
import re
import sys
import unittest
from pathlib import Path

FIGURES = Path(__file__).with_name("house.json")
SPLIT = ("engines", "factory", "gguf", "interpose/preload", "onnx", "planner/arena")
KINDS = ("dense sentences", "namesakes")
STANDS_FOR = frozenset("""it its itself that what whatever which one ones other others another them they their those these there
some all any nobody who whoever whose each both such so""".split())
LEAST, SHARE = 6, 0.25
COMMENT = re.compile(r"/\*(.*?)\*/|//([^\n]*)", re.S)
STATIC = re.compile(r"^static (?:inline )?[\w \*]*?(?:(?:WEIR_PRINTF|__attribute__)\([^;{]*?\)+ )?[\w \*]*?\b(?!WEIR_PRINTF|__attribute__)(\w+)"
                    r"\([^;{]*\)\s*\{", re.M)


def comments(text):
    for found in COMMENT.finditer(text):
        words = found[1] if found[1] is not None else found[2]
        yield re.sub(r"[-=]{4,}.*", "", re.sub(r"\s*\n\s*\**\s*", " ", words)).strip()


def sentences(comment):
    return re.split(r"(?<=[.;:!]) ", comment)


def is_dense(sentence):
    words = re.findall(r"[A-Za-z_']+", sentence)
    return len(words) >= LEAST and sum(word.lower() in STANDS_FOR for word in words) > SHARE * len(words)


def room_of(path):
    parts = path.split("/")
    if parts[0] in ("include", "bench"):
        return parts[0]
    within = len(parts) > 3 and (parts[1] in SPLIT or "/".join(parts[1:3]) in SPLIT)
    return "/".join(parts[1:3]) if within else parts[1]


def read_tree(source):
    """The text of each file by its path."""
    return {str(path.relative_to(source)): path.read_text(encoding="utf-8", errors="replace")
            for pattern in ("src/**/*.[ch]", "include/**/*.h", "bench/command/*.[ch]") for path in sorted(source.glob(pattern))}


def look(files):
    """By kind and room, where each of them is: (path, what)."""
    found = {kind: collections.defaultdict(list) for kind in KINDS}
    statics = collections.defaultdict(set)
    for path, text in files.items():
        found[KINDS[0]][room_of(path)] += [(path, s) for c in comments(text) for s in sentences(c) if is_dense(s)]
        for name in STATIC.findall(text):
            statics[name].add(path)
    for name, paths in statics.items():
        for path in paths if len(paths) > 1 else ():
            found[KINDS[1]][room_of(path)].append((path, name))
    return found


def counts(found, rooms):
    return {room: [len(found[kind].get(room, ())) for kind in KINDS] for room in sorted(rooms)}


def compare(now, known):
    """What has grown, and what has become less without being written down. A new room has none of either."""
    grown, less = [], []
    for room in sorted({*now, *known}):
        for kind, here, there in zip(KINDS, now.get(room, [0, 0]), known.get(room, [0, 0])):
            words = f"{room}: {here} {kind}, and {there} are written down"
            (grown if here > there else less if here < there else []).append(words)
    return grown, less


# ---- its own tests ---------------------------------------------------------------------------------------------------

class Tests(unittest.TestCase):
    def test_sentences_that_stand_for_others_are_dense(self):
        self.assertTrue(is_dense("Of what is there, one that is not the present one counts for nothing."))
        self.assertFalse(is_dense("Collects the freed blocks of a page with an atomic exchange."))
        self.assertFalse(is_dense("That is what it is."))

    def test_comments_are_read_over_lines(self):
        text = "/* One idea;\n * and another. */\nint x; // Of a line.\n/* ---- part ------- */"
        self.assertEqual(["One idea; and another.", "Of a line.", ""], list(comments(text)))

    def test_namesakes_are_of_other_files(self):
        files = {"src/a/x.c": "static int find(int n)\n{\n}\nstatic int find_x(void)\n{\n}\n", "src/engines/e/y.c": "static bool WEIR_PRINTF(1, 2) find(char *f, ...) {\n}\n",
                 "src/a/z.c": "static int find(int n);\n"}
        now = counts(look(files), {room_of(path) for path in files})
        self.assertEqual({"a": [0, 1], "engines/e": [0, 1]}, now)

    def test_figures_only_fall(self):
        self.assertEqual((["a: 3 dense sentences, and 2 are written down"], ["b: 0 namesakes, and 1 are written down"]),
                         compare({"a": [3, 1], "b": [1, 0]}, {"a": [2, 1], "b": [1, 1]}))
        self.assertEqual((["new: 1 namesakes, and 0 are written down"], []), compare({"new": [0, 1]}, {}))


# ---- the tree --------------------------------------------------------------------------------------------------------

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--where", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    tested = unittest.TextTestRunner(verbosity=0).run(unittest.defaultTestLoader.loadTestsFromTestCase(Tests))
    files = read_tree(given.source)
    found = look(files)
    now = counts(found, {room_of(path) for path in files})
    known = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else now
    grown, less = compare(now, known)
    for kind in KINDS if given.where else ():
        print("\n".join(f"{path}: {what}" for room in sorted(found[kind]) for path, what in found[kind][room]))
    if given.write and not grown:
        rows = [f"  {json.dumps(room)}: {json.dumps(figures)}" for room, figures in now.items()]
        FIGURES.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
        less = []
    print("\n".join([*(f"GROWN: {words}" for words in grown), *(f"less: {words}; house.py SOURCE --write" for words in less)]))
    print(", ".join(f"{sum(figures[i] for figures in now.values())} {kind}" for i, kind in enumerate(KINDS)))
    return 1 if grown or less or not tested.wasSuccessful() else 0


if __name__ == "__main__":
    sys.exit(main())
