#!/usr/bin/env python3
"""bench/torch_programs.py and bench/torch_run.py: their words and errors, which need no PyTorch; runs, turns and caps over
tests/bench/fake; the programs on the processor, where PyTorch is installed."""

import importlib.util
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
TABLE, RUN, FAKE = SOURCE / "bench/torch_programs.py", SOURCE / "bench/torch_run.py", SOURCE / "tests/bench/fake"
sys.dont_write_bytecode = True
sys.path.insert(0, str(TABLE.parent))

import torch_programs as programs  # noqa: E402
import torch_run  # noqa: E402


class Case(unittest.TestCase):
    def call(self, script, *words, status=0, fake=True, **environment):
        """Answers stdout and stderr."""
        env = {**os.environ, **({"PYTHONPATH": str(FAKE)} if fake else {}), **environment}
        line = [sys.executable, "-B", script, *words, *(["--package", FAKE] if fake else [])]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True, env=env, timeout=1000)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def one(self, *words, **more):
        return json.loads(self.call(RUN, "gpt2", *words, **more)[0])

    def table(self, *words, **more):
        """Rows by program and allocator, all that was said, and what was kept as JSON."""
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder) / "all.json"
            said, _ = self.call(TABLE, *words, "--json", kept, **more)
            rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines() if line.startswith("|")]
            return {(row[0], row[1]): row[2:] for row in rows[2:]}, said, json.loads(kept.read_text())


class Words(Case):
    def test_help(self):
        for script, wanted in ((TABLE, ("--programs", "--minutes", "--caps", "rcnn")), (RUN, ("--cap", "--option", "gpt2", "expandable"))):
            said, _ = self.call(script, "--help", fake=False)
            for word in wanted:
                self.assertIn(word, said)

    def test_what_is_wrong_is_named(self):
        for script, words, named in ((RUN, (), "program"), (RUN, ("gpt5",), "gpt5"), (RUN, ("gpt2", "--allocator", "malloc"), "malloc"),
                                     (RUN, ("gpt2", "--allocator", "weir", "--option", "reuse_wait"), "--option reuse_wait"),
                                     (RUN, ("gpt2", "--option", "reuse_wait=0"), "--option is weir's"),
                                     (RUN, ("gpt2", "--cap", "0"), "--cap 0"), (RUN, ("gpt2", "--device", "cpu", "--cap", "9"), "--cap 9"),
                                     (RUN, ("gpt2", "--steps", "0"), "--steps"), (RUN, ("gpt2", "--warm", "-1"), "--warm"),
                                     (TABLE, ("--programs", "gpt2,x"), "no program x"), (TABLE, ("--caps", "y"), "no program y"),
                                     (TABLE, ("--at-once", "0"), "--at-once"), (TABLE, ("--variants", "weird"), "weird is no variant"),
                                     (TABLE, ("--variants", "torch:reuse_wait=0"), "torch:reuse_wait=0 is no variant"),
                                     (TABLE, ("--rounds", "0"), "--rounds"), (TABLE, ("--steps", "0"), "--steps"),
                                     (TABLE, ("--variants", "weir:reuse_wait"), "weir:reuse_wait: an option")):
            self.assertIn(named, self.call(script, *words, status=2, fake=False)[1], words)


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
        for allocator, held in (("torch", 20), ("expandable", 17), ("weir", 16)):
            words = ("gpt2", "--allocator", allocator, "--cap")
            self.assertIn("out of memory", json.loads(self.call(RUN, *words, held - 1, status=torch_run.REFUSED)[0])["refused"])
            self.call(RUN, *words, held)

    def test_weirs_options_are_weirs_to_judge(self):
        self.assertEqual(self.one("--allocator", "weir", "--option", "thread_cache=0")["options"], {"thread_cache": "0"})
        said, _ = self.call(RUN, "gpt2", "--allocator", "weir", "--option", "reuse_wit=0", status=1)
        self.assertIn("no option reuse_wit", json.loads(said)["failed"])

    def test_without_a_gpu_nothing_is_measured(self):
        self.assertIn("no GPU", self.call(RUN, "bert", status=1, FAKE_GPU="none")[0])


