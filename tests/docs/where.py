#!/usr/bin/env python3
"""where.py SOURCE: what docs/where.md says is there: each file, in it the definition of each function that its row names, and the
words in italics. The page is reached from README.md, CONTRIBUTING.md and docs/overview.md."""

import re
import sys
from pathlib import Path

ROW = re.compile(r"^\| (?P<what>[^|]+) \| `(?P<file>[^`|]+)` \|(?P<functions>[^|]*)\|$")
PAGES = ("README.md", "CONTRIBUTING.md", "docs/overview.md")
FEWEST = 40  # rows


def defines(text, name):
    """Whether a C text has the body of a function: its name at the beginning of a line that begins no call and no statement."""
    start = re.search(rf"^(?!return|else)\w[\w *]*\b{name}\((?:[^;{{]|\n)*?\)\s*\n?\{{", text, re.M)
    return bool(start)


def missing(text, read):
    """(line, what is wrong) of the rows; `read` gives a file's text, or None."""
    for number, line in enumerate(text.splitlines(), 1):
        row = ROW.match(line)
        if not row:
            continue
        code = read(row["file"])
        if code is None:
            yield number, f"there is no file {row['file']}"
            continue
        for name in re.findall(r"`(\w+)`", row["functions"]):
            if not defines(code, name):
                yield number, f"{row['file']} does not define {name}"
        plain = re.sub(r"\s*\n \* |\s+", " ", code).lower()
        for words in re.findall(r"\*([^*]+)\*", row["what"]):
            if words.lower() not in plain:
                yield number, f"{row['file']} does not have the words {words}"


def check_finding():
    assert defines("static int a_b(int c,\n               int d)\n{\n", "a_b") and defines("void *a_b(void) {", "a_b")
    assert not defines("int a_b(void);\nint c(void)\n{\n    return a_b();\n}\n", "a_b")
    files = {"x.c": "/* Ends\n * well. */\nvoid f(void)\n{\n}\n"}
    rows = "| *ends well* | `x.c` | `f` |\n| *ends badly* | `x.c` | `g` |\n| no | `y.c` | |"
    assert [line for line, _ in missing(rows, files.get)] == [2, 2, 3]


def main():
    check_finding()
    source = Path(sys.argv[1])

    def read(name):
        return next((path.read_text(errors="replace") for path in (source / "src" / name, source / name) if path.is_file()), None)
    text = (source / "docs/where.md").read_text()
    found = [f"docs/where.md:{line}: {wrong}" for line, wrong in missing(text, read)]
    found += [f"{page}: has no link to docs/where.md" for page in PAGES
              if not re.search(r"\]\((docs/)?where\.md\)", (source / page).read_text())]
    rows = sum(bool(ROW.match(line)) for line in text.splitlines())
    if rows < FEWEST:
        found.append(f"docs/where.md: only {rows} rows")
    print("\n".join(found) or f"{rows} rows")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
