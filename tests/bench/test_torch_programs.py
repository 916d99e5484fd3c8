#!/usr/bin/env python3
"""bench/torch_programs.py and what it stands on: words and errors, which need no PyTorch; runs, turns, caps and answers over
tests/bench/fake; the programs on the processor, where PyTorch is installed."""

import importlib.util
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
TABLE, RUN, FAKE = SOURCE / "bench/torch_programs.py", SOURCE / "bench/torch_run.py", SOURCE / "tests/bench/fake"
sys.dont_write_bytecode = True
sys.path.insert(0, str(TABLE.parent))

import torch_answers as answers  # noqa: E402
import torch_programs as programs  # noqa: E402
import torch_run  # noqa: E402
import torch_table as tables  # noqa: E402


def of_lines(said):
    """Rows of the first table, by column."""
    said = said[said.index(next(line for line in said if line.startswith("|"))):]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said[:said.index("")]]
    return {(row[0], row[1]): dict(zip(COLUMNS, row[2:])) for row in rows[2:]}


COLUMNS = ("ms", "over", "over weir", "answers", "held", "calls", "cap")


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
            return of_lines(said.splitlines()), said, json.loads(kept.read_text())


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
                                     (RUN, ("rcnn+graph",), "rcnn+graph"), (TABLE, ("--gpus", "0,"), "--gpus"),
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
        found = {name: (row["held"], row["calls"], row["cap"]) for (_, name), row in rows.items() if not name.startswith("weir at")}
        self.assertEqual(found, {"PyTorch": ("20 (1.250)", "0", "20 (1.2)"), "PyTorch again": ("20 (1.250)", "0", ""),
                                 "expandable segments": ("17 (1.062)", "0", "17 (1.005)"), "weir.torch": ("16 (1.000)", "0", "17 (1.005)")})
        self.assertEqual([one["ratio"] for one in kept["tries"] if one["variant"] == "torch"], [1.05, 1.2, 1.1, 1.15])
        self.assertEqual([one["ratio"] for one in kept["tries"] if one["variant"] == "weir"], [1.005])

    def test_time_under_caps_is_that_of_the_same_turns_without(self):
        rows, said, kept = self.table("--programs", "bert", "--steps", 40, "--rounds", 3, "--variants", "torch", "weir")
        capped = {name: row for (_, name), row in rows.items() if name.startswith("weir at")}
        self.assertEqual(list(capped), ["weir at 1.005", "weir at 1.0075", "weir at 1.01"])
        for row in capped.values():
            self.assertRegex(row["over weir"], r"^\d\.\d{3} \(at most \d\.\d{3}\), \d+$")
            self.assertEqual((row["held"], row["answers"]), ("16 (1.000)", "same"))
        self.assertEqual(rows["bert", "weir.torch"]["over weir"], "")
        rounds = {one["variant"]: one["rounds"] for one in kept["programs"][0]["variants"]}
        self.assertEqual(sorted(rounds.pop(name) for name in capped), [[2], [2], [2, 3]])  # one of them is worth further time
        self.assertEqual(rounds, {"torch": [1, 2, 3], "weir": [1, 2, 3]})
        self.assertIn("| bert | ", said.splitlines()[-1])
        self.assertEqual(kept["table"], said.splitlines())

    def test_turns_are_of_the_same_steps(self):
        _, _, kept = self.table("--programs", "bert", "--steps", 40, "--rounds", 2, "--caps", "", "--variants", "torch", "weir:reuse_wait=0")
        variants = kept["programs"][0]["variants"]
        self.assertEqual([one["variant"] for one in variants], ["torch", "weir:reuse_wait=0"])
        for one in variants:
            self.assertEqual((len(one["ms"]), len(one["turns"])), (80, 2))
            self.assertGreaterEqual(min(map(len, one["turns"])), programs.TURNS)
            self.assertAlmostEqual(sum(map(sum, one["turns"])), sum(one["ms"]), places=6)
        self.assertEqual(*([len(turns) for turns in one["turns"]] for one in variants))

    def test_both_loops_under_what_they_do_not_hold_alone(self):
        rows, said, _ = self.table("--programs", "gpt2,bert,loops", "--steps", 10, "--rounds", 1, "--caps", "")
        self.assertIn(("loops", "weir:budget=30MiB"), rows)  # three quarters of two times 20 MiB
        self.assertIn("loops: alone they hold 40 MiB with torch; together, over that: {'torch': '0.500'", said)
        self.assertIn("loops: alone they hold 32 MiB with weir;", said)
        self.assertRegex(said, r"loops: weir:budget=30MiB takes \d")

    def test_a_program_that_fails_leaves_the_others(self):
        rows, said, _ = self.table("--programs", "gpt2,bert,llama", "--steps", 2, "--rounds", 1, "--caps", "", "--variants", "torch", "weir",
                                   status=1, FAKE_BROKEN="bert")
        self.assertTrue(rows["gpt2", "weir.torch"]["held"] and rows["llama", "weir.torch"]["held"])
        self.assertEqual(rows["bert", "PyTorch"]["ms"], "failed: bert: RuntimeError: this program is broken")
        self.assertEqual(len(re.findall(r"^FAILED bert, ", said, re.M)), 2)

    def test_two_gpus_share_the_programs(self):
        rows, _, kept = self.table("--programs", "gpt2,bert,llama,gpt2+compile", "--steps", 2, "--rounds", 1, "--caps", "", "--gpus", "0,1",
                                   "--variants", "torch", "weir")
        self.assertEqual({name for name, _ in rows}, {"gpt2", "bert", "llama", "gpt2+compile"})
        self.assertTrue(all(row["held"] for row in rows.values()), rows)
        self.assertEqual([one["program"] for one in kept["programs"]], ["gpt2", "bert", "llama", "gpt2+compile"])

    def test_when_the_time_is_over_it_prints_what_it_has(self):
        rows, said, _ = self.table("--programs", "gpt2,bert", "--minutes", 0)
        self.assertEqual({row["ms"] for row in rows.values()}, {"the time was over"})
        self.assertEqual(len(rows), 8)
        self.assertNotIn("FAILED", said)

    def test_ended_early_it_prints_what_it_has(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder) / "all.json"
            line = [sys.executable, "-B", TABLE, "--programs", "gpt2,bert", "--steps", 40, "--package", FAKE, "--json", kept]
            process = subprocess.Popen([str(word) for word in line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env={**os.environ, "PYTHONPATH": str(FAKE)})
            for line in process.stderr:  # a round of each
                if line.startswith("bert:"):
                    break
            self.assertEqual(json.loads(kept.read_text())["programs"][0]["program"], "gpt2")
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=100)
        self.assertEqual(process.returncode, 0, said)
        self.assertTrue(all(row["held"] for (_, name), row in of_lines(said.splitlines()).items() if "at" not in name), said)


