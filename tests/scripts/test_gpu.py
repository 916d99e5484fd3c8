#!/usr/bin/env python3
"""Tests of what scripts/gpu-check, scripts/gpu-onnx and scripts/gpu-python stand on: steps, limits, summaries, packs, and models without weights."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import signal
import sys
import tarfile
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "scripts"))
sys.dont_write_bytecode = True

import gpu_onnx_steps as onnx_steps  # noqa: E402
import gpu_steps as steps  # noqa: E402
import gpu_weights as weights  # noqa: E402



def script(name):
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(SOURCE / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


gpu_check, gpu_onnx, gpu_python = script("gpu-check"), script("gpu-onnx"), script("gpu-python")
CMOCKA = "echo '[ RUN      ] a'; echo '[  PASSED  ] 4 test(s).'; echo '[  SKIPPED ] 1 test(s), listed below:'; "


class Steps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        steps.results.clear()
        self.answers = self.folder / "out/name.tgz"
        steps.begin(steps.Place(self.folder, 3600, {"OF_ALL": "1"}, answers=self.answers))
        self.shown = io.StringIO()
        shown = contextlib.redirect_stdout(self.shown)
        shown.__enter__()
        self.addCleanup(shown.__exit__, None, None, None)

    def shell(self, what, text, **more):
        return steps.suite(what, ["sh", "-c", text], **more)

    def end(self):
        with self.assertRaises(SystemExit) as left:
            steps.summary("name")
        return left.exception.code

    def answered(self):
        """What would be there, if nothing came after this moment: text by name."""
        with tarfile.open(self.answers) as archive:
            return {m.name: archive.extractfile(m).read().decode() for m in archive.getmembers() if m.isfile()}

    def test_how_it_went(self):
        self.assertEqual(self.shell("good", CMOCKA + "test $OF_ALL$OWN = 12", env={"OWN": "2"}), 0)
        self.assertEqual(self.shell("none", "echo there is no GPU; exit 77"), 77)
        self.assertEqual(self.shell("bad", "echo '[ RUN      ] a'; echo why; exit 3"), 3)
        self.assertEqual([r[:2] for r in steps.results], [("passed", "good"), ("skipped", "none"), ("failed", "bad")])
        self.assertIn("4 tests, 1 more skipped", steps.results[0][2])
        self.assertEqual(steps.results[1][2], "there is no GPU")
        self.assertEqual(steps.results[2][2:], ("exit status 3", ["why"]))
        self.assertIn("exit status 3", self.answered()["name/bad.log"])
        self.assertEqual(self.end(), 1)
        self.assertIn("name: 1 passed, 1 failed, 1 skipped", self.shown.getvalue())
        self.assertEqual(sorted(self.answered()), ["name/bad.log", "name/console.txt", "name/good.log", "name/none.log"])
        self.assertIn("name: 1 passed", self.answered()["name/console.txt"])
        self.assertEqual([path.name for path in self.answers.parent.iterdir()], ["name.tgz"])

    def test_answers_that_differ_fail_unless_rounding_chose(self):
        for said, went in (('{"same": true, "ties": 0, "faults": 0}', "passed"),
                           ('{"same": false, "ties": 2, "faults": 0, "x": 1}', "passed"),
                           ('{"same": false, "kv": 7}', "failed"),
                           ('{"same": false, "ties": 0, "faults": 0}', "failed"),
                           ('{"same": true, "ties": 1, "faults": 3}', "failed"),
                           ('{"same": false, "ties": 1, "faults": 12}', "failed")):
            steps.results.clear()
            self.assertEqual(self.shell("told", f"echo '{said}'"), 0 if went == "passed" else steps.DIFFERS)
            self.assertEqual(steps.results[0][0], went, said)
        self.assertEqual(steps.results[0][2:], ("answers are not the same", ['{"same": false, "ties": 1, "faults": 12}']))

    def test_only_failures_fail(self):
        self.shell("good", "true")
        self.shell("none", "exit 77")
        self.assertEqual(self.end(), 0)

    def test_a_limit_ends_all_that_was_started(self):
        self.ends_at_its_limit("echo said; sleep 3600 & echo $! > child; wait")
        self.assertEqual(steps.results[0][0], "failed")
        self.assertIn("\nsaid\n", self.answered()["name/long.log"])

    def test_a_limit_ends_what_has_a_session_of_its_own(self):
        self.ends_at_its_limit("setsid sh -c 'echo $$ > child; exec sleep 3600' & wait")

    def ends_at_its_limit(self, text):
        """What was started would go on for an hour."""
        self.assertEqual(self.shell("long", text, most=3), steps.TOO_LONG)
        child = int((self.folder / "child").read_text())
        for _ in range(600):  # until somebody has noticed that it ended
            try:
                ended = "Z" in (Path("/proc") / str(child) / "stat").read_text().rsplit(")", 1)[1]
            except OSError:
                ended = True
            if ended:
                break
            time.sleep(0.1)
        self.assertTrue(ended)

    def test_what_stays_behind_is_not_waited_for(self):
        self.assertEqual(self.shell("good", "sleep 3600 & echo $! > child"), 0)
        os.kill(int((self.folder / "child").read_text()), signal.SIGKILL)  # it is still there

    def test_the_time_for_all_is_no_failure_of_a_step(self):
        steps.place.end = time.monotonic() + 4
        self.shell("cut", "sleep 3600")
        self.shell("late", "true")
        self.assertEqual([r[:2] for r in steps.results], [("skipped", "cut"), ("skipped", "late")])
        self.assertIn("was over", steps.results[0][2])

    def test_ended_from_outside_it_still_tells(self):
        threading.Timer(1, steps.end_early).start()
        steps.at_once([lambda i=i: self.shell(f"step {i}", "sleep 3600") for i in range(9)])
        self.assertEqual({r[0] for r in steps.results}, {"skipped"})
        self.assertEqual(len(steps.results), 9)

    def test_an_error_of_the_scripts_is_told_and_ends_nothing(self):
        steps.guarded(lambda: 1 // 0, lambda: self.shell("after", "true"))
        steps.at_once([lambda: {}["none"], lambda: self.shell("beside", "true")])
        self.assertEqual(sorted(r[0] for r in steps.results), ["failed", "failed", "passed", "passed"])
        self.assertIn("ZeroDivisionError", steps.results[0][3][-1])
        self.assertEqual(self.end(), 1)

    def test_a_log_that_does_not_end_is_shortened(self):
        self.shell("long", "echo first; head -c 9000000 /dev/zero | tr '\\0' '\\n'; echo last")
        log = self.answered()["name/long.log"]
        self.assertLess(len(log), steps.LONGEST + 1000)
        self.assertEqual([word in log for word in ("first\n", "and so on", "\nlast\n", "exit status 0")], [True] * 4)

    def test_one_failure_of_the_first_suite_holds_up_nothing(self):
        """But where there is no GPU nothing more is tried."""
        for said, tried in (("failed: no GPU", 0), ("[ RUN      ] a", 1)):
            steps.place.tests.mkdir(exist_ok=True)
            program = steps.place.tests / "test-driver-contract"
            program.write_text(f"#!/bin/sh\necho '{said}'\nexit 1\n")
            program.chmod(0o755)
            names = ("alone", "two_devices", "resources", "encoder", "sanitizers", "bench")
            with contextlib.ExitStack() as stack:
                parts = [stack.enter_context(mock.patch.object(gpu_check, name)) for name in names]
                gpu_check.check_everything()
            self.assertEqual([part.call_count for part in parts], [tried] * 6)

    def measured(self, status, said):
        steps.results.clear()
        with mock.patch.object(steps, "run", return_value=(status, said, 1.0)):
            onnx_steps.measure("hold", self.folder)
        return steps.results[0]

    def test_what_is_measured_is_told_with_what_went_wrong(self):
        trace = "Traceback (most recent call last):\n  File\n     ^^^^\nValueError: why\n"
        self.assertEqual(self.measured(1, trace)[3][-1], "ValueError: why")
        went, _, remark, lines = self.measured(1, '{"part": "x"}\n     held 3 MiB\nMISS a goal\n')
        self.assertEqual((went, lines), ("failed", ["     held 3 MiB", "MISS a goal"]))
        self.assertIn("1 goals missed, 0 runs failed", remark)
        self.assertEqual(self.measured(0, "ok   a goal\n")[::3], ("passed", ["ok   a goal"]))

    def test_a_program_that_ends_in_the_middle_leaves_the_other_runs(self):
        program = self.folder / "program"
        program.write_text("""#!/bin/sh
