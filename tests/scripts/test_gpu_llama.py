#!/usr/bin/env python3
"""Tests of scripts/gpu-llama, of the models it writes, and of bench/llama_compare.py, with programs that are made up."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "scripts"))
sys.path.insert(0, str(SOURCE / "bench"))
sys.dont_write_bytecode = True

import gpu_llama_pack as packs  # noqa: E402
import gpu_steps as steps  # noqa: E402
import llama_compare as compare  # noqa: E402
import store as st  # noqa: E402

LOADER = importlib.machinery.SourceFileLoader("gpu_llama", str(SOURCE / "scripts/gpu-llama"))
gpu_llama = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_llama", LOADER))
sys.modules["gpu_llama"] = gpu_llama
LOADER.exec_module(gpu_llama)
Step = gpu_llama.Step

# Answers as bench/llama_plain.c does; how fast it is, and what it chooses, is in files beside it.
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
here = pathlib.Path(__file__).parent
through = sys.argv[sys.argv.index("--through") + 1]
with open(here / "calls", "a") as calls:
    calls.write(f"{through} {' '.join(sys.argv[4:])}\\n")
told = json.loads((here / "told.json").read_text())[through]
if "fails" in told:
    sys.exit(told["fails"])
print(json.dumps({"through": through, "prompt_64": {"tokens_per_s": told["speed"]}, "decode_8": {"tokens_per_s": told["speed"] / 10},
                  "load_ms": 1.0, "context_ms": 2.0, "same": True, "checksum": told.get("checksum", "0f"),
                  "chosen": told.get("chosen", [1, 2]), "memory": {"taken": 3 << 20}}))
"""


class InFolder(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)
        steps.results.clear()
        steps.begin(steps.Place(self.folder, 3600, {}))
        steps.place.sanitizer = None
        self.shown = io.StringIO()
        shown = contextlib.redirect_stdout(self.shown)
        shown.__enter__()
        self.addCleanup(shown.__exit__, None, None, None)


class Steps(InFolder):
    def run_step(self, step, models=None, stub=False):
        steps.results.clear()
        gpu_llama.run_step(step, "python3", {"small": Path("/models/small.gguf")} if models is None else models, stub)
        return steps.results[0]

    def test_words_are_filled_in(self):
        step = Step("one", "echo {small} {in} {cuda} {seconds}", 40, show="gguf")
        self.assertEqual(self.run_step(step)[:2], ("passed", "one"))
        self.assertIn(f"    /models/small.gguf {self.folder} {self.folder}/store/engines/llama-cuda/current/lib 25", self.shown.getvalue())

    def test_how_a_step_goes_is_its_programs_word(self):
        self.assertEqual(self.run_step(Step("bad", "false"))[:3], ("failed", "bad", "exit status 1"))
        self.assertEqual(self.run_step(Step("one", "env", environment={"OF_STEP": "7"}, show="OF_STEP"))[0], "passed")
        self.assertIn("    OF_STEP=7", self.shown.getvalue())

    def test_without_its_model_or_its_tool_a_step_is_skipped(self):
        self.assertEqual(self.run_step(Step("one", "echo {f16}"))[:3], ("skipped", "one", "there is no model f16"))
        self.assertEqual(self.run_step(Step("one", "true", tool="memcheck"))[:3], ("skipped", "one", "compute-sanitizer is not here"))

    def test_a_tool_of_the_sanitizer_runs_it(self):
        steps.place.sanitizer = self.folder / "tool"
        steps.place.sanitizer.write_text("#!/bin/sh\necho \"$@\"\necho '========= ERROR SUMMARY: 0 errors'\n")
        steps.place.sanitizer.chmod(0o755)
        self.assertEqual(self.run_step(Step("one", "program {small}", tool="racecheck"))[:2], ("passed", "one under racecheck"))
        log = steps.log_of("one under racecheck").read_text()
        self.assertIn("--tool racecheck", log)
        self.assertIn("program /models/small.gguf", log)

    def test_a_rehearsal_has_words_of_its_own(self):
        step = Step("one", "false", stub="true")
        self.assertEqual([self.run_step(step, stub=stub)[0] for stub in (False, True)], ["failed", "passed"])

    def test_every_step_of_the_table_can_be_filled_in(self):
        names = [step.name for step in gpu_llama.STEPS]
        self.assertEqual(len(set(names)), len(names))
        models = {name: self.folder / name for name in gpu_llama.MODELS}
        with mock.patch.object(steps, "suite") as suite, mock.patch.object(steps, "sanitized"):
            for step in gpu_llama.STEPS:
                for stub in (False, True):
                    gpu_llama.run_step(step, "python3", models, stub)
        self.assertEqual([r for r in steps.results if r[0] == "failed"], [])
        for call in suite.call_args_list:
            self.assertNotIn("{", " ".join(map(str, call.args[1])))
        self.assertEqual(set(gpu_llama.wanted_models(gpu_llama.STEPS)), set(gpu_llama.MODELS))

    def test_models_that_no_step_wants_are_not_made(self):
        made = []
        with mock.patch.object(steps, "suite", lambda what, words, **_: made.append((what, words[3:])) or 0), \
                mock.patch.object(steps, "show_log"):
            found = gpu_llama.make_models("python3", [Step("one", "echo {q8_0}")], stub=False)
            gpu_llama.make_models("python3", [Step("one", "echo {q8_0}")], stub=True)
        path = self.folder / "models/q8_0.gguf"
        self.assertEqual(found, {"q8_0": path})
        self.assertEqual(made, [("model q8_0", [path, "--shape", shape, "--type", "q8_0"]) for shape in ("1b", "small")])


