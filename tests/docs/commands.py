#!/usr/bin/env python3
"""commands.py SOURCE BUILD: the commands that the pages show can be given as they are printed, without giving those that take long.

Of each line of a block of shell, and of each `…` that is a command: a target of make and a preset are there, a script is there and has
the options by its --help, a `ctest -R` names a test, a program of the build is built, and what a pack's run.sh is given has the script
that made the pack. Those of CHEAP are given. In CONTRIBUTING.md also each file, folder, test, target and suite that is named in `…` is
there, the table of rooms has every room and every folder of tests, and the mistake that it shows is in the lists."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

SOURCE, BUILD = Path(sys.argv[1]), Path(sys.argv[2])
# Seconds at most, and nothing is built or fetched.
CHEAP = [r"scripts/mutants (--engines )?--check", r"scripts/\S+ --help", r"build/debug/tests/test-\S+"]
ENVIRONMENT = re.compile(r"[A-Z_]+=")


def answer(*command, cwd=SOURCE):
    """(exit status, what it printed) of a command, which writes nothing into the tree."""
    try:
        with tempfile.TemporaryDirectory() as home:
            done = subprocess.run([str(word) for word in command], cwd=cwd, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=1000,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "BUILD": home})
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout


@lru_cache(None)
def options(script):
    """The options that a script has by its own word, --help among them; or by its text, where it needs packages to say so."""
    status, text = answer(SOURCE / script, "--help") if os.access(SOURCE / script, os.X_OK) else (1, "")
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text if status == 0 else (SOURCE / script).read_text())) | {"--help"}


@lru_cache(None)
def tests():
    """The names that `ctest -N` prints, from where it has them: it may be running."""
    return {name for path in BUILD.rglob("CTestTestfile.cmake") for name in re.findall(r"^add_test\((?:\[=*\[)?([^] ]+)", path.read_text(), re.M)}


@lru_cache(None)
def targets():
    return set(re.findall(r"^(?:\.\.\. )?([\w.-]+)", answer("cmake", "--build", BUILD, "--target", "help")[1], re.M))


@lru_cache(None)
def lists():
    """The text of what names tests, targets and products: CMake's lists, scripts, and what the engines' command is called."""
    named = [*SOURCE.glob("tests/**/*.cmake"), *SOURCE.glob("**/CMakeLists.txt"), *(p for p in (SOURCE / "scripts").iterdir() if p.is_file()),
             SOURCE / "src/engines/command.h", SOURCE / "Makefile"]
    return "\n".join(path.read_text(errors="replace") for path in named if "/build/" not in str(path.relative_to(SOURCE)))


@lru_cache(None)
def makes():
    return set(re.findall(r"^([a-z][\w-]*):", (SOURCE / "Makefile").read_text(), re.M))


@lru_cache(None)
def presets():
    return {each["name"] for each in json.loads((SOURCE / "CMakePresets.json").read_text())["configurePresets"]}


@lru_cache(None)
def suites():
    return set(re.findall(r"^  ([a-z][\w-]*) ", answer(SOURCE / "scripts/check", "--help")[1].partition("suites:")[2], re.M))


def complaints_of_script(script, words):
    """What a script that is here has not of what it is given."""
    if not (SOURCE / script).exists() or not (os.access(SOURCE / script, os.X_OK) or "." in script):  # a file that scripts use
        return [f"there is no script {script}"]
    missing = [f"{script} has no {word}" for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in options(script)]
    if script == "scripts/check" and not any(word.startswith("--quick") for word in words):
        missing += [f"scripts/check has no suite {word}" for word in words if re.fullmatch(r"[a-z][a-z-]+", word) and word not in suites()]
    if script == "scripts/build" and words and words[0] not in presets() | {"PRESET"}:
        missing.append(f"there is no preset {words[0]}")
    return missing


def complaints_of_ctest(words):
    pattern = words[words.index("-R") + 1] if "-R" in words else ""
    return [] if any(re.search(pattern, name) for name in tests()) else [f"no test is named {pattern}"]


def complaints(command, packs):
    """What is wrong with one command; `packs` are the folders that a script made by --pack, with the script."""
    try:
        words = shlex.split(command)
    except ValueError:
        return []  # a part of a line
    while words and ENVIRONMENT.match(words[0]):
        words.pop(0)
    if not words:
        return []
    name, words = words[0], words[1:]
    if name.startswith("scripts/"):
        return complaints_of_script(name, words)
    if name == "make":
        return [f"make has no {word}" for word in words if re.fullmatch(r"[a-z][\w-]*", word) and word not in makes()]
    if name == "ctest":
        return complaints_of_ctest(words)
    if name == "cmake" and "--preset" in words:
        preset = words[words.index("--preset") + 1]
        return [] if preset in presets() else [f"there is no preset {preset}"]
    tree = re.fullmatch(r"build/([\w-]+)/(tests|bin|bench)/(\S+)", name)
    if tree:
        built = tree[1] in presets() and tree[3] in targets() | {"weir"}
        return [] if built else [f"{name} is not built"]
    if name.endswith("/run.sh") and name.split("/")[0] in packs:
        return [f"{packs[name.split('/')[0]]} has no {word}, which {name} is given" for word in words
                if word.startswith("--") and word not in options(packs[name.split("/")[0]])]
    return []


def commands_of(text):
    """(line, command) of each in a block of shell, and of scripts that its comments name."""
    for number, line in enumerate(text.splitlines()):
        line, _, comment = line.removeprefix("$ ").partition("  #")
        for command in [*re.split(r" && | \|\|? |; ", line), *re.findall(r"\bscripts/[\w-]+(?: [\w-]+)*", comment)]:
            if command.strip() and not command.startswith((" ", "#", ">")):
                yield number, command.strip()


def shells(page):
    """(line, text) of each block of shell of a page that is not run whole by snippets.py."""
    for block in re.finditer(r"^```sh\n(.*?)^```$", page, re.M | re.S):
        yield page.count("\n", 0, block.start(1)) + 1, block[1]


def quoted(page):
    """(line, text) of each `…` outside of blocks."""
    prose = re.sub(r"^```.*?^```$", lambda m: "\n" * m.group().count("\n"), page, flags=re.M | re.S)
    for found in re.finditer(r"`([^`\n]+)`", prose):
        yield prose.count("\n", 0, found.start()) + 1, found[1]


def given(command):
    """What goes wrong with a cheap command, where the build is."""
    words = [re.sub("^build/debug", str(BUILD), word) for word in shlex.split(command)]
    status, printed = answer(*words)
    return [f"{command}: exit status {status}\n{printed[-2000:]}"] if status else []


def is_there(name):
    """Whether a file or folder that is named is there, or made by a script; capital letters stand for any name."""
    name = re.sub(r"\b[A-Z]{3,}\b(?!\.)", "*", name.rstrip("/"))
    if any(next((SOURCE / top).glob(name), None) for top in (".", "src", "include") if not name.startswith("/")):
        return True
    tree = re.match(r"build/([\w-]+)", name)
    if tree:
        return tree[1] in presets() or tree[1] in lists()
    return name.rpartition("/")[2] in lists() and name.startswith("weir/")  # of the wheel


def complaints_of_name(text):
    """What is wrong with a file, a test or a target in `…`."""
    if re.fullmatch(r"[\w.*/-]+/[\w.*-]*|[\w-]+\.(c|h|py|txt|cmake|json|mut)|\.[\w-]+", text):
        alone = "/" not in text and any(next((SOURCE / top).rglob(text), None) for top in ("src", "include", "tests", "scripts"))
        return [] if alone or is_there(text) else [f"there is no {text}"]
    if re.fullmatch(r"[a-z]+(-[a-z0-9_]+)+", text):
        known = text in tests() | targets() | suites() | presets() or re.search(rf"(?<![\w-]){text}(?![\w-])", lists())
        return [] if known else [f"no test or target is named {text}"]
    return []


def rows_of_rooms(page):
    """(folders of src, folders of tests) of each row of the table of rooms."""
    table = re.search(r"^\| room of src/ \|.*?(?=\n\n)", page, re.M | re.S)
    for row in (table[0].splitlines()[2:] if table else ()):
        cells = [re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:4]]
        yield cells[0], cells[1], cells[2]


def complaints_of_rooms(page):
    """Rooms and folders of tests that the table has and the tree has not, the other way round, and patterns that no test has."""
    rows = list(rows_of_rooms(page))
    rooms, folders = {room.split("/")[0] for row in rows for room in row[0]}, {folder for row in rows for folder in row[1]}
    yield from (f"there is no room src/{room}" for row in rows for room in row[0] if not (SOURCE / "src" / room).is_dir())
    yield from (f"no row has the room src/{path.name}" for path in (SOURCE / "src").iterdir() if path.is_dir() and path.name not in rooms)
    there = {path.parent.name for path in SOURCE.glob("tests/*/tests.cmake")}
    yield from (f"no row has tests/{folder}" for folder in there - folders)
    yield from (f"there is no tests/{folder}" for folder in folders - there)
    yield from (f"no test is named {name}" for row in rows for name in row[2] if not any(re.search(name, test) for test in tests()))


def complaints_of_mistakes(page):
    """Mistakes shown that are not in the lists word for word, the test that is tried first apart, or whose test there is not."""
    every = [re.sub(r"^  test .*\n", "", path.read_text(), flags=re.M) for path in (SOURCE / "tests/mutants").rglob("*.mut")]
    for shown in re.findall(r"^```\n([\w-]+:.*?)^```$", page, re.M | re.S):
        yield from (f"no test is named {name}" for name in re.findall(r"^  test (.*)$", shown, re.M) if name not in tests())
        if not any(re.sub(r"^  test .*\n", "", shown, flags=re.M) in text for text in every):
            yield f"the lists have no mistake {shown.partition(':')[0]} like that"


def complaints_of_page(name, page):
    """(line, what is wrong) of a page."""
    every = [(start + number, command) for start, text in shells(page) for number, command in commands_of(text)]
    every += [(line, re.sub(r"^check (?=--)", "scripts/check ", text)) for line, text in quoted(page)
              if re.match(r"([A-Z]+=\S+ )*(make|ctest|cmake|check|scripts/\S+|\S+/run\.sh)( |$)", text)]
    packs = {words[1]: words[0] for _, command in every for words in re.findall(r"^(scripts/\S+) --pack (\S+)", command)}
    for line, command in every:
        yield from ((line, wrong) for wrong in complaints(command, packs))
        if name == "CONTRIBUTING.md" and any(re.fullmatch(cheap, command) for cheap in CHEAP):
            yield from ((line, wrong) for wrong in given(command))
    if name == "CONTRIBUTING.md":
        yield from ((line, wrong) for line, text in quoted(page) for wrong in complaints_of_name(text))
        yield from ((line, f"there is no suite {row}") for line, row in suites_of(page) if row not in suites())
        yield from ((0, wrong) for wrong in [*complaints_of_rooms(page), *complaints_of_mistakes(page)])


def suites_of(page):
    """(line, suite) of the table of suites."""
    for row in re.finditer(r"^\| `([a-z-]+)` \|(?:[^|\n]*\|){2}$", page, re.M):
        if row.start() < page.find("## While working"):
            yield page.count("\n", 0, row.start()) + 1, row[1]


def check_finding():
    """Each kind of untruth is found."""
    bad = ("```sh\nmake nothing\nscripts/check --nothing\nscripts/nothing --help  # needs scripts/engines --nothing\ncmake --preset nothing\n"
           "ctest --test-dir build/debug -R no-such-test\nbuild/debug/tests/test-nothing\nscripts/gpu-check --pack p && p/run.sh --nothing\n```\n"
           "`tests/nothing/a.c`, `nothing-at-all`, `build/no-such-tree`\n```\nno-mistake: none\n```\n")
    found = "\n".join(wrong for _, wrong in complaints_of_page("CONTRIBUTING.md", bad))
    for wanted in ("make has no nothing", "scripts/check has no --nothing", "no script scripts/nothing", "scripts/engines has no --nothing",
                   "no preset nothing", "named no-such-test", "test-nothing is not built", "p/run.sh is given", "no tests/nothing/a.c",
                   "named nothing-at-all", "no build/no-such-tree", "no mistake no-mistake", "no row has the room src/memory", "no row has tests/core"):
        assert wanted in found, f"{wanted}: {found}"


def main():
    check_finding()
    found = []
    for path in [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", *sorted((SOURCE / "docs").rglob("*.md"))]:
        name = str(path.relative_to(SOURCE))
        found += [f"{name}:{line}: {wrong}" for line, wrong in complaints_of_page(name, path.read_text())]
    print("\n".join(dict.fromkeys(found)))
    return 1 if found or not tests() or not suites() else 0


if __name__ == "__main__":
    sys.exit(main())
