#!/usr/bin/env python3
"""scripts/gpu_torch_tests.py over a file of tests of its own: what it counts, and that neither a crash nor a hang loses the others."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True

import gpu_torch_tests as runner  # noqa: E402

TESTS = '''
import os, time, unittest
WEIR = bool(os.environ.get("WEIR_TORCH_USE"))
ONCE = os.path.join(os.path.dirname(__file__), "once")

class TestMemory(unittest.TestCase):
    def test_memory_passes(self):
        pass
    def test_memory_fails_on_weir(self):
        self.assertFalse(WEIR, "the first line\\nthe second")
    def test_memory_fails_natively(self):
        self.assertTrue(WEIR)
    def test_memory_fails_with_both(self):
        raise ValueError
    def test_pool_is_skipped(self):
        self.skipTest("not here")
    def test_alloc_in_parts(self):
        for i in range(3):
            with self.subTest(i):
                self.assertFalse(WEIR and i == 1)
    def test_stream_kills_its_process(self):
        if WEIR:
            print("what it said last", flush=True)
            os.abort()
    def test_event_hangs(self):
        if WEIR:
            time.sleep(600)
    def test_graph_ends_its_process(self):
        if WEIR:
            os._exit(7)
    def test_segment_fails_beside_others(self):
        if WEIR and not os.path.exists(ONCE):
            open(ONCE, "w").close()
            self.fail("others had the memory")
    def test_other(self):
        raise ValueError

class TestGraphs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if WEIR:
            raise OSError("nothing of this class")
    def test_a(self):
        pass
    def test_b(self):
        pass

class TestLast(unittest.TestCase):
    def test_last_stream(self):
        pass
'''
ON_WEIR = {
    "TestGraphs.test_a": "its class: OSError: nothing of this class", "TestGraphs.test_b": "its class: OSError: nothing of this class",
    "TestMemory.test_alloc_in_parts": "AssertionError: True is not false", "TestMemory.test_event_hangs": "hangs: nothing ended for 3 s",
    "TestMemory.test_graph_ends_its_process": "its process ended with 7: it said nothing",
    "TestMemory.test_memory_fails_on_weir": "AssertionError: True is not false : the first line / the second",
    "TestMemory.test_stream_kills_its_process": "killed by SIGABRT: what it said last"}


class Runner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_over(self, text, *words):
        tests, kept = self.folder / "test", self.folder / "all.json"
        tests.mkdir(exist_ok=True)
        (tests / "test_some.py").write_text(text)
        line = [sys.executable, "-B", SCRIPTS / "gpu_torch_tests.py", tests, "--json", kept, "--limit", 3, "--start", 30, *words]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=1000, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, json.loads(kept.read_text())

    def test_everything_is_counted_whatever_ends_a_process(self):
        for batch in (3, 20):
            with self.subTest(batch):
                (self.folder / "test/once").unlink(missing_ok=True)
                said, kept = self.run_over(TESTS, "--batch", batch)
                self.assertIn("14 tests listed in 1 files, 13 chosen, 13 run on both sides, 1 skipped by PyTorch itself, "
                              "2 failed natively (1 of them pass on weir)", said)
                self.assertIn("passed natively 10, of these on weir 3, ratio 0.3000", said)
                told = dict(line.removeprefix("WEIR failed ").split(": ", 1) for line in said.splitlines() if line.startswith("WEIR"))
                self.assertEqual(told, ON_WEIR)
                self.assertFalse(kept["listed"]["test_some.py"]["TestMemory.test_other"])
                self.assertEqual(kept["results"]["weir"]["test_some.py:TestMemory.test_segment_fails_beside_others"]["went"], "passed")

    def test_a_file_that_cannot_be_loaded_is_told(self):
        said, _ = self.run_over("import nothing_of_this_name\n")
        self.assertRegex(said, "UNREAD test_some.py: status 1: ModuleNotFoundError: .*nothing_of_this_name")
        self.assertIn("passed natively 0, of these on weir 0, ratio -", said)

    def test_without_time_nothing_is_run_and_that_is_said(self):
        said, _ = self.run_over(TESTS, "--seconds", 4)
        self.assertIn(" 0 run on both sides", said)

    def test_weir_is_used_as_soon_as_pytorch_is_imported_if_that_is_asked_for(self):
        source = SCRIPTS.parent
        for asked, allocator in ((None, "Own"), ("1", "Weir")):
            paths = os.pathsep.join(str(source / path) for path in ("tests/python/torch_use", "tests/bench/fake"))
            env = {**os.environ, "PYTHONPATH": paths, **({"WEIR_TORCH_USE": asked} if asked else {})}
            done = subprocess.run([sys.executable, "-B", "-c", "import json, torch; print(type(torch.chosen).__name__)"], env=env,
                                  capture_output=True, text=True, timeout=1000, check=True)
            self.assertEqual(done.stdout.strip(), allocator)

    def test_the_rule_takes_what_is_about_memory(self):
        for name in ("TestCuda.test_record_stream", "TestCuda.test_out_of_memory", "TestMemPool.test_anything", "TestCuda.test_graph_capture_oom",
                     "CudaGraphTreeTests.test_mutation", "TestCudaOptimsCUDA.test_graph_optims_Adam_cuda_float32"):
            self.assertTrue(runner.chosen(name), name)
        for name in ("TestCuda.test_huge_index", "TestCuda.test_pinned_memory_empty_cache", "TestCudaAutocast.test_autocast_rnn",
                     "TestCudaOptimsCPU.test_graph_optims_Adam_cpu_float32", "TestCudaMallocAsync.test_power_draw"):
            self.assertFalse(runner.chosen(name), name)


if __name__ == "__main__":
    unittest.main()
