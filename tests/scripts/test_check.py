#!/usr/bin/env python3
"""Tests of scripts/check: what it has fetched before anything is built, and what its patterns leave out. And of every
script: that it can be asked what it does."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True

import store as st  # noqa: E402

loader = importlib.machinery.SourceFileLoader("check", str(SCRIPTS / "check"))
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
loader.exec_module(check)

CUDA = ["engines", "--cuda", "onnxruntime-cuda"]
OPENVINO = ["engines", "--openvino", "onnxruntime-openvino"]


class Preparations(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.store = st.Store(folder.name)

    def of(self, machine):
        with mock.patch.object(st, "machine", return_value=machine):
            return check.preparations(False, self.store)

    def test_a_fresh_machine_gets_the_engines_and_the_builds_for_cuda_and_openvino(self):
        commands = self.of("x86_64")
        self.assertEqual([words[0] for words in commands], ["deps", "engines", "engines", "engines", "models", "venv"])
        self.assertIn(["engines"], commands)
        self.assertIn(CUDA, commands)
        self.assertIn(OPENVINO, commands)

    def test_a_variant_that_somebody_chose_stays(self):
        variant = self.store.path("engines", "onnxruntime-cuda", "1.0-sm90-small")
        variant.mkdir(parents=True)
        (variant / "libonnxruntime.so").touch()
        (variant.parent / "current").symlink_to(variant.name)
        self.assertNotIn(CUDA, self.of("x86_64"))

    def test_where_it_is_not_published_nothing_is_asked_for(self):
        commands = self.of("aarch64")
        self.assertNotIn(CUDA, commands)
        self.assertNotIn(OPENVINO, commands)
        self.assertIn(["engines"], commands)

    def test_scripts_know_the_words(self):
        for words in (CUDA, OPENVINO):
            answer = check.subprocess.run([sys.executable, "-B", SCRIPTS / words[0], *words[1:], "--list"], text=True,
                                          capture_output=True,
                                          env={**check.os.environ, "WEIR_HOME": str(self.store.home)})
            self.assertEqual((answer.returncode, answer.stderr), (0, ""))
            self.assertIn("missing", answer.stdout)


class Preparing(unittest.TestCase):
    """What cannot be fetched is a failure, whatever it is."""

    def of(self, *failing):
        """Prepares with an empty store, where the commands named fail."""
        called = []

        def run(command, _log, on_line=None, env=None):
            called.append([Path(command[0]).name, *command[1:]])
            return int(called[-1] in failing)

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(check, "run", run), \
                mock.patch.object(check, "LOGS", Path(folder)), mock.patch.object(check, "say"), \
                mock.patch.object(check, "FAILED", []) as told, mock.patch.object(st, "machine", return_value="x86_64"), \
                mock.patch.dict(check.os.environ, {"WEIR_HOME": folder}):
            check.os.environ.pop("WEIR_REQUIRE_ENGINES", None)
            count = check.prepare(False)
        self.assertEqual(len(told), count.failed)
        return count.failed, called

    def test_everything_is_asked_for(self):
        failed, called = self.of()
        self.assertEqual(failed, 0)
        self.assertEqual([words[0] for words in called], ["deps", "engines", "engines", "engines", "models", "venv"])

    def test_each_failure_counts(self):
        for failing in ([["engines"]], [CUDA], [OPENVINO], [["models"]], [CUDA, OPENVINO], [["engines"], CUDA, OPENVINO, ["models"]]):
            with self.subTest(failing=failing):
                failed, called = self.of(*failing)
                self.assertEqual(failed, len(failing))
                self.assertEqual(len(called), 6)

    def test_without_packages_nothing_else_is_tried(self):
        failed, called = self.of(["deps", "build", "models", "lint"])
        self.assertEqual((failed, len(called)), (1, 1))


class Patterns(unittest.TestCase):
    def test_ctest_takes_those_of_every_suite(self):
        for name, suite in check.SUITES.items():
            for long in (False, True):
                check.pattern_left_out(name, suite, long)

    def test_one_of_too_many_groups_is_refused(self):
        suite = check.Suite("", "debug", names="|".join(["(a)"] * 10))
        with self.assertRaisesRegex(ValueError, "groups"):
            check.pattern_left_out("some", suite, False)


class Fixtures(unittest.TestCase):
    def of(self, *tests):
        listing = json.dumps({"tests": [{"name": name, "properties": [{"name": key, "value": value}]}
                                        for name, key, value in tests]})
        with mock.patch.object(check.subprocess, "run", return_value=mock.Mock(stdout=listing)):
            check.check_fixtures("asan", ["ctest"])

    def test_a_test_without_what_makes_its_fixture_is_named(self):
        needs = ("reads", "FIXTURES_REQUIRED", ["files"])
        self.of(needs, ("makes", "FIXTURES_SETUP", ["files"]))
        with self.assertRaisesRegex(ValueError, "asan: reads .* fixture files"):
            self.of(needs, ("other", "LABELS", ["long"]))


class Help(unittest.TestCase):
    def test_every_script_says_what_it_does_and_does_nothing_else(self):
        scripts = [p for p in sorted(SCRIPTS.iterdir()) if p.is_file() and os.access(p, os.X_OK)]
        self.assertGreater(len(scripts), 10)
        with tempfile.TemporaryDirectory() as build:
            for script in scripts:
                with self.subTest(script.name):
                    said = subprocess.run([script, "--help"], capture_output=True, text=True, timeout=60,
                                          env={**os.environ, "BUILD": build, "WEIR_HOME": build})
                    self.assertEqual((said.returncode, said.stderr), (0, ""))
                    self.assertGreater(len(said.stdout.split()), 20)
            self.assertEqual(os.listdir(build), [])


if __name__ == "__main__":
    unittest.main()
