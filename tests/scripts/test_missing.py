#!/usr/bin/env python3
"""Tests of what the scripts do where something is missing: a package, the network, half of a file, room on the disk, a home, a folder
that can be written. Each time one line tells it, nothing half made is used later, and a second call succeeds once the cause is gone.

Run with any python3: python3 tests/scripts/test_missing.py
"""

import contextlib
import errno
import hashlib
import http.server
import importlib.machinery
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile
from pathlib import Path
from unittest import mock

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path[:0] = [str(SCRIPTS)]
sys.dont_write_bytecode = True

import store as st  # noqa: E402


def script(name):
    loader = importlib.machinery.SourceFileLoader(name, str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Quiet(st.Screen):
    def __init__(self):
        super().__init__(io.StringIO())


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.home = self.folder / "store"
        self.store = st.Store(self.home, Quiet())

    def things(self, make, *names):
        return {name: st.Item(self.store, name, "1", self.home / name, 1, make) for name in names}

    def command(self, items):
        """The exit status of a script that makes these, and what it tells."""
        it, said = st.parser("scripts/things", "", tuple(items)), io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()), mock.patch.object(st, "interrupt_on_signals"):
            status = st.command(it, it.parse_args([]), items)
        return status, said.getvalue().splitlines()


# ---- downloads ---------------------------------------------------------------

def wheel():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("thing.py", "answer = 42\n" * 4000)
        archive.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        archive.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("thing-1.0.dist-info/RECORD", "")
    return file.getvalue()


WHEEL = wheel()
NAME = "thing-1.0-py3-none-any.whl"
PINS = {"thing": {"project": "thing", "version": "1.0", "files": {"any": {
    "name": NAME, "sha256": hashlib.sha256(WHEEL).hexdigest(), "size": len(WHEEL)}}}}


