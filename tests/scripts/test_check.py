#!/usr/bin/env python3
"""Tests of scripts/check: what it has fetched before anything is built, what its patterns leave out, what its tests run under, which failures
are run once more alone, and which tests a change reaches. And of scripts/land, and of every script: that it can be asked what it does."""

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

import affected  # noqa: E402
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
        self.assertEqual([words[0] for words in commands], ["deps", "engines", "engines", "engines", "models", "venv", "venv"])
        self.assertIn(["engines"], commands)
        self.assertIn(CUDA, commands)
        self.assertIn(OPENVINO, commands)

    def test_a_variant_that_somebody_chose_stays(self):
        variant = self.store.path("engines", "onnxruntime-cuda", "1.0-sm90-small")
        variant.mkdir(parents=True)
        (variant / "libonnxruntime.so").touch()
        (variant / ".stamp").write_text(json.dumps({"files": st.stamp_files(variant, ["libonnxruntime.so"])}))
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
                mock.patch.object(check, "FAILED", {}) as told, mock.patch.object(st, "machine", return_value="x86_64"), \
                mock.patch.dict(check.os.environ, {"WEIR_HOME": folder}):
            check.os.environ.pop("WEIR_REQUIRE_ENGINES", None)
            count = check.prepare(False)
        self.assertEqual(len(told), count.failed)
        return count.failed, called

    def test_everything_is_asked_for(self):
        failed, called = self.of()
        self.assertEqual(failed, 0)
        self.assertEqual([words[0] for words in called], ["deps", "engines", "engines", "engines", "models", "venv", "venv"])

    def test_each_failure_counts(self):
        for failing in ([["engines"]], [CUDA], [OPENVINO], [["models"]], [CUDA, OPENVINO], [["engines"], CUDA, OPENVINO, ["models"]]):
            with self.subTest(failing=failing):
                failed, called = self.of(*failing)
                self.assertEqual(failed, len(failing))
                self.assertEqual(len(called), 7)

    def test_without_compilers_nothing_else_is_tried(self):
        with self.assertRaisesRegex(check.Ended, "nothing can be built"):
            self.of(["deps", "build", "models", "lint"], ["deps", "--missing", "build"])

    def test_other_packages_are_one_failure(self):
        failed, called = self.of(["deps", "build", "models", "lint"])
        self.assertEqual((failed, len(called)), (1, 8))


class Patterns(unittest.TestCase):
    def test_ctest_takes_those_of_every_suite(self):
        for name, suite in check.SUITES.items():
            for long in (False, True):
                check.pattern_left_out(name, suite, long)

    def test_one_of_too_many_groups_is_refused(self):
        suite = check.Suite("", "debug", names="|".join(["(a)"] * 10))
        with self.assertRaisesRegex(ValueError, "groups"):
            check.pattern_left_out("some", suite, False)


class Perturbed(unittest.TestCase):
    def of(self, preset, **environment):
        rest = {key: value for key, value in os.environ.items() if key != "PERTURB"}
        with mock.patch.dict(os.environ, {**rest, **environment}, clear=True):
            return check.ctest_environment(check.SUITES[preset])

    def test_the_suite_s_own_library_is_preloaded_where_a_seed_is_given(self):
        for preset in ("debug", "asan", "tsan"):
            held, plain = self.of(preset, PERTURB="7"), self.of(preset)
            self.assertEqual(str(check.BUILD / preset / "tests/libperturb.so"), held.pop("LD_PRELOAD"))
            self.assertEqual("verify_asan_link_order=0", held["ASAN_OPTIONS"].split(":")[-1])
            self.assertEqual({**plain, "ASAN_OPTIONS": ""}, {**held, "ASAN_OPTIONS": ""})

    def test_the_seed_is_handed_on(self):
        with mock.patch.dict(os.environ), mock.patch.object(check, "counts", return_value=[]), \
                mock.patch.object(check, "tell", return_value=0), mock.patch.object(sys, "argv", ["check", "--perturb", "7", "debug"]):
            check.main()
            self.assertEqual("7", os.environ["PERTURB"])


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


