#!/usr/bin/env python3
"""Tests of scripts/engines and scripts/models: quick, without a network.

Run with any python3: python3 tests/scripts/test_store.py
"""

import fcntl
import importlib.machinery
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
sys.path[:0] = [str(SCRIPTS), str(Path(__file__).resolve().parent)]
sys.dont_write_bytecode = True

import store as st  # noqa: E402
from test_cuda_trim import container, entry, library  # noqa: E402


def module_of(name):
    loader = importlib.machinery.SourceFileLoader(name, str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


engines, models = module_of("engines"), module_of("models")

PINS = st.pins()
REAL = st.default_home()
WHEEL = PINS["onnxruntime"]["files"].get(st.machine(), {}).get("name", "")
GENAI = PINS["onnxruntime-genai"]["files"].get(st.machine(), {}).get("name", "")

# The first random matrix of tiny-llama: whoever changes it changes everybody's recorded answers.
NOISE = "02a5db5ece69e7e7a5e5f75844b6c8c21f95e8459da53357a7639c146c0dd9ac"


# Runs a script, and tells what it read whole, called and imported: in an argument, its path; then its words.
WATCH = """
import json, runpy, sys
sys.path.insert(0, sys.argv[1].rpartition('/')[0])
import store
did, sum_of = {'read': [], 'called': []}, store.sha256_of
store.sha256_of = lambda path: did['read'].append(str(path)) or sum_of(path)
store.run = lambda command, *_, **__: did['called'].append(list(map(str, command))) or 1
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name='__main__')
except SystemExit as left:
    did['status'] = left.code
did['imported'] = sorted(sys.modules)
print(json.dumps(did), file=sys.stderr)
"""


def finds_everything(test, home, script, name):
    """A call that finds what is wanted is quick because of what it leaves out: nothing of the store is read, nothing is called."""
    env = dict(os.environ, WEIR_HOME=str(home), PATH="/nowhere")
    answer = subprocess.run([sys.executable, "-B", "-c", WATCH, SCRIPTS / script, name], env=env, text=True, capture_output=True,
                            timeout=1000, check=False)
    test.assertEqual(answer.returncode, 0, answer.stderr)
    test.assertIn("ready", answer.stdout)
    did = json.loads(answer.stderr)
    test.assertEqual((did["status"], did["called"]), (0, []))
    test.assertNotIn("cuda_trim", did["imported"])
    test.assertEqual([path for path in did["read"] if not Path(path).is_relative_to(SCRIPTS)], [])
    test.assertLessEqual(len(did["read"]), 8)


def call(home, script, *arguments, **more):
    """Run a script in that store; no package index can be reached."""
    env = dict(os.environ, WEIR_HOME=str(home), PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
    env.pop("PIP_FIND_LINKS", None)
    env.update(more.pop("env", {}))
    return subprocess.run([sys.executable, SCRIPTS / script, *arguments], env=env, text=True,
                          capture_output=True, timeout=1000, **more)


def contents(home):
    return sorted(str(path.relative_to(home)) for path in Path(home).rglob("*")
                  if not path.is_dir() and path.name != ".lock" and path.parent.name != "logs")


def alive_in_group(group):
    """Processes of that group, but for those that are dead and only not waited for."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, number = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(number) == group and state != "Z":
            found.append(path.parent.name)
    return found


class Quiet:
    """A screen that remembers."""
    terminal = False

    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)

    def clear(self):
        pass

    def progress(self, *_):
        pass


class InEmptyStore(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.home = Path(self.folder.name) / "store"
        self.addCleanup(self.folder.cleanup)

    def item(self, text="one", recipe=1, whole=True, current=None, make=None):
        store = st.Store(self.home, Quiet())

        def write(folder):
            (folder / "thing").write_text(text)
            (folder / "link").symlink_to("thing")
        place = self.home / "things" / "1.0" if whole else self.home / "models"
        return st.Item(store, "thing", "1.0", place, recipe, make or write, whole=whole,
                       current=self.home / "things" / "current" if current else None,
                       shown=None if whole else place / "thing")


class CommandLine(InEmptyStore):
    def test_help(self):
        for script in ("engines", "models", "venv"):
            answer = call(self.home, script, "--help")
            self.assertEqual(answer.returncode, 0)
            self.assertIn("--force", answer.stdout)
            self.assertIn("--list", answer.stdout)

    def test_bad_usage_is_two(self):
        for arguments in (["engines", "tensorflow"], ["engines", "--jobs", "0"], ["engines", "--jobs", "many"],
                          ["engines", "--arch", "90"], ["engines", "--cuda", "--small"], ["engines", "onnxruntime-cuda"],
                          ["engines", "--frobnicate"], ["models", "gpt-5.gguf"], ["models", "--jobs", "2"]):
            answer = call(self.home, *arguments)
            self.assertEqual(answer.returncode, 2, arguments)
            self.assertIn("usage:", answer.stderr)
        self.assertFalse(self.home.exists())

    def test_list_makes_nothing(self):
        for script, name in (("engines", "onnxruntime"), ("models", "tiny-llama.gguf"), ("models", "tiny-llm")):
            answer = call(self.home, script, "--list")
            self.assertEqual(answer.returncode, 0)
            self.assertRegex(answer.stdout, rf"{name}\s+\S+\s+missing")
        self.assertFalse(self.home.exists())

    def test_cuda_is_asked_for(self):
        answer = call(self.home, "engines", "--list").stdout
        self.assertNotIn("-cuda", answer)
        self.assertRegex(answer, r"onnxruntime-genai\s+0.18.0\s+missing")
        for arguments, version, genai in (([], "1.31.1", "0.18.0"), (["--arch", "90"], "1.31.1-sm90", "0.18.0-sm90"),
                                          (["--arch", "80", "--small"], "1.31.1-sm80-small", "0.18.0-sm80")):
            answer = call(self.home, "engines", "--cuda", "--list", *arguments)
            self.assertRegex(answer.stdout, rf"onnxruntime-cuda\s+{version}\s+missing")
            self.assertRegex(answer.stdout, rf"onnxruntime-genai-cuda\s+{genai}\s+missing")

    def test_openvino_is_asked_for(self):
        self.assertNotIn("onnxruntime-openvino", call(self.home, "engines", "--list").stdout)
        answer = call(self.home, "engines", "--openvino", "--list")
        self.assertRegex(answer.stdout, r"onnxruntime-openvino\s+1.24.1\s+missing")

    def test_json_is_one_object(self):
        answer = call(self.home, "engines", "--list", "--json")
        value = json.loads(answer.stdout)
        self.assertEqual([(row["name"], row["state"]) for row in value["items"]],
                         [(name, "missing") for name in ("onnxruntime", "onnxruntime-genai", "llama")])
        answer = call(self.home, "engines", "onnxruntime", "--json")
        self.assertEqual(answer.returncode, 1)
        self.assertEqual(json.loads(answer.stdout)["failures"][0]["name"], "onnxruntime")

    def test_home_follows_xdg(self):
        answer = call("", "engines", "--list", env={"XDG_CACHE_HOME": self.folder.name})
        self.assertIn(f"{self.folder.name}/weir/engines", answer.stdout)


class Downloads(InEmptyStore):
    def plant(self, data):
        planted = self.home / "downloads" / WHEEL
        planted.parent.mkdir(parents=True)
        planted.write_bytes(data)
        return planted

    def test_planted_file_with_another_hash(self):
        planted = self.plant(b"not a wheel")
        answer = call(self.home, "engines", "onnxruntime")
        self.assertEqual(answer.returncode, 1)
        self.assertIn("not the pinned", answer.stderr)
        self.assertIn("could not be downloaded", answer.stderr)
        self.assertFalse(planted.exists())
        self.assertEqual(contents(self.home), [])

    def test_no_network_is_one_clear_line(self):
        answer = call(self.home, "engines", "onnxruntime")
        self.assertEqual(answer.returncode, 1)
        last = answer.stderr.strip().split("\n")[-1]
        self.assertIn("is there a network?", last)
        self.assertIn(str(self.home / "downloads"), last)
        self.assertIn("download-onnxruntime.log", last)
        self.assertNotIn("Traceback", answer.stderr)
        self.assertEqual(contents(self.home), [])

    def test_index_with_another_file_of_that_name(self):
        index = Path(self.folder.name) / "index"
        index.mkdir()
        (index / WHEEL).write_bytes(b"not a wheel")
        answer = call(self.home, "engines", "onnxruntime", env={"PIP_FIND_LINKS": str(index)})
        self.assertEqual(answer.returncode, 1)
        self.assertIn("another hash", answer.stderr)
        self.assertEqual(contents(self.home), [])

    @unittest.skipUnless((REAL / "downloads" / WHEEL).is_file(),
                         "the wheel is not in the default store")
    def test_file_with_the_right_hash_needs_no_network(self):
        (self.home / "downloads").mkdir(parents=True)
        os.symlink(REAL / "downloads" / WHEEL, self.home / "downloads" / WHEEL)
        answer = call(self.home, "engines", "onnxruntime")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        version = PINS["onnxruntime"]["version"]
        current = self.home / "engines" / "onnxruntime" / "current"
        self.assertEqual(os.readlink(current), version)
        self.assertEqual(os.readlink(current / "libonnxruntime.so"), f"libonnxruntime.so.{version}")
        self.assertTrue((current / "LICENSE").exists())
        # A second call finds everything; a changed library is noticed and made again.
        finds_everything(self, self.home, "engines", "onnxruntime")
        (current / f"libonnxruntime.so.{version}").write_bytes(b"")
        self.assertIn("damaged", call(self.home, "engines", "onnxruntime", "--list").stdout)
        answer = call(self.home, "engines", "onnxruntime")
        self.assertIn("was changed after it was made", answer.stderr)
        self.assertIn("ready", answer.stdout)

    @unittest.skipUnless((REAL / "downloads" / GENAI).is_file(), "the wheel is not in the default store")
    def test_genai_is_in_its_wheel(self):
        (self.home / "downloads").mkdir(parents=True)
        os.symlink(REAL / "downloads" / GENAI, self.home / "downloads" / GENAI)
        answer = call(self.home, "engines", "onnxruntime-genai")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        finds_everything(self, self.home, "engines", "onnxruntime-genai")
        found = self.home / "engines/onnxruntime-genai/current"
        self.assertEqual(sorted(path.name for path in found.iterdir()),
                         [".stamp", "LICENSE", "ThirdPartyNotices.txt", "libonnxruntime-genai.so"])
        self.assertIn("MIT License", (found / "LICENSE").read_text())

    def test_pins_are_whole(self):
        for name, pin in PINS.items():
            for file in pin["files"].values():
                self.assertRegex(file["sha256"], r"^[0-9a-f]{64}$", name)
                self.assertGreater(file["size"], 0)
                self.assertIn(pin["version"], file["name"])
        for name in ("onnxruntime", "onnxruntime-genai"):
            self.assertEqual(set(PINS[name]["files"]), {"x86_64", "aarch64"})
            self.assertEqual(set(PINS[name + "-cuda"]["files"]), {"x86_64"})
        self.assertRegex(PINS["llama"]["commit"], r"^[0-9a-f]{40}$")

    def test_pins_of_real_models_are_whole(self):
        names = set()
        for name, pin in models.real_pins().items():
            self.assertEqual(name, pin["project"])
            for file in pin["files"].values():
                self.assertRegex(file["sha256"], r"^[0-9a-f]{64}$", name)
                self.assertLess(file["size"], 100_000_000, name)
                self.assertIn(pin["version"], file["name"])
            self.assertTrue(pin["models"], name)
            self.assertFalse(names & set(pin["models"]), name)
            names |= set(pin["models"])
            self.assertTrue(all(outside.startswith(f"{name}.") and outside.endswith(".onnx") for outside in pin["models"]), name)
        self.assertLess(sum(file["size"] for pin in models.real_pins().values() for file in pin["files"].values()), 1 << 30)


class Packages(InEmptyStore):
    """Models out of a package that is made here."""
    PIN = {"project": "thing", "version": "1", "files": {"any": {"name": "thing-1-py3-none-any.whl", "sha256": "0" * 64, "size": 9}},
           "models": {"thing.small.onnx": "thing/data/small.onnx", "thing.other.onnx": "thing/other.onnx"}}

    def test_the_named_models_are_taken_and_nothing_else(self):
        store = st.Store(self.home, Quiet())
        wheel = Path(self.folder.name) / "wheel.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for inside in ("thing/data/small.onnx", "thing/other.onnx", "thing/code.py"):
                archive.writestr(inside, inside)
        asked = []

        def fetch(name, pin):
            asked.append((name, pin))
            return wheel
        store.fetch = fetch
        with mock.patch.object(models, "real_pins", lambda: {"thing": self.PIN}):
            item, = models.real_items(store).values()
        self.assertTrue(item.ensure())
        self.assertFalse(item.ensure())
        self.assertEqual(asked, [("thing", self.PIN)])
        place = self.home / "models/real"
        self.assertEqual(sorted(path.name for path in place.iterdir()), [".thing.stamp", "thing.other.onnx", "thing.small.onnx"])
        self.assertEqual((place / "thing.small.onnx").read_text(), "thing/data/small.onnx")


class Wheels(InEmptyStore):
    """ONNX Runtime GenAI out of wheels that are made here."""
    FILES = {"LICENSE": b"MIT", "ThirdPartyNotices.txt": b"others", "__init__.py": b"", "libonnxruntime-genai.so": b"code",
             "libonnxruntime-genai-cuda.so": bytes(library(container(entry(80, b"eighty"), entry(90, b"ninety"))))}

    def item(self, name, *libraries, arch=None):
        store = st.Store(self.home, Quiet())
        wheel = Path(self.folder.name) / "wheel.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for inside, data in self.FILES.items():
                archive.writestr(f"onnxruntime_genai/{inside}", data)
        store.fetch = {name: wheel}.__getitem__
        return engines.genai(store, PINS, name, *libraries, arch=arch)

    def test_one_library_and_what_it_may_be_used_for(self):
        item = self.item("onnxruntime-genai", engines.GENAI)
        self.assertTrue(item.ensure())
        self.assertEqual(contents(self.home), [f"engines/onnxruntime-genai/{path}" for path in (
            "0.18.0/.stamp", "0.18.0/LICENSE", "0.18.0/ThirdPartyNotices.txt", "0.18.0/libonnxruntime-genai.so")])
        self.assertEqual(os.readlink(item.current), "0.18.0")
        self.assertTrue(os.access(item.current / engines.GENAI, os.X_OK))

    def test_for_cuda_there_are_two_and_one_keeps_an_architecture(self):
        for arch, place, kept in ((None, "0.18.0", [True, True]), (90, "0.18.0-sm90", [False, True])):
            item = self.item("onnxruntime-genai-cuda", engines.GENAI, engines.GENAI_CUDA, arch=arch)
            self.assertTrue(item.ensure())
            self.assertEqual(os.readlink(self.home / "engines/onnxruntime-genai-cuda/current"), place)
            self.assertEqual((item.place / engines.GENAI).read_bytes(), b"code")
            code = (item.place / engines.GENAI_CUDA).read_bytes()
            self.assertEqual([word in code for word in (b"eighty", b"ninety")], kept)
        with self.assertRaisesRegex(st.Failed, "genai-cuda: .*no code for the architecture 75"):
            self.item("onnxruntime-genai-cuda", engines.GENAI, engines.GENAI_CUDA, arch=75).ensure()


class Tools(InEmptyStore):
    def test_missing_tools_are_named_before_anything_is_fetched(self):
        answer = call(self.home, "engines", "llama", env={"PATH": "/nowhere"})
        self.assertEqual(answer.returncode, 1)
        self.assertIn("sudo apt install cmake ninja-build g++", answer.stderr)
        self.assertEqual(contents(self.home), [])


class Items(InEmptyStore):
    def test_made_once(self):
        item = self.item(current=True)
        self.assertEqual(item.state()[0], "missing")
        self.assertTrue(item.ensure())
        self.assertFalse(item.ensure())
        self.assertEqual(item.state(), ("ready", ""))
        self.assertEqual((self.home / "things" / "current" / "thing").read_text(), "one")
        self.assertTrue(self.item("two").ensure(force=True))
        self.assertEqual((self.home / "things" / "1.0" / "thing").read_text(), "two")
        self.assertFalse((self.home / "tmp").exists())

    def test_another_recipe_is_stale(self):
        self.item().ensure()
        self.assertEqual(self.item(recipe=2).state()[0], "stale")
        self.assertTrue(self.item(recipe=2).ensure())

    def test_damage_is_noticed(self):
        for whole in (True, False):
            def same_size(item):
                (item.place / "thing").write_text("eno")

            def longer(item):
                (item.place / "thing").write_text("one more")

            def gone(item):
                (item.place / "thing").unlink()

            def relinked(item):
                (item.place / "link").unlink()
                (item.place / "link").symlink_to("/etc/passwd")

            def no_stamp(item):
                item.stamp.unlink()

            def broken_stamp(item):
                item.stamp.write_text("[1, ")

            def folder_instead(item):
                (item.place / "thing").unlink()
                (item.place / "thing").mkdir()
            for damage in (same_size, longer, gone, relinked, no_stamp, broken_stamp, folder_instead):
                with self.subTest(whole=whole, damage=damage.__name__):
                    item = self.item(whole=whole)
                    item.ensure()
                    damage(item)
                    self.assertEqual(item.state()[0], "damaged")
                    self.assertTrue(item.ensure())
                    self.assertEqual(item.state(), ("ready", ""))
                    self.assertTrue(any("making it again" in line for line in item.store.screen.lines))
                    shutil.rmtree(self.home)

    def test_touching_a_file_is_no_damage(self):
        item = self.item()
        item.ensure()
        os.utime(item.place / "thing", (1, 1))
        self.assertEqual(item.state()[0], "ready")

    def test_current_pointing_elsewhere(self):
        item = self.item(current=True)
        item.ensure()
        item.current.unlink()
        item.current.symlink_to("0.9")
        self.assertEqual(item.state()[0], "damaged")
        item.ensure()
        self.assertEqual(os.readlink(item.current), "1.0")

    def test_failure_keeps_what_was_there(self):
        self.item().ensure()

        for error in (st.Failed("broken"), KeyboardInterrupt(), OSError(28, "No space left on device")):
            def fail(folder, error=error):
                (folder / "thing").write_text("half")
                raise error
            with self.assertRaises(type(error)):
                self.item(recipe=2, make=fail).ensure()
            self.assertEqual((self.home / "things" / "1.0" / "thing").read_text(), "one")
            self.assertEqual(contents(self.home), ["things/1.0/.stamp", "things/1.0/link", "things/1.0/thing"])

    def test_leftovers_of_a_killed_process_are_cleared(self):
        (self.home / "tmp" / "llama.1.2").mkdir(parents=True)
        self.item().ensure()
        self.assertFalse((self.home / "tmp").exists())


class Together(InEmptyStore):
    def test_second_call_waits_for_the_first(self):
        self.home.mkdir()
        with open(self.home / ".lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write("process 1 (somebody)\n")
            file.flush()
            env = dict(os.environ, WEIR_HOME=str(self.home), PIP_NO_INDEX="1")
            waiting = subprocess.Popen([sys.executable, SCRIPTS / "engines", "onnxruntime"], env=env, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            line = waiting.stderr.readline()
            self.assertIn("waiting for process 1 (somebody)", line)
            self.assertIsNone(waiting.poll())
            waiting.send_signal(signal.SIGINT)
            _, errors = waiting.communicate(timeout=1000)
        self.assertEqual(waiting.returncode, 1)
        self.assertIn("interrupted", errors)
        self.assertNotIn("Traceback", errors)

    def test_many_makers_make_once(self):
        program = (
            "import sys, time, os\n"
            f"sys.path.insert(0, {str(SCRIPTS)!r})\n"
            "import store as st\n"
            "from pathlib import Path\n"
            f"store = st.Store({str(self.home)!r})\n"
            "def make(folder):\n"
            "    time.sleep(0.2)\n"
            "    (folder / 'thing').write_text(str(os.getpid()))\n"
            "item = st.Item(store, 'thing', '1', store.path('things', '1'), 1, make)\n"
            "print('made' if item.ensure() else 'found', (item.place / 'thing').read_text())\n")
        makers = [subprocess.Popen([sys.executable, "-B", "-c", program], text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL) for _ in range(4)]
        answers = [maker.communicate(timeout=1000)[0].split() for maker in makers]
        self.assertEqual(sorted(word for word, _ in answers), ["found", "found", "found", "made"])
        self.assertEqual(len({text for _, text in answers}), 1)

    def test_children_end_with_an_interrupt(self):
        program = (
            "import sys\n"
            f"sys.path.insert(0, {str(SCRIPTS)!r})\n"
            "import store as st\n"
            "st.interrupt_on_signals()\n"
            f"log = open({str(Path(self.folder.name) / 'log')!r}, 'w')\n"
            "st.run(['sh', '-c', 'echo $$; sleep 3600 & wait'], log, on_line=lambda line: print(line, flush=True))\n")
        process = subprocess.Popen([sys.executable, "-B", "-c", program], text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        group = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stdout.close()
        while alive_in_group(group):  # what is killed takes a moment; what is not goes on for an hour
            time.sleep(0.02)


class RealStore(unittest.TestCase):
    """What the default store holds, if it is there."""

    def ready(self, script, name):
        answer = call(REAL, script, "--list", "--json")
        rows = {row["name"]: row for row in json.loads(answer.stdout)["items"]}
        if rows[name]["state"] != "ready":
            self.skipTest(f"{name} is not in the default store")
        return Path(rows[name]["path"])

    def test_second_call_does_nothing(self):
        for script, name in (("engines", "llama"), ("models", "minilm.onnx"), ("models", "tiny-llm")):
            with self.subTest(name=name):
                self.ready(script, name)
                finds_everything(self, REAL, script, name)

    @unittest.skipUnless((REAL / "venv/bin/python").exists(), "the store's Python is not here")
    def test_models_are_the_same_bytes_again(self):
        python = REAL / "venv" / "bin" / "python"
        sources = {"minilm.onnx": ["minilm.safetensors"],
                   "minilm.gguf": ["minilm.safetensors", "minilm-tokenizer.json"]}
        for name, needed in sources.items():
            made = self.ready("models", name)
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / name
                subprocess.run([python, "-B", SCRIPTS / "model_files.py", name,
                                *(made.parent / each for each in needed), out], check=True)
                self.assertEqual(st.sha256_of(out), st.sha256_of(made), name)

    @unittest.skipUnless((REAL / "venv/bin/python").exists(), "the store's Python is not here")
    def test_models_in_folders_are_the_same_bytes_again(self):
        for name, cache in (("tiny-llm", "shared"), ("tiny-llm-concat", "concat")):
            made = self.ready("models", name)
            with tempfile.TemporaryDirectory() as folder:
                subprocess.run([REAL / "venv/bin/python", "-B", SCRIPTS / "llm_model.py", folder, "--cache", cache], check=True,
                               stdout=subprocess.DEVNULL)
                for path in Path(folder).iterdir():
                    self.assertEqual(path.read_bytes(), (made / path.name).read_bytes(), f"{name}: {path.name}")
                self.assertEqual({path.name for path in made.iterdir()} - {".stamp"}, set(os.listdir(folder)))

    def test_random_weights_are_the_same_everywhere(self):
        self.ready("models", "tiny-llama.gguf")
        program = (
            "import hashlib, sys\n"
            f"sys.path.insert(0, {str(SCRIPTS)!r})\n"
            "import model_files\n"
            "noise = model_files.noise('blk.0.attn_q.weight', (256, 256), 1 / 16)\n"
            "print(hashlib.sha256(noise.tobytes()).hexdigest())\n")
        answer = subprocess.run([REAL / "venv" / "bin" / "python", "-B", "-c", program],
                                text=True, capture_output=True)
        self.assertEqual(answer.stdout.strip(), NOISE, answer.stderr)

    def test_llama_says_its_commit(self):
        place = self.ready("engines", "llama")
        facts = dict(line.split("=", 1) for line in (place / "commit").read_text().splitlines())
        self.assertEqual(facts["commit"], PINS["llama"]["commit"])
        self.assertEqual(os.readlink(place.parent / "current"), PINS["llama"]["commit"][:12])

    def test_reference_of_related_sentences(self):
        self.ready("models", "minilm")
        with tempfile.TemporaryDirectory() as folder:
            sentences = Path(folder) / "sentences.txt"
            sentences.write_text("A cat sits on the mat\nA feline rests on a rug\nShares fell on Monday\n")
            out = Path(folder) / "out.npy"
            python = REAL / "venv" / "bin" / "python"
            subprocess.run([python, "-B", ROOT / "tests" / "reference" / "minilm.py", sentences, out], check=True,
                           env=dict(os.environ, WEIR_HOME=str(REAL)))
            program = ("import numpy, sys; e = numpy.load(sys.argv[1]); s = e @ e.T\n"
                       "assert e.shape == (3, 384) and abs(s.diagonal() - 1).max() < 1e-12\n"
                       "assert s[0, 1] > 0.5 > 0.2 > s[0, 2], s\n")
            subprocess.run([python, "-c", program, out], check=True)


if __name__ == "__main__":
    unittest.main()