class Index(http.server.ThreadingHTTPServer):
    """A package index with one wheel, which it sends as `mode` says: whole, another, half, or nothing for ever."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Page)
        self.mode, self.over, self.half = "whole", threading.Event(), threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def end(self):
        self.over.set()
        self.shutdown()
        self.server_close()


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        index = self.path.startswith("/simple")
        body = f'<a href="/files/{NAME}">{NAME}</a>'.encode() if index else WHEEL
        if not index and self.server.mode == "another":
            body = bytes(len(WHEEL))
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if index else "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        whole = index or self.server.mode in ("whole", "another")
        with contextlib.suppress(OSError):
            self.wfile.write(body if whole else body[:len(body) // 2])
            self.wfile.flush()
            if not index and self.server.mode == "never":
                self.server.half.set()
                self.server.over.wait()

    def log_message(self, *_):
        pass


class Downloads(InFolder):
    def setUp(self):
        super().setUp()
        self.index = Index()
        self.addCleanup(self.index.end)
        self.environment = {"PIP_INDEX_URL": f"http://127.0.0.1:{self.index.server_port}/simple", "PIP_CONFIG_FILE": os.devnull,
                            "PIP_DEFAULT_TIMEOUT": "1", "PIP_FIND_LINKS": "", "PIP_NO_INDEX": "", "http_proxy": "", "HTTP_PROXY": "",
                            "no_proxy": "*"}
        for patch in (mock.patch.object(st, "pins", lambda: PINS), mock.patch.dict(os.environ, self.environment)):
            patch.start()
            self.addCleanup(patch.stop)

    def things(self, *_):
        return super().things(lambda folder: shutil.copy(self.store.fetch("thing"), folder), "thing")

    def refused(self, words):
        status, said = self.command(self.things())
        self.assertEqual((1, 1), (status, len(said)), said)
        for word in ("scripts/things: thing: ", NAME, str(self.home / "downloads"), "call again", *words):
            self.assertIn(word, said[0])
        self.assertEqual([], list((self.home / "downloads").iterdir()))
        self.assertFalse((self.home / "tmp").exists())

    def succeeds(self):
        self.index.mode = "whole"
        self.assertEqual((0, []), self.command(self.things()))
        for place in ("downloads", "thing"):
            self.assertEqual(WHEEL, (self.home / place / NAME).read_bytes())

    def test_cut_off(self):
        self.index.mode = "half"
        self.refused(["could not be downloaded" if "Connection broken" in self.log() else NAME])
        self.succeeds()

    def log(self):
        path = self.home / "logs/download-thing.log"
        return path.read_text() if path.exists() else ""

    def test_with_another_hash(self):
        self.index.mode = "another"
        self.refused(["another hash than the pinned one", "thrown away"])
        self.succeeds()

    def test_from_a_server_that_falls_silent(self):
        self.index.mode = "never"
        self.refused([])
        self.succeeds()

    def test_from_no_server(self):
        with mock.patch.dict(os.environ, {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}):
            self.refused(["could not be downloaded; is there a network?"])
        self.succeeds()

    def test_what_lies_there_instead(self):
        def folder(path):
            path.mkdir()
            (path / "within").touch()

        for instead in (folder, lambda path: path.write_bytes(WHEEL[:100]), lambda path: path.symlink_to("nowhere")):
            (self.home / "downloads").mkdir(parents=True)
            instead(self.home / "downloads" / NAME)
            self.succeeds()
            shutil.rmtree(self.home)

    def test_killed_in_the_middle(self):
        self.index.mode = "never"
        program = (f"import sys; sys.path.insert(0, {str(SCRIPTS)!r}); import store as st\n"
                   f"st.pins = lambda: {PINS!r}\nst.Store({str(self.home)!r}).fetch('thing')\n")
        process = subprocess.Popen([sys.executable, "-B", "-c", program], stderr=subprocess.DEVNULL,
                                   env={**os.environ, "PIP_DEFAULT_TIMEOUT": "100"})
        self.assertTrue(self.index.half.wait(1000))
        process.kill()
        process.wait()
        self.assertEqual([], list((self.home / "downloads").iterdir()))
        self.index.over.set()
        self.succeeds()
        self.assertFalse((self.home / "tmp").exists())


class Environment(Downloads):
    """Of Python, with the same wheel."""

    def things(self, *_):
        wanted = self.folder / "wanted.txt"
        wanted.write_text(f"thing==1.0 --hash=sha256:{PINS['thing']['files']['any']['sha256']}\n")
        return {"thing": st.venv_item(self.store, "thing", wanted)}

    def refused(self, words):
        status, said = self.command(self.things())
        self.assertEqual((1, 1), (status, len(said)), said)
        for word in ("scripts/things: thing: ", "call again", *words):
            self.assertIn(word, said[0])
        self.assertEqual([".lock", "logs"], sorted(os.listdir(self.home)))

    def succeeds(self):
        self.index.mode = "whole"
        self.assertEqual((0, []), self.command(self.things()))
        done = subprocess.run([self.home / "thing/bin/python", "-c", "import thing; print(thing.answer)"], text=True, capture_output=True,
                              check=True)
        self.assertEqual("42\n", done.stdout)

    def test_with_another_hash(self):
        self.index.mode = "another"
        self.refused(["another hash than the pinned one"])
        self.succeeds()
        with self.store.lock(), self.store.log("thing") as log:
            log.write("ERROR: No matching distribution found for thing==1.0\n")
            log.flush()
            self.assertRegex(str(st.not_installed("thing", self.store, Path("some.txt"), log)), "thing: thing==1.0 could not be downloaded; is "
                             f"there a network.* {self.home}/downloads yourself")

    # An environment takes seconds to make.
    test_cut_off = test_from_a_server_that_falls_silent = test_from_no_server = test_what_lies_there_instead = test_killed_in_the_middle = None


# ---- a process that is killed ------------------------------------------------

MAKER = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import store as st
home, text, stage = sys.argv[2], sys.argv[3], sys.argv[4]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def make(folder):
    (folder / 'thing').write_text(text[:1])
    if stage == 'make':
        die()
    (folder / 'thing').write_text(text)
    (folder / 'other').write_text(text)
if stage in ('stamp_files', 'put_in_place'):
    setattr(st, stage, die)
if stage in ('rename', 'replace', 'symlink'):
    setattr(os, stage, die)
if stage == 'second':
    real, calls = os.replace, []
    os.replace = lambda *words: (calls.append(1), real(*words), len(calls) == 2 and die())
store = st.Store(home)
place = store.path('things', '1') if sys.argv[5] == 'whole' else store.path('things')
st.Item(store, 'thing', '1', place, text, make, whole=sys.argv[5] == 'whole', shown=place / 'thing',
        current=store.path('things', 'current') if sys.argv[5] == 'whole' else None).ensure()
"""


