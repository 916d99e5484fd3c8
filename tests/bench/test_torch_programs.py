#!/usr/bin/env python3
"""bench/torch_programs.py: its words and errors, which need no PyTorch; its runs, caps and comparisons over
tests/bench/fake and the stub of CUDA's driver; its programs on the processor, where PyTorch is installed."""

import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SOURCE = Path(__file__).resolve().parents[2]
SCRIPT, FAKE = SOURCE / "bench/torch_programs.py", SOURCE / "tests/bench/fake"
SEAM = os.environ.get("WEIR_TEST_SEAM", "")
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPT.parent))

import torch_programs as programs  # noqa: E402


class Case(unittest.TestCase):
    def call(self, *words, status=0, fake=True, **environment):
        """Answers stdout and stderr."""
        env = {**os.environ, **({"PYTHONPATH": str(FAKE)} if fake else {}), **environment}
        done = subprocess.run([sys.executable, "-B", SCRIPT, *map(str, words)], capture_output=True, text=True, env=env,
                              timeout=240)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def one(self, *words, **more):
        return json.loads(self.call("--program", "gpt2", "--seam", SEAM, *words, **more)[0])


class Words(Case):
    def refused(self, *words):
        return self.call(*words, status=2, fake=False)[1]

    def test_help(self):
        said, _ = self.call("--help", fake=False)
        for word in ("--program", "--compare", "--table", "--cap", "--option", "gpt2", "expandable"):
            self.assertIn(word, said)

    def test_what_is_wrong_is_named(self):
        for words, named in (((), "--program"), (("--program", "gpt5"), "gpt5"),
                             (("--program", "gpt2", "--table"), "not allowed"),
                             (("--program", "gpt2", "--allocator", "malloc"), "malloc"),
                             (("--program", "gpt2", "--allocator", "weir", "--option", "reuse_wait"), "--option reuse_wait"),
                             (("--program", "gpt2", "--option", "reuse_wait=0"), "--option is weir's"),
                             (("--program", "gpt2", "--cap", "0"), "--cap 0"),
                             (("--program", "gpt2", "--device", "cpu", "--cap", "9"), "--cap 9"),
                             (("--program", "gpt2", "--steps", "0"), "--steps"),
                             (("--program", "gpt2", "--warm", "-1"), "--warm"),
                             (("--program", "gpt2", "--allocator", "weir", "--seam", "no.so"), "no.so is not here"),
                             (("--table", "--programs", "gpt2,x"), "no program x"),
                             (("--table", "--at-once", "0"), "--at-once"),
                             (("--compare", "weird"), "weird is no variant"),
                             (("--compare", "torch:reuse_wait=0"), "torch:reuse_wait=0 is no variant"),
                             (("--compare", "torch", "--rounds", "0"), "--rounds"),
                             (("--compare", "weir:reuse_wait"), "weir:reuse_wait: an option")):
            self.assertIn(named, self.refused(*words), words)