case $3 in half) printf '{"part": "ha'; echo why >&2; exit 4;; *) echo '{"value": 7}';; esac
""")
        program.chmod(0o755)
        run = gpu_onnx.Runner(mock.Mock(program=program, device="cuda"))
        self.assertEqual(run("weir", "half")["error"], "status 4: why")
        self.assertEqual(run("weir", "whole")["value"], 7)
        self.assertEqual(run.failures, ["half weir : status 4: why"])

    def test_serving_ends_in_time(self):
        for left in range(50, 400):
            serving = onnx_steps.serving_in(left)
            if serving > 5:
                self.assertLessEqual(2.5 * serving + min(serving, 15) + 4 * 5, left)
        self.assertEqual(onnx_steps.serving_in(185), 60)

    def of_torch(self, part, status, said, gpus="0", writes=None, words="--programs bert"):
        steps.results.clear()
        (self.folder / "torch-tests").mkdir(exist_ok=True)
        given = mock.Mock(stub=False, programs=words, tests=None, gpus=gpus)
        with mock.patch.object(steps, "run", return_value=(status, said, 1.0), side_effect=writes) as run, \
                mock.patch.object(gpu_python.importlib.util, "find_spec", return_value=True):
            getattr(gpu_python, part)(given, 120)
        return steps.results[0], run.call_args

    def test_tables_of_pytorch_programs_are_told_whole(self):
        said = "gpt2: torch 40 ms a step\n| program |\n| --- |\n| gpt2 |\n\ngpt2: 16 MiB requested at the peak, 1 rounds\n"
        (went, _, _, lines), call = self.of_torch("programs", 0, said)
        self.assertEqual((went, lines), ("passed", ["| program |", "| --- |", "| gpt2 |", "gpt2: 16 MiB requested at the peak, 1 rounds"]))
        self.assertEqual(call.kwargs["most"], 130)  # it ends by itself before
        self.assertIn(2, call.args[1])
        self.assertEqual(call.args[1][-2:], ["--programs", "bert"])
        self.assertIn("--gpus 0 ", " ".join(map(str, call.args[1])))
        self.assertEqual(self.of_torch("programs", 1, said + "FAILED why\n")[0][3][-1], "FAILED why")
        self.assertEqual(self.of_torch("programs", 2, "usage: words\n")[0][3], ["usage: words"])

    def test_of_programs_that_are_ended_the_table_until_then_is_told(self):
        def ended(*_, **__):
            (steps.place.logs / "programs.json").write_text('{"table": ["| program |", "| gpt2 |"]}')
            return 124, "gpt2: torch 40 ms a step\nended after 120 s\n", 120.0
        self.of_torch("programs", 0, "", writes=ended)
        self.assertEqual([result[0] for result in steps.results], ["failed", "skipped"])
        self.assertEqual(steps.results[1][3], ["| program |", "| gpt2 |"])

    def test_programs_have_all_gpus_unless_some_are_named(self):
        listed = "GPU 0: NVIDIA H200 (UUID: GPU-1)\n  MIG 1g\nGPU 1: NVIDIA H200 (UUID: GPU-2)\n"
        with mock.patch.object(gpu_python.shutil, "which", return_value="nvidia-smi"), mock.patch.dict(os.environ):
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
            _, call = self.of_torch("programs", 0, listed, gpus=None)
            self.assertIn("--gpus 0,1 ", " ".join(map(str, call.args[1])))
            os.environ["CUDA_VISIBLE_DEVICES"] = "GPU-2"
            _, call = self.of_torch("programs", 0, listed, gpus=None)
            self.assertIn("--gpus GPU-2 ", " ".join(map(str, call.args[1])))

    def test_programs_may_be_listed_alone(self):
        self.assertEqual(self.of_torch("programs", 0, "|", words="graph,compile")[1].args[1][-2:], ["--programs", "graph,compile"])

    def test_orders_of_imports_are_told(self):
        said = "| imports |\nMISS use: at most 60 ms\nleft out: cupy: no cupy here\n"
        (went, _, _, lines), call = self.of_torch("imports", 0, said)
        self.assertEqual((went, lines, call.kwargs["most"]), ("passed", said.splitlines(), 130))

    def test_what_fails_on_weir_alone_is_told(self):
        said = "9 tests listed in 1 files\npassed natively 5, of these on weir 4, ratio 0.8\nWEIR failed a.b: why\nmore\n"
        self.assertEqual(self.of_torch("tests", 0, said)[0][3], said.splitlines()[:3])

    def test_parts_leave_the_others_their_time(self):
        steps.place.end = time.monotonic() + 412
        every = ["suites", "tests", "programs"]
        self.assertAlmostEqual(gpu_python.time_for("tests", every), 160, delta=1)
        self.assertAlmostEqual(gpu_python.time_for("tests", ["suites", "tests"]), 400, delta=1)
        self.assertAlmostEqual(gpu_python.time_for("programs", every), 400, delta=1)

    def test_without_time_nothing_is_begun(self):
        steps.place.end = time.monotonic()
        self.shell("late", f"touch {self.folder}/begun")
        self.assertFalse((self.folder / "begun").exists())
        self.assertEqual(steps.results[0][:3], ("skipped", "late", "there is no time left"))

    def test_a_summary_fits_and_keeps_the_failures(self):
        for i in range(200):
            steps.note("passed", f"step number {i}", "it was very good " * 20)
        steps.note("failed", "the one that matters", "exit status 9", [f"line {i} " + "x" * 400 for i in range(60)])
        text, count = steps.write_summary("name")
        self.assertLess(len(text), 12000)
        self.assertEqual(count, {"passed": 200, "failed": 1, "skipped": 0})
        for wanted in ("step number 0\n", "step number 199\n", "the one that matters: exit status 9", "line 59"):
            self.assertIn(wanted, text)

    def test_a_tool_has_to_say_that_there_is_nothing(self):
        tool = self.folder / "compute-sanitizer"
        tool.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ] || [ -z "${1##[0-9a-z]*check}" ] || [ "$1" = 86 ] || [ "$1" = no ];'
                        ' do shift; done\n"$@" || exit\necho "========= ERROR SUMMARY: ${ERRORS:-0 errors}"\n')
        tool.chmod(0o755)
        steps.place.sanitizer = tool
        steps.sanitized("memcheck", "good", ["true"])
        steps.sanitized("racecheck", "bad", ["false"])
        steps.sanitized("memcheck", "no GPU", ["sh", "-c", "echo none; exit 77"])
        tool.write_text("#!/bin/sh\ntrue\n")
        steps.sanitized("memcheck", "silent", ["true"])
        self.assertEqual([r[:2] for r in steps.results], [("passed", "good under memcheck"), ("failed", "bad under racecheck"),
                                                          ("skipped", "no GPU under memcheck"), ("failed", "silent under memcheck")])

    def test_parts_in_order(self):
        self.assertEqual(onnx_steps.in_order(["serve", "new", "speed", "other", "hold"]), ["new", "other", "hold", "speed", "serve"])

    def test_a_pack_comes_out_as_it_went_in(self):
        pack, inside = self.folder / "pack", self.folder / "inside"
        steps.put("/bin/true", inside / "tests/true")
        steps.finish_pack(pack, inside, "gpu-check", {"what": "A pack.", "seconds": 5, "least": 5, "needs": "nothing"})
        self.assertEqual(sorted(p.name for p in pack.iterdir()), ["pack.tar.xz", "run.sh", "scripts"])
        self.assertEqual(sorted(p.name for p in (pack / "scripts").iterdir()), ["gpu-check", "gpu_steps.py"])
        unpacked = steps.unpack(pack)
        self.assertEqual(steps.run("true", [unpacked / "tests/true"])[0], 0)
        self.assertEqual(steps.run("syntax", ["bash", "-n", pack / "run.sh"])[0], 0)
        (unpacked / "tests/true").unlink()
        (unpacked / "tests").rmdir()
        os.rmdir(unpacked)


class Weights(unittest.TestCase):
    def test_they_go_and_others_come(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            model = folder / "model.onnx"
            tensor = field(8, b"ab.LayerNorm.weight") + b"\x10\x01" + field(9, b"\x01\x02\x03\x04" * 512)
            graph = field(5, tensor) + field(2, b"g")
            model.write_bytes(b"\x08\x08" + field(7, graph))
            before = model.read_bytes()
            self.assertEqual([(size, scale) for _, size, scale in weights.places(before)], [(2048, True)])
            weights.take_out(model, folder / "packed")
            self.assertLess((folder / "packed").stat().st_size, 400)
            try:
                import numpy
            except ImportError:
                self.skipTest("no numpy")
            weights.put_in(folder / "packed", folder / "again.onnx")
            after = (folder / "again.onnx").read_bytes()
            at = weights.places(before)[0][0]
            self.assertEqual((len(after), after[:at], after[at + 2048:]), (len(before), before[:at], before[at + 2048:]))
            values = numpy.frombuffer(after[at:at + 2048], numpy.float32)
            self.assertTrue(0.9 < values.mean() < 1.1 and 0 < values.std() < 0.1)


def field(number, content):
    size = len(content)
    return bytes([number << 3 | 2, size & 127 | 128, size >> 7]) + content


if __name__ == "__main__":
    unittest.main()