class Killed(InFolder):
    def make(self, text, stage, whole):
        done = subprocess.run([sys.executable, "-B", "-c", MAKER, SCRIPTS, self.home, text, stage, whole], capture_output=True,
                              text=True, timeout=1000, check=False)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode

    def test_at_each_step_leaves_the_old_one_or_the_new_one(self):
        place = self.home / "things/1"
        for stage in ("make", "stamp_files", "put_in_place", "rename", "replace"):
            for before in ("", "old"):
                with self.subTest(stage=stage, before=before):
                    if before:
                        self.assertEqual(0, self.make(before, "", "whole"))
                    status = self.make("new", stage, "whole")
                    self.assertIn(status, (-signal.SIGKILL, 0) if before and stage == "rename" else (-signal.SIGKILL,))
                    if before:  # nothing of it is lost at any time
                        texts = {(place / name).read_text() for name in ("thing", "other")}
                        self.assertIn(texts, [{"old"}, {"new"}])
                    self.assertEqual(0, self.make("new", "", "whole"))
                    self.assertEqual(["new", "new"], [(self.home / "things/current" / name).read_text() for name in ("thing", "other")])
                    self.assertEqual(0, self.make("newer", "", "whole"))  # whoever makes something clears what a killed one left
                    self.assertFalse((self.home / "tmp").exists())
                    shutil.rmtree(self.home)

    def test_between_two_files_is_no_whole(self):
        self.assertEqual(0, self.make("old", "", "files"))
        self.assertEqual(-signal.SIGKILL, self.make("new", "second", "files"))
        self.assertEqual(0, self.make("new", "", "files"))
        self.assertEqual(["new", "new"], [(self.home / "things" / name).read_text() for name in ("thing", "other")])

    def test_a_rename_that_fails_keeps_what_was_there(self):
        for name in ("old", "new"):
            (self.folder / name).mkdir()
        real, calls = os.rename, []

        def rename(*words):
            calls.append(words)
            if len(calls) == 2:
                raise OSError(errno.EIO, "Input/output error")
            real(*words)

        with mock.patch.object(st.ctypes, "CDLL", return_value=None), mock.patch.object(os, "rename", rename):
            self.assertRaises(OSError, st.put_in_place, self.folder / "new", self.folder / "old", self.folder / "aside")
        self.assertEqual(["new", "old"], sorted(os.listdir(self.folder)))

    def test_whole_is_what_its_stamp_tells(self):
        self.assertFalse(st.intact(self.home / "things/current"))
        self.make("new", "", "whole")
        self.assertTrue(st.intact(self.home / "things/current"))
        os.truncate(self.home / "things/1/other", 1)
        self.assertFalse(st.intact(self.home / "things/current"))


# ---- a full disk, and folders that cannot be written -------------------------

