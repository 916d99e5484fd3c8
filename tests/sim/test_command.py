"""weir simulate, from the outside: its words, its answer, its exit status."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))
import harness

BUGS = ("early-reuse", "drop-wait", "unmap-under-use", "lost-reader", "free-under-use")


class Simulate(harness.Case):
    def test_nothing_found(self):
        answer = self.weir_json("simulate", "--steps", 20000, "--seed", 5, "--clients", 3, "--streams", 9)
        self.assertEqual((answer["steps"], answer["violations"], answer["first_violation"]), (20000, 0, None))
        self.assertGreater(answer["ladder"]["fit"], 0)
        self.assertGreater(answer["faults"], 0)
        parts = answer["resources"]
        self.assertEqual(sum(part["steps"] for part in parts), 20000)
        self.assertEqual(sum(part["violations"] for part in parts), 0)
        self.assertLessEqual({"mapped", "segments", "direct", "async"}, {part["resource"] for part in parts})
        one = self.weir_json("simulate", "--steps", 3000, "--resource", "log(direct)")
        self.assertEqual(one["resources"], [{"resource": "log(direct)", "steps": 3000, "violations": 0, "ladder": one["ladder"]}])
        summed = {rung: sum(part["ladder"][rung] for part in parts) for rung in answer["ladder"]}
        self.assertEqual(summed, answer["ladder"])
        self.assertNotIn("script", answer)
        again = self.weir_json("simulate", "--steps", 20000, "--seed", 5, "--clients", 3, "--streams", 9)
        self.assertEqual(again["ladder"], answer["ladder"])
        self.assertIn("nothing found", self.weir("simulate", "--steps", 1000, "--no-faults", "--budget", "20MiB")[0])

    def test_planted_bugs_are_found_and_replayed(self):
        for bug in BUGS:
            answer = self.weir_json("simulate", "--plant", bug, "--steps", 100000)
            self.assertEqual(answer["plant"], bug)
            self.assertGreater(answer["violations"], 0)
            script = self.write("script", answer["script"])
            again = self.weir_json("simulate", "--script", script)
            self.assertEqual(again["first_violation"], answer["first_violation"])
            # Without the bug the same steps find nothing.
            sound = self.write("sound", answer["script"].replace(f" plant={bug}", ""))
            self.assertEqual(self.weir_json("simulate", "--script", sound)["violations"], 0)

    def test_every_seed_is_one(self):
        for seed in (0, 2**31, 2**63, 2**64 - 7, 2**64 - 1):
            self.assertEqual(self.weir_json("simulate", "--steps", 200, "--seed", seed)["violations"], 0)
        for seed in (2**64, 2**64 + 3, 10 * 2**64, "-1", "1.0", ""):
            self.assertIn(f"--seed {seed}: a whole number", self.weir("simulate", "--seed", str(seed), status=2)[1])

    def test_a_planted_bug_that_is_not_found(self):
        self.assertIn("was not found", self.weir("simulate", "--plant", "lost-reader", "--steps", 1, status=1)[1])

    def test_what_users_do_wrong_is_found(self):
        script = self.write("script", "world\nclient\nstream stream=1\nallocate bytes=1 flags=8\n")
        self.assertIn("answer", self.weir("simulate", "--script", script, status=1)[1])

    def test_bad_usage(self):
        for words in (("--steps", "0"), ("--steps", "x"), ("--clients", "65"), ("--streams", "63"), ("--budget", "1"),
                      ("--plant", "nothing"), ("--resource", "none"), ("word",), ("--seed",), ("--json=1",)):
            error = self.weir("simulate", *words, status=2)[1]
            self.assertRegex(error, r"^weir: .*'weir simulate --help'\n$")
        self.assertIn("usage: weir simulate", self.weir("simulate", "--help")[0])
        self.assertIn("nowhere", self.weir("simulate", "--script", "nowhere", status=1)[1])
        self.assertIn("line 2", self.weir("simulate", "--script", self.write("bad", "world\nfly\n"), status=1)[1])


if __name__ == "__main__":
    unittest.main()