@unittest.skipUnless(Path(SEAM).is_file(), "WEIR_TEST_SEAM does not name libtorch-seam.so")
class Runs(Case):
    def test_one_run_tells_what_the_allocator_held(self):
        for allocator, held in (("torch", 20), ("expandable", 17), ("weir", 16)):
            run = self.one("--allocator", allocator, "--warm", 1, "--steps", 4)
            self.assertEqual((run["allocator"], len(run["ms"]), run["cap"]), (allocator, 4, None))
            self.assertEqual(run["memory"]["peak_requested"], 16 << 20)
            self.assertEqual(run["memory"]["peak_held"], held << 20)
            self.assertEqual(run["measured"]["allocations"], 4 * 8)

    def test_without_steps_to_warm_up_all_is_measured(self):
        self.assertEqual(self.one("--allocator", "weir", "--warm", 0, "--steps", 1)["measured"]["allocations"], 16)

    def test_a_cap_is_kept_and_a_refusal_has_its_status(self):
        for allocator, held, why in (("torch", 20, "out of memory"), ("expandable", 17, "out of memory"),
                                     ("weir", 16, "torch asked for 1 MiB")):
            words = ("--program", "gpt2", "--seam", SEAM, "--allocator", allocator, "--cap")
            self.assertIn(why, self.call(*words, held - 1, status=programs.REFUSED)[1])
            self.call(*words, held)

    def test_weirs_options_are_weirs_to_judge(self):
        run = self.one("--allocator", "weir", "--option", "thread_cache=0", "--option", "reuse_wait=0")
        self.assertEqual(run["options"], {"thread_cache": "0", "reuse_wait": "0"})
        self.assertEqual(run["memory"]["hits"], 0)
        self.assertGreater(self.one("--allocator", "weir")["memory"]["hits"], 0)
        words = ("--program", "gpt2", "--seam", SEAM, "--allocator", "weir", "--option")
        self.assertIn('the nearest is "reuse_wait"', self.call(*words, "reuse_wit=0", status=1)[1])
        self.assertIn("does not take", self.call(*words, "reuse_wait=often", status=1)[1])

    def test_without_a_gpu_nothing_is_measured(self):
        self.assertIn("no GPU", self.call("--program", "bert", status=1, FAKE_GPU="none")[1])

    def test_the_table_has_the_smallest_cap_that_ran(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder) / "all.json"
            said, _ = self.call("--table", "--programs", "bert", "--seam", SEAM, "--steps", 4, "--json", kept)
            runs = json.loads(kept.read_text())["runs"]
        self.assertIn("bert: at its peak it had requested 16 MiB; 8 allocations a step", said)
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines() if line.startswith("|")]
        self.assertEqual([(row[0], row[2], row[5]) for row in rows[2:]],
                         [("PyTorch", "20 (1.250)", "20 (1.2)"),
                          ("PyTorch, expandable segments", "17 (1.062)", "17 (1.005)"),
                          ("weir", "16 (1.000)", "17 (1.005)")])
        self.assertTrue(all(row[6] for row in rows[2:]), rows)
        tried = [run["asked"][2] for run in runs if run["asked"][1] == "torch"]
        self.assertEqual(tried, [None, 18, 21, 19, 20, 20])  # 1.07, 1.3, 1.15, 1.2; then it is timed

    def test_variants_run_by_turns(self):
        said, progress = self.call("--compare", "weir:reuse_wait=0", "torch", "--programs", "gpt2", "--rounds", 3, "--steps",
                                   2, "--seam", SEAM)
        self.assertIn("gpt2: 3 of 3 rounds", said)
        self.assertEqual(re.findall(r"^gpt2 (\S+)", progress, re.M),
                         ["weir:reuse_wait=0", "torch", "torch", "weir:reuse_wait=0", "weir:reuse_wait=0", "torch"])
        first, second = (line for line in said.splitlines() if re.match(r"\| (weir:|torch )", line))
        self.assertRegex(first, r"\| \S+ \| 1\.0000 \| \S+ \| 1\.0000 \| 1\.0000 to 1\.0000 \| 16 \(1\.000\) \| 0 \|")
        self.assertIn("| 20 (1.250) |", second)

    def test_a_program_that_fails_leaves_the_others(self):
        said, _ = self.call("--compare", "torch", "--rounds", 1, "--steps", 2, status=1, FAKE_BROKEN="bert")
        for line in ("gpt2: 1 of 1 rounds", "bert: 0 of 1 rounds", "llama: 1 of 1 rounds",
                     "FAILED bert, torch: status 1: bert: this program is broken"):
            self.assertIn(line, said)

    def test_when_the_time_is_over_it_prints_what_it_has(self):
        said, _ = self.call("--compare", "torch", "--seconds", 0, status=1)
        self.assertIn("gpt2: 0 of 5 rounds", said)
        self.assertIn("the time was over", said)
        self.assertEqual(self.call("--table", "--seconds", 0, "--seam", SEAM)[0].count("|"), 3 * 2 * 8)


class Figures(unittest.TestCase):
    def test_the_smallest_cap_is_found_in_four_tries(self):
        for least in (*programs.RATIOS, 9):
            tried = []
            found = programs.smallest(lambda ratio, least=least, tried=tried: tried.append(ratio) or ratio >= least)
            self.assertEqual(found, least if least < 9 else None)
            self.assertLessEqual(len(tried), 4)

    def test_a_step_that_was_held_up_in_one_round_does_not_count(self):
        """Steps differ in length, and so are compared each with itself."""
        rounds = [{"ms": [10, 20, 99]}, {"ms": [11, 77, 30]}, {"ms": [12, 21, 31]}]
        self.assertEqual(programs.by_step(rounds, min), 20)
        self.assertEqual(programs.by_step(rounds, statistics.median), (11 + 21 + 31) / 3)

    def test_a_run_that_the_end_cut_off_is_no_refusal(self):
        runs = mock.Mock(given=mock.Mock(at_once=1))
        runs.left.return_value = 5
        key = ("gpt2", "v")
        for run, caps in (({"cut": ""}, {}), ({"refused": ""}, {key: None}), ({"ms": []}, {key: programs.RATIOS[0]})):
            runs.one.return_value = run
            self.assertEqual(programs.find_caps(runs, ["gpt2", "bert"], ["v"], {"gpt2": 1 << 30}), caps)


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed here")
class Processor(Case):
    def test_each_program_runs(self):
        for program in programs.STEPS:
            said, _ = self.call("--program", program, "--device", "cpu", "--small", "--warm", 0, "--steps", 2,
                                fake=False)
            run = json.loads(said)
            self.assertEqual((run["program"], len(run["ms"]), run["memory"]), (program, 2, {}))


if __name__ == "__main__":
    unittest.main()