class Room(InFolder):
    def test_a_full_disk_is_told_once_and_ends_all(self):
        for error in (OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EDQUOT, "Disk quota exceeded")):
            made = []

            def make(folder, error=error):
                made.append(folder)
                (folder / "half").touch()
                raise error

            status, said = self.command(self.things(make, "one", "two"))
            self.assertEqual((st.FULL, 1, 1), (status, len(made), len(said)))
            self.assertEqual(f"scripts/things: one: the disk of {self.home} is full; free some room, or set WEIR_HOME to a folder on a "
                             "larger disk", said[0])
            self.assertEqual([".lock"], os.listdir(self.home))
        self.assertEqual((0, []), self.command(self.things(lambda folder: (folder / "whole").touch(), "one", "two")))

    def test_so_does_what_a_tool_has_said(self):
        for text in ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
                     "fatal error: error writing to /tmp/ccXX.s: No space left on device\n"):
            with self.store.lock(), self.store.log("x") as log:
                log.write(text)
                log.flush()
                for error in (self.store.not_downloaded("x", {"name": NAME}, 1, log),
                              st.not_installed("x", self.store, Path("some.txt"), log), script("engines").why_it_failed(self.store, "x", log)):
                    self.assertEqual(st.FULL, error.status)
                    self.assertRegex(str(error), f"disk became full .*{self.home}; free some room, or set WEIR_HOME")

    def test_too_little_room(self):
        status, said = self.command(self.things(lambda _: self.store.room("one", 1 << 60), "one", "two"))
        self.assertEqual((st.FULL, 1), (status, len(said)))
        self.assertRegex(said[0], r"one: needs about \d+ MiB free in .*, there are .*; free some")

    def test_a_real_one(self):
        inside = ("mount -t tmpfs -o size=1m tmpfs \"$1\" || exit 77; cat /dev/zero >\"$1/x\" 2>/dev/null; WEIR_HOME=\"$1\" \"$2\" \"$3\" tiny-llm;"
                  "status=$?; ls -A \"$1\" >&2; exit $status")
        (self.folder / "disk").mkdir()
        unshare = shutil.which("unshare")
        done = unshare and subprocess.run([unshare, "-rm", "sh", "-c", inside, "sh", self.folder / "disk", sys.executable, SCRIPTS / "models"],
                                          capture_output=True, text=True, timeout=1000, check=False)
        if not done or done.returncode in (77, 1) and "scripts/models" not in done.stderr:
            self.skipTest("no small disk can be mounted here")
        self.assertEqual(st.FULL, done.returncode, done.stderr)
        self.assertRegex(done.stderr, r"\Ascripts/models: venv: needs .* free some, or set WEIR_HOME .*\n\.lock\nx\n\Z")

    def test_a_store_that_cannot_be_written(self):
        (self.folder / "file").touch()
        for home in ("/proc/nowhere", self.folder / "file", self.folder / "file/below"):
            for name in ("engines", "models", "venv"):
                done = subprocess.run([sys.executable, "-B", SCRIPTS / name], env={**os.environ, "WEIR_HOME": str(home)}, text=True,
                                      capture_output=True, timeout=1000, check=False)
                self.assertEqual(1, done.returncode)
                self.assertNotIn("Traceback", done.stderr)
                for line in done.stderr.splitlines():
                    self.assertRegex(line, f"^scripts/{name}: the store {home} cannot be written .*; set WEIR_HOME")

    def test_errors_name_the_place_and_the_remedy(self):
        for number, words in ((errno.EACCES, "open it, or set X to a folder that can be written"), (errno.EROFS, "closed to this user"),
                              (errno.ENOSPC, "free some room, or set X to a folder on a larger disk")):
            error = OSError(number, os.strerror(number), "/some/file")
            self.assertIn("/some/file", st.explain(error, "set X to a folder"))
            self.assertIn(words, st.explain(error, "set X to a folder"))
            self.assertIn("/where", st.explain(OSError(number, "x"), where="/where"))


class Home(unittest.TestCase):
    @unittest.skipUnless(shutil.which("cmake") and shutil.which("getent"), "cmake or getent is not here")
    def test_the_build_looks_in_the_same_place(self):
        with tempfile.NamedTemporaryFile("w", suffix=".cmake") as file:
            file.write(f'include({SCRIPTS.parent}/cmake/store.cmake)\nmessage("${{WEIR_STORE_PATH}}")\n')
            file.flush()
            for wanted in ({"WEIR_HOME": "/s", "HOME": "/h"}, {"WEIR_HOME": "", "XDG_CACHE_HOME": "/x"}, {"XDG_CACHE_HOME": "", "HOME": "/h"},
                           {"HOME": ""}, {}):
                with mock.patch.dict(os.environ, {"PATH": os.environ["PATH"], **wanted}, clear=True):
                    done = subprocess.run(["cmake", "-P", file.name], text=True, capture_output=True, timeout=1000, check=True)
                    self.assertEqual(str(st.default_home()), done.stderr.strip(), wanted)

    def test_none_is_told_and_the_user_database_has_one(self):
        for home in (None, ""):
            with mock.patch.dict(os.environ, {} if home is None else {"HOME": home}, clear=True):
                with mock.patch.object(st.pwd, "getpwuid", return_value=mock.Mock(pw_dir="/me")):
                    self.assertEqual(Path("/me/.cache/weir"), st.default_home())
                with mock.patch.object(st.pwd, "getpwuid", side_effect=KeyError), self.assertRaisesRegex(st.Failed, "set WEIR_HOME"):
                    st.default_home()

    def test_it_is_one_line(self):
        said = io.StringIO()
        with mock.patch.dict(os.environ, clear=True), mock.patch.object(st.pwd, "getpwuid", side_effect=KeyError), \
                contextlib.redirect_stderr(said):
            self.assertEqual(1, st.told("scripts/things", st.Store))
        self.assertRegex(said.getvalue(), r"\Ascripts/things: there is no place for the store: .*\n\Z")


