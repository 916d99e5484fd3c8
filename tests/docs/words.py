#!/usr/bin/env python3
"""Words that docs/glossary.md has replaced do not come back into src/, include/, bench/command/, docs/, README.md and CONTRIBUTING.md.

    words.py SOURCE          checks the tree; its own tests run before
    words.py SOURCE --where  also says where the words that are still there are

Each rule is a word, what is said instead, where the rule holds, what is no use of the word in that sense (a pattern for the text
around it), and how many uses are still there. That number only goes down: a new use fails; whoever removes uses lowers it."""

import re
import sys
import unittest
from pathlib import Path
from typing import NamedTuple

EVERYWHERE = r""
# In other rooms these words mean other things.
CORE = r"src/(base|driver|memory|runtime|sim|planner/arena)/|include/|docs/|README|CONTRIBUTING"
MEMORY = r"src/(memory|runtime)/|include/|docs/|README|CONTRIBUTING"


class Rule(NamedTuple):
    word: str  # a pattern, whatever the case
    instead: str
    where: str = EVERYWHERE  # a pattern for the beginning of a path
    allowed: str = r"(?!)"  # a pattern that covers the word where it is meant otherwise
    left: int = 0


RULES = [
    # Identifiers.
    Rule(r"\bwi_fronts?\w*", "wi_tcache"),
    Rule(r"\bwi_lanes?\w*", "wi_stream_list"),
    Rule(r"\bwi_(shelf|shelves)\w*", "wi_size_index"),
    Rule(r"\bwi_spaces?_\w*", "wi_region"),
    Rule(r"\bwi_backing\w*", "wi_chunk"),
    Rule(r"\bwi_rescue\w*", "wi_compact"),
    Rule(r"\bwi_(patience|calm)\w*", "wi_reuse_wait"),
    Rule(r"\bwi_holders?_\w*", "wi_member"),
    Rule(r"\bwi_outlets?\w*", "wi_sink"),
    Rule(r"\bwi_(drift|guest)\w*", "wi_delta, wi_host_trim"),
    Rule(r"\bwi_wish\w*", "wi_fit_request in src/memory, wi_criteria in src/factory/choice"),
    Rule(r"\bwi_law\b|\bwi_take\b|\bwi_put_back\b|\bwi_parked\b", "wi_assert, wi_acquire, wi_let_go, WI_THREAD_CACHED"),
    Rule(r"\bWEIR_(FRONT|CALM|PATIENCE|RUNG_PARKED|SPAN_PARKED)\b", "WEIR_THREAD_CACHE, WEIR_REUSE_WAIT, …"),
    Rule(r"\bweir_runtime_(shed|settle)\b", "weir_runtime_trim_idle, weir_runtime_drain"),
    # Words.
    Rule(r"\bfronts?\b", "thread cache", CORE, r"\bin front\b|\b(to|at|from) (the|its) front\b|\bfront of the\b"),
    Rule(r"\blanes?\b", "stream list; slot of the engine onnx"),
    Rule(r"\b(park(ed|s|ing)?)\b", "thread-cached, kept by a thread cache", CORE, r"[`\"]parked[`\"]"),
    Rule(r"\bshel(f|ves)\b", "size index"),
    Rule(r"\bbackings?\b", "chunk", MEMORY),
    Rule(r"\bmodest\b|\bthrift\w*|\bthorough\b", "WI_GROWTH_NONE, soft limit, last resort"),
    Rule(r"\bpatience\b", "reuse wait", EVERYWHERE, r"\bPATIENCE\b"),
    Rule(r"\bcalm\b", "steady state"),
    Rule(r"\bdrifts?\b", "delta", CORE),
    Rule(r"\bfold(s|ed)?\b", "merge", r"src/(memory|runtime)/"),
    Rule(r"\bholders?\b", "member", r"src/(memory|runtime)/", r"top holders|largest holders|struct weir_holder|(->|\.)holders\b", left=1),
    Rule(r"\bguests?\b", "host trim", CORE),
    Rule(r"\boutlets?\b", "sink"),
    Rule(r"\brescued?\b", "compaction", CORE),
    Rule(r"\blaws?\b", "invariant"),
    Rule(r"\bsettle(s|d)?\b", "commit, flush, drain, synchronize", MEMORY),
    Rule(r"\bshed\b|\bsquee[sz]ed?\b", "trim, device_oom_seen", EVERYWHERE, r"\bSqueeze\b|rule_squeeze"),
    Rule(r"\bwish(es)?\b", "fit request, criteria", EVERYWHERE, r"\"wish\", EACH"),  # HardSwish
    Rule(r"\bspoil\w*|\banew\b", "exclude, again", EVERYWHERE, r"`anew`|bool anew;|o\.anew"),
    Rule(r"\b(any|no|every)(body|one)'s\b", "free for all, the owner's; say whose"),
    Rule(r"\bsky\b|\bdeeds?\b|\bhollows?\b", "skyline, move, valley"),
]
SUFFIXES = {".c", ".h", ".cpp", ".cu", ".cmake", ".txt", ".md", ".svg", ".map", ".in"}