class Answered(Case):
    def wrong(self, what, *words, status=1):
        rows, said, kept = self.table("--programs", "bert", "--steps", 4, "--rounds", 1, "--caps", "", *words, status=status, FAKE_WRONG=what)
        return rows, re.findall("^FAILED (.*)", said, re.M), kept

    def test_a_wrong_answer_is_a_failure(self):
        for what, told in (("weir:0.5", "WRONG: 1.4e-01"), ("weir:nan", "WRONG: not finite"), ("expandable:0.5", "WRONG: 1.4e-01")):
            rows, failed, kept = self.wrong(what)
            name = what.partition(":")[0]
            self.assertEqual(len(failed), 1, failed)
            self.assertTrue(failed[0].startswith(f"bert, {name}: answers {told}"), failed)
            self.assertEqual(kept["failures"], failed)
            self.assertTrue(rows["bert", torch_run.ALLOCATORS[name]]["answers"].startswith(told))
            self.assertEqual(rows["bert", "PyTorch again"]["answers"], "same")

    def test_pytorch_itself_is_wrong_where_it_is_not_finite(self):
        _, failed, _ = self.wrong("torch:nan", "--variants", "torch")
        self.assertEqual(len(failed), 1)

    def test_rounding_is_told_and_no_failure(self):
        rows, failed, _ = self.wrong("weir:0.001", status=0)
        self.assertEqual(failed, [])
        self.assertRegex(rows["bert", "weir.torch"]["answers"], r"^within \d\.\de-04$")

    def test_a_wrong_answer_under_a_cap_alone_is_one(self):
        found = programs.Program("bert", [programs.Variant("torch"), programs.Variant("weir")])
        found.add_answers(found.base, [[1.0], [2.0]])
        found.answers.add("weir under caps", [[1.0], [2.5]], False)
        self.assertEqual([line.partition(":")[0] for line in tables.wrong([found])], ["bert, weir under caps"])