# ---- packages ----------------------------------------------------------------

class Deps(InFolder):
    """Nothing is here but what the script itself calls, and an apt-get of the test's own."""

    def deps(self, apt, *words, user=0):
        bin, calls = self.folder / "bin", self.folder / "calls"
        bin.mkdir(exist_ok=True)
        calls.write_text("")
        for tool in ("sh", "sed", "grep", "sort", "mktemp", "rm", "tail", "cat"):
            if not (bin / tool).exists():
                (bin / tool).symlink_to(shutil.which(tool))
        for name, text in (("apt-get", f"echo \"$*\" >>'{calls}'\ncase $1 in update) exit 0 ;; esac\n{apt}"), ("id", f"echo {user}")):
            (bin / name).write_text(f"#!/bin/sh\n{text}\n")
            (bin / name).chmod(0o755)
        done = subprocess.run([shutil.which("sh"), SCRIPTS / "deps", *words], env={"PATH": str(bin), "TMPDIR": str(self.folder)},
                              text=True, capture_output=True, timeout=1000, check=False)
        return done.returncode, done.stderr.splitlines(), calls.read_text().splitlines()

    def test_an_unknown_package_keeps_nothing_else_away(self):
        status, said, calls = self.deps("case $* in *cppcheck*) echo 'E: Unable to locate package cppcheck'; exit 100 ;; esac", "build", "lint")
        self.assertEqual(1, status)
        self.assertRegex(said[-1], "^scripts/deps: apt-get knows no package cppcheck; add a source")
        self.assertRegex(calls[-1], "^install .* gcc .*clang-tidy-14 .*ccache")
        self.assertNotIn("cppcheck", calls[-1])

    def test_another_version_of_a_tool_will_do(self):
        status, said, calls = self.deps("case $* in *tidy-14*) echo \"E: Package 'clang-tidy-14' has no installation candidate\"; exit 100 ;; "
                                        "esac", "lint")
        self.assertEqual((0, []), (status, said))
        self.assertIn(" clang-tidy ", calls[-1])
        self.assertIn(" clang-format-14 ", calls[-1])

    def test_no_network(self):
        status, said, _ = self.deps("echo 'E: Failed to fetch http://x/ Temporary failure resolving'; exit 100", "build")
        self.assertEqual(1, status)
        self.assertRegex(said[-1], "^scripts/deps: apt-get could not install gcc .*; is there a network.*try again$")

    def test_a_full_disk(self):
        for words in ("dpkg: error: No space left on device", "E: You don't have enough free space in /var/cache/apt/archives/."):
            status, said, _ = self.deps(f'echo "{words}"; exit 100', "build")
            self.assertEqual(st.FULL, status)
            self.assertRegex(said[-1], "^scripts/deps: the disk is full: .* gcc .*; free some room")

    def test_who_is_not_root_is_told_one_line(self):
        status, said, calls = self.deps("exit 0", "build", user=1000)
        self.assertEqual((1, 1, []), (status, len(said), calls))
        self.assertRegex(said[0], "sudo apt-get install --no-install-recommends -y gcc .*libcmocka-dev")

    def test_missing_only_names(self):
        self.assertEqual((1, [], []), self.deps("exit 0", "--missing", "arm64"))


# ---- builds ------------------------------------------------------------------

