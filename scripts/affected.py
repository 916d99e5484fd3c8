"""Which tests a change reaches, by what the build itself knows: the headers that Ninja has recorded for each object, and what is
linked, copied or made out of what."""

import json
import re
import subprocess
import xml.etree.ElementTree as xml
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNKNOWN_SECONDS = 2.0  # of a test that has not been run here


def run(*command):
    return subprocess.run([str(word) for word in command], cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True).stdout


def changed_files(since):
    """Names below the project of what differs from the commit that this tree and `since` have in common, or is not tracked."""
    base = run("git", "merge-base", "HEAD", since).strip()
    names = run("git", "diff", "--name-only", base) + run("git", "ls-files", "--others", "--exclude-standard")
    return sorted({name for name in names.splitlines() if (ROOT / name).is_file()})


# ---- the build's own dependencies --------------------------------------------

def read_rules(text):
    """Pairs (input, output) of a build.ninja; what only orders (behind ||) makes nothing new."""
    for line in re.findall(r"^build (.*)$", text.replace("$\n", ""), re.M):
        outputs, _, inputs = line.partition(": ")
        inputs = inputs.partition(" || ")[0]
        for output in outputs.replace(" | ", " ").split():
            for given in inputs.split()[1:]:
                if given != "|":
                    yield given, output


def read_headers(text):
    """Pairs (header or source, object) of what `ninja -t deps` prints."""
    output = None
    for line in text.splitlines():
        if line.startswith("    "):
            yield line.strip(), output
        elif line:
            output = line.partition(": ")[0]


def reach(pairs, tree, starts):
    """All paths that are made out of the ones it starts with, these included."""
    made = defaultdict(set)

    def whole(name):
        path = Path(name)
        return str(path if path.is_absolute() else (tree / path))

    known = {}
    for given, output in pairs:
        for name in (given, output):
            if name not in known:
                known[name] = str(Path(whole(name)).resolve()) if ".." in name else whole(name)
        made[known[given]].add(known[output])
    seen, new = set(), {str(start) for start in starts}
    while new:
        seen |= new
        new = set().union(*(made[path] for path in new)) - seen
    return seen


# ---- the tests ---------------------------------------------------------------

def words_of(test):
    """What a test names: its command's words, the values of its environment, where it is listed."""
    words = list(test.get("command", []))
    for each in test.get("properties", []):
        if each["name"] == "ENVIRONMENT":
            words += [part for pair in each["value"] for part in re.split(r"[=:;]", pair)]
    return words


def is_reached(test, paths, folders):
    """A test that names what is reached, or a file in the folder of a changed script of the tests."""
    return any(word in paths or str(Path(word).parent) in folders for word in words_of(test) if word.startswith("/"))


def rooms_of(files):
    """src/ROOM/… and tests/ROOM/… of the files, without the plug-ins' common folder."""
    found = set()
    for name in files:
        parts = Path(name).parts
        if parts[0] in ("src", "tests") and len(parts) > 2:
            found.add(parts[2] if parts[1] == "engines" and len(parts) > 3 else parts[1])
    return found


def seconds_of(logs):
    """What each test took when the debug suite last ran here."""
    path = logs / "debug.xml"
    cases = xml.parse(path).getroot().iter("testcase") if path.exists() else ()
    return {case.get("name"): float(case.get("time") or 0) for case in cases}


def choose(tree, ctest, changed, seconds):
    """The names of tests to run within so many seconds of one processor, and how many are reached in all. Tests of the changed
    rooms come first, and among equals the short ones."""
    tests = json.loads(run(*ctest, "--show-only=json-v1"))["tests"]
    pairs = list(read_rules((tree / "build.ninja").read_text())) + list(read_headers(run("ninja", "-C", tree, "-t", "deps")))
    paths = reach(pairs, tree, [ROOT / name for name in changed])
    folders = {str((ROOT / name).parent) for name in changed if name.startswith("tests/") and name.endswith(".py")}
    took, rooms = seconds_of(tree.parent / "logs"), rooms_of(changed)
    found = [test["name"] for test in tests if is_reached(test, paths, folders)]

    def distance(name):
        return (not any(name == room or name.startswith(f"{room}-") for room in rooms), took.get(name, UNKNOWN_SECONDS))

    chosen = []
    for name in sorted(found, key=distance):
        seconds -= took.get(name, UNKNOWN_SECONDS)
        if seconds < 0:
            break
        chosen.append(name)
    return chosen, len(found)
