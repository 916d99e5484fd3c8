#!/usr/bin/env python3
"""names.py SOURCE: the files, functions and constants that docs/ names in `…` are there, as are the public headers and the
names of weir's in the guides; those of docs/policy.md have the values that it says, so that the pages follow the code; and
tables of public headers are in docs/guide as they are there.

A file is named from the root, from src/, or alone; `wi_…`, `weir_…`, `WI_…` and `WEIR_…` by their whole name, or with a … or
a * for several."""

import re
import sys
from pathlib import Path

PAGES = ["README.md", "CONTRIBUTING.md", "docs/overview.md", "docs/glossary.md", "docs/allocation.md", "docs/policy.md",
         "docs/decisions.md", "docs/engines-seen.md"]
HEADER = re.compile(r"(?<![\w/.-])weir/(?:\w+/)*\w+\.h\b")
FILE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:c|h|py|cmake))`")
NAME = re.compile(r"(?<![\w./-])((?:wi|weir|WI|WEIR)_\w*\w)\b(?![*…/.])")
FUNCTION = re.compile(r"`(?!wi_|weir_)([a-z]+(?:_[a-z]+)+|[A-Z]{3,}(?:_[A-Z]+)*)`")
# Targets of CMake, recorded traces.
ELSEWHERE = {"weir_static", "bert_serve", "gpt2_train", "llama_serve", "segment_train", "four_streams", "unet_images",
             "moe_train"}


def code(source):
    folders = [source / name for name in ("src", "include", "tests", "cmake", "scripts")]
    paths = [p for folder in folders for p in folder.rglob("*") if p.suffix in {".c", ".h", ".cpp", ".py", ".cmake"}]
    words = {word for p in [*paths, source / "CMakeLists.txt"] if p.is_file()
             for word in re.findall(r"\w+", p.read_text(errors="replace"))}
    return {str(p.relative_to(source)) for p in paths}, words


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


def main():
    assert list(missing("`memory/a.c` `wi_b` `c_d`", {"src/memory/a.c"}, {"wi_b", "c_d"})) == []
    gone = list(missing("`memory/b.c`\n`wi_b`, `c_d`", {"src/memory/a.c"}, set()))
    assert gone == [(1, "memory/b.c"), (2, "wi_b"), (2, "c_d")]
    gone = list(missing_public("weir/a.h and `weir_b`, weir/c.h", {"include/weir/a.h"}, set()))
    assert gone == [(1, "weir/c.h"), (1, "weir_b")]
    assert definitions_in("enum { A_B = 3, MOST = 64 << 10 };\n#define LONGEST (64 * WI_MIB)\n")["MOST"] == ["64 << 10 "]
    assert list(other_values("| `FAR` | 1/64 of |\n| `MOST` | 3 % |", {"FAR": ["64"], "MOST": ["13"]})) == [(2, "MOST", "3")]
    assert list(rows_that_differ(" * | a | b |\n * | c |\n | d |", [["| a | b |", "| d |"]])) == [(2, "| c |")]
    source = Path(sys.argv[1])
    files, words = code(source)
    found = [f"{page}:{line}: there is no {name}" for page in PAGES
             for line, name in missing((source / page).read_text(), files, words)]
    core = [p for p in [*(source / "src").rglob("*.[ch]"), *(source / "include").rglob("*.h")]]
    guides = [source / "docs/command.md", source / "docs/not.md", *sorted((source / "docs/guide").glob("*.md"))]
    found += [f"{page.relative_to(source)}:{line}: there is no {name}" for page in [*guides, *(source / p for p in PAGES)]
              for line, name in missing_public(page.read_text(), files, words)]
    definitions = definitions_in("\n".join(p.read_text(errors="replace") for p in core))
    found += [f"docs/policy.md:{line}: {name} is not {number} in the code"
              for line, name, number in other_values((source / "docs/policy.md").read_text(), definitions)]
    guide = [p.read_text().splitlines() for p in (source / "docs/guide").glob("*.md")]
    found += [f"{header.relative_to(source)}:{line}: no page of docs/guide has this row: {row}"
              for header in (source / "include").rglob("*.h") for line, row in rows_that_differ(header.read_text(), guide)]
    print("\n".join(dict.fromkeys(found)))
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