@unittest.skipUnless(shutil.which("cmake") and shutil.which("ninja"), "cmake or ninja is not here")
class Build(InFolder):
    """A project of one file, which a shell command makes."""

    def setUp(self):
        super().setUp()
        self.top = self.folder / "project"
        (self.top / "scripts").mkdir(parents=True)
        for name in ("build", "store.py"):
            shutil.copy(SCRIPTS / name, self.top / "scripts")
        (self.top / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(p NONE)\nif(EXISTS ${CMAKE_SOURCE_DIR}/bad)\n  message(FATAL_ERROR badly)\nendif()\n"
            "add_custom_command(OUTPUT made COMMAND sh ${CMAKE_SOURCE_DIR}/make.sh DEPENDS make.sh)\nadd_custom_target(all2 ALL DEPENDS made)\n")
        (self.top / "CMakePresets.json").write_text(json.dumps({"version": 3, "configurePresets": [
            {"name": "release", "binaryDir": "${sourceDir}/build/release"}]}))
        (self.top / "make.sh").write_text("echo whole > made\n")
        self.tree = self.top / "build/release"

    def build(self, **more):
        env = {**os.environ, "CMAKE_GENERATOR": "Ninja", "CCACHE_DISABLE": "1", **more}
        env = {key: value for key, value in env.items() if value and key != "BUILD" or key in more and value}
        done = subprocess.run([sys.executable, "-B", self.top / "scripts/build", "release"], env=env, text=True, capture_output=True,
                              timeout=1000, check=False)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stderr.strip().splitlines(), done.stdout

    def fails(self, words, status=1, **more):
        got, said, _ = self.build(**more)
        self.assertEqual((status, 1), (got, len(said)), said)
        self.assertRegex(said[0], f"^scripts/build: .*{words}")

    def succeeds(self):
        self.assertEqual((0, []), self.build()[:2])
        self.assertEqual("whole\n", (self.tree / "made").read_text())

    def test_a_tree_that_was_moved_or_has_other_sources(self):
        self.succeeds()
        self.tree.rename(self.top / "build/other")
        (self.top / "build/other").rename(self.folder / "away")
        self.tree.mkdir()
        shutil.rmtree(self.tree)
        (self.folder / "away").rename(self.folder / "release")
        self.fails(f"release was made as {self.tree}; remove that tree", BUILD=str(self.folder))
        shutil.rmtree(self.folder / "release")
        self.succeeds()
        self.top = self.top.rename(self.folder / "renamed")
        self.tree = self.top / "build/release"
        self.fails(f"was made for the sources in {self.folder}/project; remove that tree")
        shutil.rmtree(self.tree)
        self.succeeds()

    def test_a_broken_cache(self):
        self.succeeds()
        os.truncate(self.tree / "CMakeCache.txt", 200)
        self.fails(f"CMakeCache.txt is broken; remove that tree: rm -r {self.tree}")
        shutil.rmtree(self.tree)
        self.succeeds()

    def test_a_configuration_that_fails(self):
        (self.top / "bad").touch()
        self.assertIn("badly", self.build()[2])
        self.fails("could not be configured; CMake says why above")
        (self.top / "bad").unlink()
        self.succeeds()

    def test_a_command_that_fails(self):
        (self.top / "make.sh").write_text("echo half > made; false\n")
        self.fails("all could not be built")
        (self.top / "make.sh").write_text("echo whole > made\n")
        self.succeeds()

    def test_a_full_disk(self):
        (self.top / "make.sh").write_text("echo half > made; echo made: No space left on device; false\n")
        self.fails("disk of .* became full; free some room, or set BUILD", st.FULL)
        (self.top / "make.sh").write_text("echo whole > made\n")
        self.succeeds()

    def test_a_folder_that_cannot_be_written(self):
        (self.folder / "file").touch()
        for folder in ("/proc/nowhere", self.folder / "file"):
            self.fails(f"{folder}/release", BUILD=str(folder))

    def test_a_killed_ninja(self):
        self.succeeds()
        gate = self.folder / "gate"
        os.mkfifo(gate)
        (self.top / "make.sh").write_text(f"echo half > made; [ ! -p '{gate}' ] || {{ echo $$ >'{gate}'; exec sleep 3600; }}; echo whole > made\n")
        process = subprocess.Popen([sys.executable, "-B", self.top / "scripts/build", "release"], start_new_session=True,
                                   env={**os.environ, "CMAKE_GENERATOR": "Ninja", "CCACHE_DISABLE": "1"}, stdout=subprocess.DEVNULL)
        compiler = int(gate.read_text())
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.kill(compiler, signal.SIGKILL)  # ninja gives each a group of its own
        self.assertEqual("half\n", (self.tree / "made").read_text())
        gate.unlink()
        self.succeeds()

    @unittest.skipUnless(shutil.which("ccache"), "ccache is not here")
    def test_a_closed_ccache_is_left_out(self):
        (self.top / "make.sh").write_text("echo \"$CCACHE_DISABLE\" > made\n")
        status, said, _ = self.build(CCACHE_DISABLE="", CCACHE_DIR="/proc/nowhere")
        self.assertEqual((0, 1), (status, len(said)))
        self.assertRegex(said[0], "ccache cannot write to /proc/nowhere .*: compiling without it; CCACHE_DIR")
        self.assertEqual("1\n", (self.tree / "made").read_text())