class Differences(unittest.TestCase):
    def test_tokens_are_the_same_or_not(self):
        self.assertEqual(answers.of_step([1, 2, 3, 4], [1, 2, 3, 4]), 0)
        self.assertEqual(answers.of_step([1, 2, 3, 4], [1, 2, 3, 5]), 0.25)
        self.assertEqual(answers.verdict("llama", 1 / 320, 0), answers.WRONG)

    def test_numbers_differ_by_a_part_of_the_largest(self):
        self.assertAlmostEqual(answers.of_step([0.0, 10.0], [0.01, 10.0]), 0.001)
        self.assertEqual(answers.of_step([0.0], [0.0]), 0)

    def test_what_is_not_finite_or_of_another_size_differs_without_end(self):
        for mine in ([math.nan], [math.inf], [1.0, 1.0], []):
            self.assertEqual(answers.of_step(mine, [1.0]), math.inf)
        self.assertEqual(answers.of_step([math.nan], [math.nan]), math.inf)

    def test_one_wrong_step_among_many_is_found(self):
        steps = [[float(i)] for i in range(1, 40)]
        other = [list(step) for step in steps]
        other[17][0] *= 1.1
        self.assertGreater(answers.unlike(steps, other), 0.09)

    def test_what_pytorch_differs_from_itself_by_is_no_mistake(self):
        found = answers.Answers("gpt2")
        for variant, number, native in (("torch", 1.0, True), ("again", 1.02, True), ("weir", 0.95, False)):
            found.add(variant, [[number]], native)
        self.assertEqual(found.verdict("weir"), answers.ROUNDED)
        found.add("weir", [[0.9]], False)  # in a later round
        self.assertEqual(found.verdict("weir"), answers.WRONG)
        found.add("again", [[math.nan]], True)  # which excuses nothing
        self.assertEqual((found.verdict("weir"), found.verdict("again")), (answers.WRONG, answers.WRONG))

    def test_answers_are_lists_of_numbers(self):
        self.assertEqual(answers.flat(1.5), [1.5])


