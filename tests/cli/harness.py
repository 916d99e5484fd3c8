"""What the tests of the command share: two small engines built with the plain compiler, outside weir's own build, as
anybody would build theirs; a scratch folder; and weir, called with an environment of its own."""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("WEIR_TEST_BINARY", SOURCE / "build/debug"))
COMMAND = BUILD / "bin/weir"
STORE = Path(os.environ.get("WEIR_TEST_STORE", "/nonexistent"))
SANITIZED = bool(os.environ.get("WEIR_TEST_SANITIZE"))
MIB = 1 << 20


def compile_engine(source, folder):
    name = Path(source).stem
    subprocess.run(
        [os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC",
         "-I", SOURCE / "include", "-o", Path(folder) / f"weir-engine-{name}.so", source, "-L", BUILD / "lib", "-lweir"],
        check=True)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engines = tempfile.mkdtemp(prefix="weir-engines-")
        cls.addClassCleanup(shutil.rmtree, cls.engines)
        compile_engine(SOURCE / "examples/toy-engine/toy.c", cls.engines)
        compile_engine(SOURCE / "tests/cli/echo.c", cls.engines)

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="weir-cli-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.write("a.toy", "3 1 2 3")
        self.write("b.toy", "4 10 20 30 40")

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def environment(self, more):
        kept = {key: value for key, value in os.environ.items()
                if not key.startswith("WEIR_") and not key.endswith("_VISIBLE_DEVICES") and key != "CUDA_DEVICE_ORDER"}
        # Without a budget, how much there is would depend on what else the machine does.
        kept.update({"WEIR_BUDGET": "1GiB", "WEIR_ENGINE_PATH": self.engines, "WEIR_HOME": str(self.folder / "store"), "LC_ALL": "C.UTF-8",
                     "WEIR_PREDICTIONS": "0", "WEIR_SERVER": ""})  # whoever serves on this machine is not asked
        # The leak checker of gcc 12 looks for threads' variables where glibc has none, and dies of it with some libraries.
        if SANITIZED:
            kept["ASAN_OPTIONS"] = kept.get("ASAN_OPTIONS", "") + ":intercept_tls_get_addr=0"
        kept.update(more)
        return kept

    def weir(self, *words, status=0, **environment):
        """Calls weir; answers (standard output, standard error). With status None any will do."""
        done = subprocess.run([COMMAND, *map(str, words)], cwd=self.folder, env=self.environment(environment), timeout=1000,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, error = done.stdout.decode(), done.stderr.decode()
        if status is not None:
            self.assertEqual(done.returncode, status, f"weir {words}\n{out}\n{error}")
        return out, error

    def weir_json(self, *words, status=0, **environment):
        """Calls weir with --json; all of standard output is one object. Standard error is in self.error."""
        out, self.error = self.weir(*words, "--json", status=status, **environment)
        answer = json.loads(out)
        self.assertIsInstance(answer, dict)
        return answer

    def refused(self, *words, status=2, **environment):
        """Calls weir with words that it does not take; answers the one line that it says."""
        out, error = self.weir(*words, status=status, **environment)
        if status == 2:
            self.assertEqual(out, "")
        self.one_line(error)
        return error

    def one_line(self, error):
        self.assertTrue(error.startswith("weir: "), error)
        self.assertEqual(error.count("\n"), 1, error)
        self.assertTrue(error.endswith("\n"), error)

    def client(self, answer, name):
        found = [client for client in answer["clients"] if client["name"] == name]
        self.assertEqual(len(found), 1, answer)
        return found[0]

    def accepted(self, *words, status=0, **environment):
        """What would be tried, in order."""
        answer = self.weir_json("explain", *words, status=status, **environment)
        return [c for c in answer["candidates"] if c["verdict"] == "ACCEPTED"], answer

    def explained_and_run(self, *words, budget="1GiB", run=(), **environment):
        """Runs what is explained: the attempts are the accepted candidates, up to the one that serves. Answers its client."""
        accepted, _ = self.accepted(*words, WEIR_BUDGET=budget, **environment)
        answer = self.weir_json("run", *words, *run, WEIR_BUDGET=budget, **environment)
        client = self.client(answer, words[0])
        tried = [(a["engine"], a["provider"], a["device"]) for a in client["attempts"]]
        self.assertEqual(tried, [(c["engine"], c["provider"], c["device"]) for c in accepted][:len(tried)])
        self.assertEqual([a["code"] == "WEIR_OK" for a in client["attempts"]], [False] * (len(tried) - 1) + [True])
        last = accepted[len(tried) - 1]
        self.assertEqual((client["engine"], client["provider"], client["device"]), (last["engine"], last["provider"], last["runtime"]))
        self.assertEqual(answer["live_at_end"], 0)
        self.assertEqual({d["live_at_end"] for d in answer["devices"]}, {0})
        if last.get("bytes"):  # it has what was predicted, and more
            self.assertGreaterEqual(client["attempts"][-1]["bytes"], last["bytes"]["weights"])
        return client


class StoreCase(Case):
    """With the real engines and models of the store."""
    MODELS = ("minilm.onnx", "minilm.gguf", "tiny-llm")

    @classmethod
    def setUpClass(cls):
        cls.engines = BUILD / "lib/weir"
        needed = ["engines/onnxruntime/current", "engines/llama", "engines/onnxruntime-genai/current", *(f"models/{name}" for name in cls.MODELS)]
        lacking = [str(STORE / name) for name in needed if not (STORE / name).exists()]
        if lacking:
            raise unittest.SkipTest("not here: " + ", ".join(lacking))

    def environment(self, more):
        return super().environment({"WEIR_HOME": str(STORE), **more})


PACKAGES = (BUILD / "tests/test-manifest-packages").exists()  # which is built where libarchive is
CLASSES = ("weights", "activations", "kv", "scratch", "other")


def npy(descr, shape, data, fortran=False, version=1, header=None):
    """An NPY file. `header` replaces the dictionary's text."""
    text = header if header is not None else f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape!r}, }}"
    text = text.encode()
    width = 2 if version == 1 else 4
    text += b" " * (-(8 + width + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


def read_npy(path):
    """(descr, shape, data) of a file that weir wrote."""
    content = Path(path).read_bytes()
    assert content[:8] == b"\x93NUMPY\x01\x00", content[:8]
    length, = struct.unpack("<H", content[8:10])
    assert (10 + length) % 64 == 0 and content[9 + length:10 + length] == b"\n"
    header = eval(content[10:10 + length], {"__builtins__": {}})  # pylint: disable=eval-used
    assert set(header) == {"descr", "fortran_order", "shape"} and header["fortran_order"] is False
    return header["descr"], header["shape"], content[10 + length:]


def main():
    """Runs the calling file's tests; says at the end how many, as cmocka's programs do."""
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stderr).run(
        unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    bad, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    if skipped and os.environ.get("WEIR_REQUIRE_ENGINES") == "1" and not SANITIZED:
        print("tests were skipped, and WEIR_REQUIRE_ENGINES=1 does not allow it")
        bad, skipped = bad + skipped, 0
    for kind, count in (("PASSED ", max(0, result.testsRun - bad - skipped)), ("SKIPPED", skipped), ("FAILED ", bad)):
        if count:
            print(f"[  {kind} ] {count} test(s).")
    sys.exit(1 if bad else 0)