# ---- the check, lint and the demo --------------------------------------------

class Check(InFolder):
    def of(self, statuses, build=0):
        """The check's status and last lines, its suites that ran, where scripts end with these statuses; build: what lacks compilers."""
        check, ran, said = script("check"), [], io.StringIO()

        def run(command, log, on_line=lambda line: None, env=None):
            name = Path(command[0]).name
            if name == "deps" and "--missing" in command:
                return build
            if statuses.get(name):
                on_line(f"scripts/{name}: something is missing; do this")
            return statuses.get(name, 0)

        def suite(name, *_):
            ran.append(name)
            return check.Count(passed=1)

        with mock.patch.object(check, "run", run), mock.patch.object(check, "BUILD", self.folder), \
                mock.patch.object(check, "LOGS", self.folder / "logs"), mock.patch.object(check, "run_suite", suite), \
                mock.patch.object(sys, "argv", ["check", "debug", "lint"]), contextlib.redirect_stdout(said), \
                mock.patch.dict(os.environ, {"WEIR_HOME": str(self.home)}):
            status = check.main()
        return status, ran, said.getvalue().splitlines()

    def test_a_full_disk_ends_it_at_once(self):
        status, ran, said = self.of({"engines": st.FULL})
        self.assertEqual((1, []), (status, ran))
        self.assertIn("The check ended: scripts/engines: something is missing; do this", said)
        self.assertEqual("0 passed, 1 failed, 0 skipped", said[-1])

    def test_so_do_missing_compilers_and_nothing_else_that_is_missing(self):
        status, ran, said = self.of({"deps": 1}, build=1)
        self.assertEqual((1, []), (status, ran))
        self.assertIn("The check ended: nothing can be built: scripts/deps: something is missing; do this", said)
        status, ran, said = self.of({"deps": 1, "models": 1})
        self.assertEqual((1, ["debug", "lint"]), (status, ran))
        self.assertEqual("2 passed, 2 failed, 0 skipped", said[-1])
        self.assertIn("    scripts/models: something is missing; do this", said[-6:])

    def test_a_folder_that_cannot_be_written_is_one_line(self):
        (self.folder / "logs").touch()
        status, ran, said = self.of({})
        self.assertEqual((1, []), (status, ran))
        self.assertRegex(said[0], f"^The check ended: .*{self.folder}/logs")

    def test_a_build_that_fills_the_disk_ends_it(self):
        check = script("check")

        def run(command, log, on_line=lambda line: None, env=None):
            on_line(f"{command[0].name}: the disk is full")
            return st.FULL

        with mock.patch.object(check, "run", run):
            with self.assertRaisesRegex(check.Ended, "build: the disk is full"):
                check.build("debug", check.SUITES["debug"], None)
            with self.assertRaisesRegex(check.Ended, "lint: the disk is full"):
                check.lint(False, None)

    def test_a_build_that_fails_is_told_again_at_the_end(self):
        check = script("check")

        def run(command, log, on_line=lambda line: None, env=None):
            on_line("scripts/build: the tree was made elsewhere; remove it")
            return 1

        with mock.patch.object(check, "run", run), mock.patch.object(check, "FAILED", {}) as failed:
            self.assertFalse(check.build("debug", check.SUITES["debug"], None))
        self.assertEqual([["debug: scripts/build: the tree was made elsewhere; remove it"]], list(failed.values()))

    def test_half_of_ctests_answer_is_no_pass(self):
        check, junit = script("check"), self.folder / "debug.xml"
        with mock.patch.object(check, "LOGS", self.folder), mock.patch.object(check, "BUILD", self.folder), \
                mock.patch.object(check, "run", lambda *_, **__: junit.write_text('<testsuite><testcase name="a" sta') * 0), \
                open(self.folder / "log", "w") as log:
            count = check.run_tests("debug", check.SUITES["debug"], ["ctest"], {}, log)
        self.assertEqual("0 passed, 1 failed, 0 skipped", str(count))


    def test_a_commit_that_git_does_not_know_is_named(self):
        done = subprocess.run([sys.executable, "-B", SCRIPTS / "check", "--quick", "no-such-commit"], text=True, capture_output=True, timeout=1000,
                              env={**os.environ, "BUILD": str(self.folder)}, check=False)
        self.assertEqual((1, ""), (done.returncode, done.stderr))
        self.assertIn("The check ended: git knows no commit no-such-commit here", done.stdout)


