"""A million random steps in an optimised build, from one seed: over all resources, on every rung of the ladder, with
nothing found."""

import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))
import harness

STEPS = 1_000_000
SEED = os.environ.get("WEIR_TEST_SEED", "1")
EACH = 50  # from this seed
RUNGS = ("fit", "thread_cached", "completed", "spare", "create", "remap", "order", "pressure", "wait")
BASES = ("mapped", "segments", "direct", "async")


class Steps(harness.Case):
    def test_nothing_is_found(self):
        answer = self.weir_json("simulate", "--steps", STEPS, "--seed", SEED, "--streams", 8, "--clients", 4)
        self.assertEqual((answer["steps"], answer["violations"], answer["first_violation"]), (STEPS, 0, None))
        self.assertEqual(answer["user_errors"], 0)
        parts = {part["resource"]: part["steps"] for part in answer["resources"]}
        self.assertEqual(sum(parts.values()), STEPS)
        self.assertGreaterEqual(min(parts.values()), STEPS // 100)
        for base in BASES:
            self.assertGreaterEqual(sum(steps for stack, steps in parts.items() if base in stack), STEPS // 10, base)
        for adaptor in ("guard(", "log("):
            self.assertTrue(any(adaptor in stack for stack in parts), adaptor)
        self.assertGreater(min(answer["operations"].values()), 0)
        self.assertGreater(answer["faults"], 0)
        self.check_ladder(answer)

    def check_ladder(self, answer):
        """The allocator is `mapped`; what adaptors keep back is asked for in the stacks that have some."""
        mapped = next(part["ladder"] for part in answer["resources"] if part["resource"] == "mapped")
        for rung in RUNGS:
            self.assertGreaterEqual(mapped[rung], EACH, rung)
        self.assertGreaterEqual(answer["ladder"]["kept_released"], EACH)


if __name__ == "__main__":
    unittest.main()