class Unstable(unittest.TestCase):
    """A project of two tests stands for a suite; `fails` is a shell command that decides, told how often it was called."""

    def of(self, fails):
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "debug"
            tree.mkdir()
            script = f"echo >> '{folder}/calls'; calls=$(wc -l < '{folder}/calls'); {fails}"
            (tree / "script.sh").write_text(script)
            (tree / "CTestTestfile.cmake").write_text(f'add_test(good "true")\nadd_test(shaky "sh" "{tree}/script.sh")\n'
                                                      'set_tests_properties(shaky PROPERTIES TIMEOUT 2)\n')
            suite = check.Suite("", "debug")
            with mock.patch.object(check, "BUILD", Path(folder)), mock.patch.object(check, "LOGS", Path(folder)), \
                    mock.patch.object(check, "say"), mock.patch.object(check, "FAILED", {}) as failed, \
                    mock.patch.object(check, "UNSTABLE", []) as unstable, open(Path(folder) / "log", "w") as log:
                count = check.ctest("debug", suite, False, log)
                check.keep_unstable()
                kept = Path(folder) / "unstable.txt"
                kept = kept.read_text() if kept.exists() else ""
                return str(count), list(failed), unstable, kept, len(Path(folder, "calls").read_text())

    def test_what_passes_alone_is_told_and_is_no_failure(self):
        count, failed, unstable, kept, _ = self.of("test $calls -gt 1")
        self.assertEqual(("2 passed, 0 failed, 0 skipped", []), (count, failed))
        self.assertEqual(["UNSTABLE: debug: shaky"], unstable)
        self.assertIn("UNSTABLE: debug: shaky\n", kept)

    def test_what_was_too_slow_once_too(self):
        count, failed, unstable, _, _ = self.of("test $calls -gt 1 || exec sleep 60")
        self.assertEqual(("2 passed, 0 failed, 0 skipped", [], ["UNSTABLE: debug: shaky"]), (count, failed, unstable))

    def test_what_fails_alone_too_has_failed(self):
        count, failed, unstable, kept, calls = self.of("false")
        self.assertEqual(("1 passed, 1 failed, 0 skipped", ["debug: shaky"], [], "", 2), (count, failed, unstable, kept, calls))

    def test_no_accident_is_a_crash_a_report_a_violation_or_wrong_contents(self):
        for fails in ("test $calls -gt 1 || kill -SEGV $$", "test $calls -gt 1 || kill -ABRT $$",
                      "test $calls -gt 1 || { echo SUMMARY: ThreadSanitizer: data race; exit 66; }",
                      "test $calls -gt 1 || { echo ERROR: LeakSanitizer: detected memory leaks; exit 1; }",
                      "test $calls -gt 1 || { echo x.c:7:3: runtime error: signed integer overflow; exit 1; }",
                      "test $calls -gt 1 || { echo '1 violations, the first: a block is handed out twice'; exit 1; }",
                      "test $calls -gt 1 || { echo 'Test failed with exception: Segmentation fault(11)'; exit 1; }",
                      "test $calls -gt 1 || { echo 'difference at offset 4 0x01 0x02'; exit 1; }"):
            with self.subTest(fails):
                count, failed, unstable, _, calls = self.of(fails)
                self.assertEqual(("1 passed, 1 failed, 0 skipped", ["debug: shaky"], [], 1), (count, failed, unstable, calls))