class Lint(InFolder):
    def source(self, cache, answer):
        lint, source = script("lint"), self.folder / "a.c"
        source.write_text("int a;\n")
        with mock.patch.object(lint, "cache", lambda: cache), mock.patch.object(lint, "run", lambda *words: answer), \
                mock.patch.object(lint.shutil, "which", lambda name: f"/bin/{name}"):
            return lint.check_source(source, "cc -c a.c", "clang-tidy-14", False)

    def test_a_store_that_cannot_be_written_is_no_finding(self):
        self.assertEqual("", self.source(Path("/proc/nowhere/lint"), (0, "")))

    def test_a_configuration_that_fails_is_told_with_its_tree(self):
        lint = script("lint")
        for output, kind in (("ninja: error: failed recompaction: No space left on device\n", st.Full), ("CMake Error: badly\n", st.Failed)):
            with mock.patch.object(lint, "run", lambda *_: (1, output)), mock.patch.object(lint, "BUILD", self.folder), \
                    contextlib.redirect_stdout(io.StringIO()), self.assertRaisesRegex(kind, str(self.folder)) as raised:
                lint.commands()
            self.assertIs(kind, type(raised.exception))

    def test_a_killed_tool_is_a_finding_and_no_stamp(self):
        self.assertRegex(self.source(self.home, (-9, "")), "a.c:1: clang-tidy was killed by signal 9")
        self.assertFalse(self.home.exists())
        self.assertEqual("", self.source(self.home, (0, "")))
        self.assertIsNone(self.source(self.home, (1, "not asked again")))

    def test_a_stamp_that_is_no_file_says_nothing(self):
        self.source(self.home, (0, ""))
        stamp, = self.home.iterdir()
        stamp.unlink()
        stamp.mkdir()
        self.assertIn("again", self.source(self.home, (1, "asked again")))


class Demo(InFolder):
    def test_no_proxy_is_asked_for_the_server_of_this_machine(self):
        index = Index()
        self.addCleanup(index.end)
        with mock.patch.dict(os.environ, {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}):
            demo, said = script("demo"), io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                demo.ask(f"http://127.0.0.1:{index.server_port}/", {})
        self.assertRegex(said.getvalue(), r"\Ademo: weir serve did not answer .*HTTP Error 501")

    def test_a_store_without_its_python_names_what_makes_it(self):
        (self.folder / "bin").mkdir()
        (self.folder / "bin/weir").touch()
        done = subprocess.run([sys.executable, "-B", SCRIPTS / "demo", self.folder], env={**os.environ, "WEIR_HOME": str(self.home)},
                              text=True, capture_output=True, timeout=1000, check=False)
        self.assertEqual((1, f"demo: {self.home}/venv is not there: run scripts/venv venv (or make demo)\n"), (done.returncode, done.stderr))


if __name__ == "__main__":
    unittest.main()
