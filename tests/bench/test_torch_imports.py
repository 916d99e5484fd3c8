#!/usr/bin/env python3
"""bench/torch_imports.py: its words, and orders of imports over tests/bench/fake."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
SCRIPT, FAKE = SOURCE / "bench/torch_imports.py", SOURCE / "tests/bench/fake"
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPT.parent))

import torch_imports as imports  # noqa: E402


class Imports(unittest.TestCase):
    def call(self, *words, status=0, **environment):
        """What it said, and what was kept as JSON."""
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder) / "all.json"
            line = [sys.executable, "-B", SCRIPT, "--package", FAKE, "--json", kept, "--repeats", 1, *words]
            done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=300,
                                  env={**os.environ, "PYTHONPATH": str(FAKE), **environment})
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            return done.stdout, json.loads(kept.read_text()) if kept.exists() else None

    def test_help_and_wrong_words(self):
        self.assertIn("--repeats", self.call("--help")[0])
        self.call("--at-once", 0, status=2)

    def test_each_order_has_its_times(self):
        said, kept = self.call()
        for order in ("weir", "torch, tensor", "torch, weir.torch, use, tensor", "weir, torch, weir.torch, use, tensor"):
            self.assertIn(f"| {order} |", said)
            self.assertEqual(", ".join(kept["runs"][order][0]), order)
        for name in ("weir", "weir.torch", "use"):
            self.assertRegex(said, rf"(?m)^(ok  |MISS) {name}: at most \d")
        if not importlib.util.find_spec("cupy"):
            self.assertIn("left out: cupy, torch, weir.torch, use, tensor: no cupy here", said)

    def test_an_order_that_does_not_work_is_a_failure(self):
        said, kept = self.call(status=1, FAKE_BROKEN="ones")
        self.assertIn("FAILED torch, tensor: status 1:", said)
        self.assertIn("a sum is wrong", said)
        self.assertNotIn("weir", kept["failures"])
        said, kept = self.call(status=1, FAKE_BROKEN="use")
        self.assertIn("the tensor is no memory of weir's client", said)
        self.assertNotIn("FAILED torch, tensor", said)

    def test_a_median_is_of_runs_that_worked(self):
        self.assertEqual(imports.median([{"use": 3}, "status 1", {"use": 1}, {"use": 2}], "use"), 2)
        self.assertIsNone(imports.median(["status 1", {"weir": 1}], "use"))

    def test_when_the_time_is_over_it_is_no_failure(self):
        said, kept = self.call("--seconds", 0)
        self.assertIn("| weir |", said)
        self.assertEqual({failure.rpartition(": ")[2] for failure in kept["failures"]}, {"the time was over"})


if __name__ == "__main__":
    unittest.main()