class Packs(InFolder):
    def test_what_was_packed_lies_there_as_in_a_store(self):
        home, inside = self.folder / "home", self.folder / "inside"
        for name, variant, library in (("llama", "c0ffee", "libllama.so.0.5.0"), ("llama-cuda", "c0ffee-sm90", "libggml-cuda.so")):
            place = home / "engines" / name / variant
            (place / "lib").mkdir(parents=True)
            (place / "lib" / library).write_text(name)
            (place / "commit").write_text("commit=c0ffee\narch=90\n")
            (place.parent / "current").symlink_to(variant)
        (home / "engines/llama/c0ffee/lib/libllama.so").symlink_to("libllama.so.0.5.0")
        with mock.patch.dict(os.environ, WEIR_HOME=str(home)):
            llama, module = packs.of_store("llama", ""), packs.of_store("llama-cuda", "")
        self.assertEqual(packs.commit_of(llama), packs.commit_of(module))
        packs.pack_llama(llama, inside)
        packs.pack_module(module, self.folder / packs.MODULE)
        before = (self.folder / packs.MODULE).stat().st_mtime_ns
        packs.pack_module(module, self.folder / packs.MODULE)  # it is there
        self.assertEqual((self.folder / packs.MODULE).stat().st_mtime_ns, before)
        packs.unpack_module(self.folder, inside)
        engines = inside / "store/engines"
        self.assertEqual((engines / "llama/current/lib/libllama.so").read_text(), "llama")
        self.assertEqual((engines / "llama-cuda/current/lib/libggml-cuda.so").read_text(), "llama-cuda")
        self.assertTrue((engines / "llama-cuda/current/lib/../../../llama/c0ffee/lib/libllama.so").exists())
        with tarfile.open(self.folder / packs.MODULE) as archive:
            self.assertEqual(len(archive.getmembers()), 2)

    def test_what_the_store_lacks_is_said(self):
        with mock.patch.dict(os.environ, WEIR_HOME=str(self.folder / "none")), self.assertRaises(SystemExit):
            packs.of_store("llama-cuda", "--cuda --arch 90 llama-cuda")
        self.assertIn("run scripts/engines --cuda --arch 90 llama-cuda", self.shown.getvalue())


class Compare(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)
        program = self.folder / "program"
        program.write_text(PROGRAM)
        program.chmod(0o755)

    def compare(self, told, *words):
        (self.folder / "told.json").write_text(json.dumps(told))
        (self.folder / "calls").unlink(missing_ok=True)
        command = [sys.executable, "-B", SOURCE / "bench/llama_compare.py", self.folder / "program", "model.gguf", *words]
        done = subprocess.run(command, text=True, capture_output=True, timeout=1000, check=False)
        return done.returncode, done.stdout

    def test_processes_take_turns_and_the_first_changes(self):
        status, said = self.compare({"plain": {"speed": 100.0}, "weir": {"speed": 99.0}}, "--rounds", "3", "--json",
                                    self.folder / "json", "--", "--prompts", "64,128")
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertEqual([call.split()[0] for call in calls], ["plain", "weir", "weir", "plain", "plain", "weir"])
        self.assertEqual({call.partition(" ")[2] for call in calls}, {"--prompts 64,128"})
        self.assertEqual(status, 0)
        self.assertIn("| prompt_64, tokens/s | 100.0 | 99.0 | 0.9900 (0.9900 to 0.9900) |", said)
        self.assertIn("the same: tokens chosen", said)
        self.assertEqual([len(of) for of in json.loads((self.folder / "json").read_text()).values()], [3, 3])

    def test_other_answers_are_told(self):
        status, said = self.compare({"plain": {"speed": 100.0}, "weir": {"speed": 99.0, "chosen": [1, 3], "checksum": "1f"}})
        self.assertEqual(status, 1)
        self.assertIn("different: the tokens chosen, the last logits", said)

    def test_a_process_that_fails_is_told(self):
        status, said = self.compare({"plain": {"speed": 100.0}, "weir": {"fails": "why it failed"}})
        self.assertEqual(status, 1)
        self.assertIn("FAILED weir: why it failed", said)
        self.assertNotIn("| measure", said)

    def test_rounds_end_in_time(self):
        status, said = self.compare({"plain": {"speed": 100.0}, "weir": {"speed": 99.0}}, "--rounds", "9", "--seconds", "0")
        self.assertEqual(status, 0)
        self.assertIn("1 of 9 rounds: there was no time for more", said)
        self.assertIn("| decode_8, tokens/s | 10.0 | 9.9 |", said)

    def test_what_differs_within_a_process(self):
        answer = {"chosen": [1], "checksum": "0", "same": False}
        self.assertEqual(compare.differences({"plain": [answer]}), ["the rounds of one process"])


@unittest.skipUnless((st.default_home() / "venv/bin/python").exists(), "the store has no Python with NumPy")
class Models(unittest.TestCase):
    def write(self, folder, name, *words):
        path = Path(folder) / name
        subprocess.run([st.default_home() / "venv/bin/python", "-B", SOURCE / "scripts/gpu_llama_model.py", path, "--shape", "small",
                        *words], check=True, capture_output=True)
        return path.read_bytes()

    def test_the_same_words_give_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            one = self.write(folder, "one")
            self.assertEqual(one, self.write(folder, "again"))
            other = self.write(folder, "other", "--seed", "2")
            self.assertEqual(len(one), len(other))
            self.assertNotEqual(one, other)
            magic, version, tensors, keys = struct.unpack_from("<4sIQQ", one)
            self.assertEqual((magic, version, tensors, keys), (b"GGUF", 3, 3 + 4 * 9, 19))
            self.assertLess(len(self.write(folder, "quantised", "--type", "q8_0")), 0.6 * len(one))


if __name__ == "__main__":
    unittest.main()