class Affected(unittest.TestCase):
    def test_a_header_reaches_what_is_linked_of_its_objects(self):
        rules = ("build a.o: CC ../src/a.c || order\nbuild lib.so | lib.so.1: LINK a.o | other.so\n"
                 "build bin/test: LINK t.o | $\n  lib.so || phony\n")
        pairs = list(affected.read_rules(rules)) + list(affected.read_headers(
            "a.o: #deps 1, deps mtime 5 (VALID)\n    /p/src/a.c\n    /p/src/a.h\n\nt.o: #deps 1\n    /p/tests/t.c\n"))
        reached = affected.reach(pairs, Path("/p/build"), [Path("/p/src/a.h")])
        self.assertLessEqual({"/p/build/a.o", "/p/build/lib.so", "/p/build/lib.so.1", "/p/build/bin/test"}, reached)
        self.assertNotIn("/p/build/t.o", reached)
        self.assertEqual({"/p/tests/t.c", "/p/build/t.o", "/p/build/bin/test"},
                         affected.reach(pairs, Path("/p/build"), [Path("/p/tests/t.c")]))
        self.assertLessEqual({"/p/build/a.o", "/p/build/bin/test"}, affected.reach(pairs, Path("/p/build"), [Path("/p/src/a.c")]))

    def test_a_test_is_reached_by_its_command_its_environment_or_a_script_beside_it(self):
        test = {"command": ["/p/python3", "/p/tests/cli/test_a.py"],
                "properties": [{"name": "ENVIRONMENT", "value": ["WEIR=/p/build/bin/weir", "X=1"]}]}
        self.assertTrue(affected.is_reached(test, {"/p/build/bin/weir"}, set()))
        self.assertTrue(affected.is_reached(test, {"/p/tests/cli/test_a.py"}, set()))
        self.assertTrue(affected.is_reached(test, set(), {"/p/tests/cli"}))
        self.assertFalse(affected.is_reached(test, {"/p/build/bin/other"}, {"/p/tests/core"}))

    def test_the_nearest_and_shortest_come_first_within_the_time(self):
        tests = {"tests": [{"name": name, "command": ["/p/t"]} for name in ("core-a", "pool-slow", "pool-b", "sim-c")]}
        took = {"core-a": 1.0, "pool-slow": 30.0, "pool-b": 2.0, "sim-c": 3.0}
        for seconds, wanted in ((40, ["pool-b", "pool-slow", "core-a", "sim-c"]), (33.5, ["pool-b", "pool-slow", "core-a"]), (1, [])):
            with mock.patch.object(affected, "run", return_value=json.dumps(tests)), mock.patch.object(affected, "read_rules", return_value=[]), \
                    mock.patch.object(affected, "reach", return_value={"/p/t"}), mock.patch.object(affected, "seconds_of", return_value=took), \
                    mock.patch.object(affected, "read_headers", return_value=[]), mock.patch.object(Path, "read_text", return_value=""):
                self.assertEqual((wanted, 4), affected.choose(Path("/b"), ["ctest"], ["src/pool/x.c"], seconds))


class Land(unittest.TestCase):
    """A project whose check is one line of its Makefile."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name) / "project"
        (self.top / "scripts").mkdir(parents=True)
        (self.top / "scripts/land").write_bytes((SCRIPTS / "land").read_bytes())
        (self.top / "scripts/land").chmod(0o755)
        self.git("init", "-q", "-b", "main")
        self.commit("true")
        self.git("switch", "-q", "-c", "next")

    def git(self, *words):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", *who, *words], cwd=self.top, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, check):
        (self.top / "Makefile").write_text(f"check:\n\t{check}\n")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", check)

    def land(self, *words):
        answer = subprocess.run([self.top / "scripts/land", *words], capture_output=True, text=True, env={**os.environ, "TMPDIR": str(self.top.parent)})
        self.assertEqual([self.top], list(self.top.parent.iterdir()))  # nothing is left of the clone
        return answer.returncode, answer.stdout + answer.stderr

    def test_main_moves_to_what_passes(self):
        self.commit("test ! -e untracked")
        (self.top / "untracked").touch()  # is in no clean clone
        self.assertEqual(0, self.land()[0])
        self.assertEqual(self.git("rev-parse", "next"), self.git("rev-parse", "main"))
        self.assertEqual((0, "main is there already\n"), self.land())

    def test_main_stays_where_it_does_not_pass_or_is_only_asked(self):
        main = self.git("rev-parse", "main")
        self.commit("true # again")
        self.assertEqual(0, self.land("--check")[0])
        self.commit("false")
        status, said = self.land()
        self.assertNotEqual(0, status)
        self.assertIn("main stays at", said)
        self.assertEqual(main, self.git("rev-parse", "main"))

    def test_main_is_checked_out_nowhere_and_loses_nothing(self):
        self.commit("true # again")
        self.git("worktree", "add", "-q", self.top / "build-main", "main")
        self.assertIn("is checked out", self.land()[1])
        self.git("worktree", "remove", self.top / "build-main")
        self.git("switch", "-q", "main")
        self.commit("true # beside")
        self.git("switch", "-q", "next")
        self.assertIn("main has commits", self.land()[1])


class Help(unittest.TestCase):
    def test_every_script_says_what_it_does_and_does_nothing_else(self):
        scripts = [p for p in sorted(SCRIPTS.iterdir()) if p.is_file() and os.access(p, os.X_OK)]
        self.assertGreater(len(scripts), 10)
        with tempfile.TemporaryDirectory() as build:
            for script in scripts:
                with self.subTest(script.name):
                    said = subprocess.run([script, "--help"], capture_output=True, text=True, timeout=1000,
                                          env={**os.environ, "BUILD": build, "WEIR_HOME": build})
                    self.assertEqual((said.returncode, said.stderr), (0, ""))
                    self.assertGreater(len(said.stdout.split()), 20)
            self.assertEqual(os.listdir(build), [])


if __name__ == "__main__":
    unittest.main()