def uses(rule, path, text):
    """(line, word) for each use of a retired word in the text, and in the path itself (line 0)."""
    if not re.match(rule.where, path):
        return []
    found = []
    for number, line in enumerate([path, *text.splitlines()]):
        spans = [m.span() for m in re.finditer(rule.allowed, line)]
        for m in re.finditer(rule.word, line, re.I):
            if not any(low <= m.start() and m.end() <= high for low, high in spans):
                found.append((number, m.group()))
    return found


def check(rules, files):
    """Complaints, remarks, and where the words are: of rules and {path: text}."""
    complaints, remarks, places = [], [], []
    # Each different word of a file once: which files have one at all is found out there, as lines are many.
    different = {path: "\n".join(set(re.findall(r"[\w']+", path + "\n" + text))) for path, text in sorted(files.items())}
    for rule in rules:
        word = re.compile(rule.word, re.I)
        having = [path for path, words in different.items() if re.match(rule.where, path) and word.search(words)]
        found = [f"{path}:{line}: {word}" for path in having for line, word in uses(rule, path, files[path])]
        places += [f"{place} (say {rule.instead})" for place in found]
        if len(found) > rule.left:
            complaints.append(f"{len(found)} uses of {rule.word}, {rule.left} are left from before; say {rule.instead}:")
            complaints += [f"    {place}" for place in found[:200]]
        elif len(found) < rule.left:
            remarks.append(f"{rule.word}: {len(found)} uses are left, and no longer {rule.left}: lower the number")
    return complaints, remarks, places


def read(source):
    roots = [source / "src", source / "include", source / "bench/command", source / "docs"]
    paths = [source / "README.md", source / "CONTRIBUTING.md", *(p for root in roots for p in root.rglob("*"))]
    return {str(p.relative_to(source)): p.read_text(errors="replace") for p in paths if p.is_file() and p.suffix in SUFFIXES}


class Words(unittest.TestCase):
    def found(self, rule, text, path="src/memory/a.c"):
        return len(uses(rule, path, text))

    def test_a_retired_word_is_found_whatever_its_case(self):
        self.assertEqual(2, self.found(Rule("lanes?", "x"), "A lane.\nLanes"))

    def test_a_word_in_the_name_of_a_file_is_found(self):
        self.assertEqual(1, self.found(Rule("lanes?", "x"), "", "src/memory/lanes.c"))

    def test_a_word_that_is_meant_otherwise_is_allowed(self):
        rule = Rule(r"\bfronts?\b", "x", allowed=r"in front")
        self.assertEqual(1, self.found(rule, "in front of a front"))

    def test_a_rule_holds_where_it_says(self):
        rule = Rule("lane", "x", where="src/memory/")
        self.assertEqual((1, 0), (self.found(rule, "lane"), self.found(rule, "lane", "src/onnx/engine/a.c")))

    def test_one_use_more_than_is_left_is_a_complaint(self):
        files = {"src/a.c": "lane lane"}
        self.assertTrue(check([Rule("lane", "x", left=1)], files)[0])
        self.assertFalse(check([Rule("lane", "x", left=2)], files)[0])

    def test_one_use_less_is_a_remark(self):
        complaints, remarks, _ = check([Rule("lane", "x", left=2)], {"src/a.c": "lane"})
        self.assertEqual((0, 1), (len(complaints), len(remarks)))


def main():
    if not unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful():
        return 1
    files = read(Path(sys.argv[1]))
    complaints, remarks, places = check(RULES, files)
    print("\n".join([*remarks, *complaints, *(places if "--where" in sys.argv else [])]))
    return 1 if complaints or not files else 0


if __name__ == "__main__":
    sys.exit(main())