class Figures(unittest.TestCase):
    def test_the_smallest_cap_is_found_in_four_tries(self):
        for least in (*tables.RATIOS, 9):
            tried = []
            found = tables.smallest(lambda ratio, least=least, tried=tried: tried.append(ratio) or ratio >= least)
            self.assertEqual(found, least if least < 9 else None)
            self.assertLessEqual(len(tried), 4)

    def test_the_median_is_below_its_bound_19_times_of_20(self):
        self.assertIsNone(tables.at_most([1, 1, 1, 1]))
        self.assertEqual(tables.at_most([5, 1, 3, 2, 4]), 5)  # 1 - 2 ** -5 is more than 0.95
        chance = random.Random(7)
        for count in (8, 33):
            held = sum(tables.at_most([chance.lognormvariate(0, 1) for _ in range(count)]) >= 1 for _ in range(2000))
            wanted = next(p for k in range(count) if (p := sum(math.comb(count, i) for i in range(k + 1)) / 2 ** count) >= 0.95)
            self.assertAlmostEqual(held / 2000, wanted, delta=0.02)

    def test_every_one_comes_first(self):
        orders = [programs.order_of(["a", "b", "c"], turn) for turn in range(6)]
        self.assertEqual(orders, [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["c", "b", "a"], ["a", "c", "b"], ["b", "a", "c"]])

    def test_quotients_are_of_turns_that_both_have(self):
        self.assertEqual(tables.quotients({1: [2, 4], 3: [9]}, {1: [1, 2, 3], 2: [1], 3: [3]}), [2, 2, 3])

    def test_the_least_is_tried_first_where_it_is_expected(self):
        for least, wanted in ((1.005, [1.005]), (1.01, [1.005, 1.05, 1.015, 1.0075, 1.01])):
            tried = []
            self.assertEqual(tables.smallest(lambda ratio, least=least, tried=tried: tried.append(ratio) or ratio >= least, True), least)
            self.assertEqual(tried, wanted)

    def test_gpus_get_about_the_same(self):
        names = list(torch_run.STEPS)
        lanes = programs.shared(names, 2)
        self.assertEqual(sorted(lanes[0] + lanes[1]), sorted(names))
        self.assertEqual(sum({"gpt2", "bert", "loops"} <= set(lane) for lane in lanes), 1)
        costs = [sum(programs.COST.get(name, programs.ELSE) for name in lane) for lane in lanes]
        self.assertLess(max(costs), 1.2 * min(costs))
        self.assertEqual(programs.shared(["bert"], 2), [["bert"], []])
        self.assertEqual(programs.parts_of(list(range(8)), 2), [[0, 1, 2, 3], [4, 5, 6, 7]])
        self.assertEqual(programs.parts_of([0, 1], 2), [[], []])

    def test_a_kind_stands_for_its_programs(self):
        self.assertEqual(programs.expanded("bert,compile,bert+compile,"), ["bert", "gpt2+compile", "bert+compile", "unet+compile", "llama+compile"])
        self.assertEqual(sorted(programs.expanded("plain,graph,compile")), sorted(torch_run.STEPS))

    def test_the_widest_bound_is_next(self):
        torch, weir = programs.Variant("torch"), programs.Variant("weir")
        def program(name, mine):
            found = programs.Program(name, [torch, weir])
            found.rounds, found.turns[torch], found.turns[weir] = 1, {1: [1.0] * len(mine)}, {1: mine}
            return found
        narrow, wide, few = program("bert", [1.0] * 9 + [1.01]), program("gpt2", [1.0, 1.2] * 5), program("llama", [1.0])
        self.assertEqual(max((narrow, wide, few), key=programs.Program.width), few)
        self.assertEqual(max((narrow, wide), key=programs.Program.width), wide)
        expandable = programs.Variant("expandable")
        few.add(expandable)
        self.assertEqual(few.going(), [torch, weir, expandable])
        few.turns[expandable] = {1: [1.0]}
        self.assertEqual(few.going(), [torch, weir])
        few.wrong[weir] = "failed: why"
        self.assertEqual(few.width(), 0)


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed here")
class Processor(Case):
    def test_each_program_runs(self):
        for program in torch_run.STEPS:
            if "+compile" in program or program == "rcnn" and not importlib.util.find_spec("torchvision"):
                continue  # the first take a compiler, and minutes
            said, _ = self.call(RUN, program, "--device", "cpu", "--small", "--warm", 0, "--steps", 2, fake=False)
            run = json.loads(said)
            self.assertEqual((run["program"], len(run["ms"]), run["memory"]), (program, 2, {}))
            self.assertEqual(len(run["answers"]), 2)
            self.assertTrue(answers.finite(run["answers"]) and all(run["answers"]), run["answers"])
            again = json.loads(self.call(RUN, program, "--device", "cpu", "--small", "--warm", 1, "--steps", 1, fake=False)[0])
            self.assertNotEqual(answers.verdict(program, answers.unlike(run["answers"], again["answers"]), 0), answers.WRONG)


if __name__ == "__main__":
    unittest.main()