class Tables(Case):
    def test_what_is_held_and_the_smallest_cap_that_ran(self):
        rows, said, kept = self.table("--programs", "bert", "--steps", 40, "--rounds", 2)
        self.assertIn("bert: 16 MiB requested at the peak, 2 rounds", said)
        found = {name: (row[2], row[3], row[4]) for (_, name), row in rows.items()}
        self.assertEqual(found, {"PyTorch": ("20 (1.250)", "0", "20 (1.2)"), "PyTorch, expandable segments": ("17 (1.062)", "0", "17 (1.005)"),
                                 "weir.torch": ("16 (1.000)", "0", "17 (1.005)")})
        self.assertEqual([one["ratio"] for one in kept["tries"] if one["variant"] == "torch"], [1.07, 1.3, 1.15, 1.2])

    def test_turns_are_of_the_same_steps(self):
        _, _, kept = self.table("--programs", "bert", "--steps", 40, "--rounds", 2, "--caps", "", "--variants", "torch", "weir:reuse_wait=0")
        variants = kept["programs"][0]["variants"]
        self.assertEqual([one["variant"] for one in variants], ["torch", "weir:reuse_wait=0"])
        for one in variants:
            self.assertEqual((len(one["ms"]), len(one["turns"])), (80, 2))
            self.assertAlmostEqual(sum(map(sum, one["turns"])), sum(one["ms"]), places=6)
        self.assertEqual(*([len(turns) for turns in one["turns"]] for one in variants))

    def test_both_loops_under_what_they_do_not_hold_alone(self):
        rows, said, _ = self.table("--programs", "gpt2,bert,loops", "--steps", 10, "--rounds", 1, "--caps", "")
        self.assertIn(("loops", "weir:budget=30MiB"), rows)  # three quarters of two times 20 MiB
        self.assertIn("loops: alone they hold 40 MiB with torch; together, over that: {'torch': '0.500'", said)
        self.assertIn("loops: alone they hold 32 MiB with weir;", said)
        self.assertRegex(said, r"loops: weir:budget=30MiB takes \d")

    def test_a_program_that_fails_leaves_the_others(self):
        rows, said, _ = self.table("--programs", "gpt2,bert,llama", "--steps", 2, "--rounds", 1, "--caps", "", status=1, FAKE_BROKEN="bert")
        self.assertTrue(rows["gpt2", "weir.torch"][2] and rows["llama", "weir.torch"][2])
        self.assertEqual(rows["bert", "PyTorch"][0], "failed: bert: RuntimeError: this program is broken")
        self.assertEqual(len(re.findall(r"^FAILED bert, ", said, re.M)), 3)

    def test_when_the_time_is_over_it_prints_what_it_has(self):
        rows, said, _ = self.table("--programs", "gpt2,bert", "--minutes", 0)
        self.assertEqual({row[0] for row in rows.values()}, {"the time was over"})
        self.assertEqual(len(rows), 6)
        self.assertNotIn("FAILED", said)


class Figures(unittest.TestCase):
    def test_the_smallest_cap_is_found_in_four_tries(self):
        for least in (*programs.RATIOS, 9):
            tried = []
            found = programs.smallest(lambda ratio, least=least, tried=tried: tried.append(ratio) or ratio >= least)
            self.assertEqual(found, least if least < 9 else None)
            self.assertLessEqual(len(tried), 4)

    def test_the_median_is_below_its_bound_19_times_of_20(self):
        self.assertIsNone(programs.at_most([1, 1, 1, 1]))
        self.assertEqual(programs.at_most([5, 1, 3, 2, 4]), 5)  # 1 - 2 ** -5 is more than 0.95
        chance = random.Random(7)
        for count in (8, 33):
            held = sum(programs.at_most([chance.lognormvariate(0, 1) for _ in range(count)]) >= 1 for _ in range(2000))
            wanted = next(p for k in range(count) if (p := sum(math.comb(count, i) for i in range(k + 1)) / 2 ** count) >= 0.95)
            self.assertAlmostEqual(held / 2000, wanted, delta=0.02)

    def test_every_one_comes_first(self):
        orders = [programs.order_of(["a", "b", "c"], turn) for turn in range(6)]
        self.assertEqual(orders, [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["c", "b", "a"], ["a", "c", "b"], ["b", "a", "c"]])

    def test_quotients_are_of_turns_that_both_have(self):
        self.assertEqual(programs.quotients([[2, 4], [9]], [[1, 2, 3], [3]]), [2, 2, 3])


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed here")
class Processor(Case):
    def test_each_program_runs(self):
        for program in torch_run.STEPS:
            if program == "compiled" or program == "rcnn" and not importlib.util.find_spec("torchvision"):
                continue  # compiled takes a compiler, and a minute
            said, _ = self.call(RUN, program, "--device", "cpu", "--small", "--warm", 0, "--steps", 2, fake=False)
            run = json.loads(said)
            self.assertEqual((run["program"], len(run["ms"]), run["memory"]), (program, 2, {}))


if __name__ == "__main__":
    unittest.main()
