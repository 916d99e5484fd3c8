#!/usr/bin/env python3
"""Tests of scripts/engines --cuda llama-cuda: programs that are made up stand for nvcc, cmake and nvidia-smi, and a library of a few
lines, made by the C compiler, for llama.cpp's CUDA module."""

import contextlib
import importlib.machinery
import importlib.util
import io
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

import llama_cuda as lc  # noqa: E402
import store as st  # noqa: E402

LOADER = importlib.machinery.SourceFileLoader("engines", str(SCRIPTS / "engines"))
engines = importlib.util.module_from_spec(importlib.util.spec_from_loader("engines", LOADER))
LOADER.exec_module(engines)

PIN = st.pins()["llama"]
COMMIT = PIN["commit"][:12]
COMPILER = os.environ.get("CC", "cc")
NVCC = """case "$1" in
--version) echo "Cuda compilation tools, release 13.0, V13.0.1" ;;
--list-gpu-arch) printf 'compute_80\\ncompute_90\\n' ;;
esac"""
# Writes down its words, and puts the library there.
CMAKE = """echo "$@" >> '{folder}/called'
case "$1" in
-G) for word in "$@"; do case $last in -B) mkdir -p "$word/bin"; echo "$word" > '{folder}/tree' ;; esac; last=$word; done ;;
--build) {build} ;;
esac"""
CALLED = "".join(f"int {name}(void);\n" for name in lc.REDIRECTED)
MODULE = CALLED + "int ggml_base(void);\n" + "".join(f"__attribute__((visibility(\"default\"))) int {name}(void);\nint {name}(void)\n"
                                                     "{{ return ggml_base(); }}\n".replace("{{", "{").replace("}}", "}")
                                                     for name in (*lc.EXPORTED, "ggml_backend_cuda_get_device_count"))
USES = "int all(void);\nint all(void)\n{\n    return " + " + ".join(f"{name}()" for name in lc.REDIRECTED) + ";\n}\n"


class Quiet:
    terminal = False

    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)

    def clear(self):
        pass

    def progress(self, *_):
        pass


class InFolder(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)
        self.programs = self.folder / "programs"
        self.programs.mkdir()
        self.environment(PATH=f"{self.programs}{os.pathsep}{os.environ['PATH']}")
        os.environ.pop("CUDACXX", None)
        patched = mock.patch.object(lc, "TOOLKIT", self.folder / "toolkit")
        patched.start()
        self.addCleanup(patched.stop)

    def environment(self, **names):
        patched = mock.patch.dict(os.environ, names)
        patched.start()
        self.addCleanup(patched.stop)

    def program(self, name, text, folder=None):
        path = (folder or self.programs) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def compile(self, name, text, *words):
        source = self.folder / "source.c"
        source.write_text(text)
        command = [COMPILER, "-shared", "-fPIC", "-nostdlib", "-o", self.folder / name, source, *words]
        subprocess.run(command, check=True, capture_output=True)
        return self.folder / name

    def library(self, text=MODULE + USES, runtime="libcudart.so.13", base=lc.BASE, path=None, more=()):
        """As the module is one: what it needs, where it looks, what it exports and calls."""
        needs = [self.compile("cuda.so", CALLED.replace("(void);", "(void) { return 0; }"), f"-Wl,-soname,{runtime}"),
                 self.compile("base.so", "int ggml_base(void) { return 3; }", f"-Wl,-soname,{base}"), *more]
        return self.compile("libggml-cuda.so", text, "-Wl,--no-as-needed", *needs, f"-Wl,-rpath,{path or lc.rpath(COMMIT)}",
                            "-Wl,--enable-new-dtags", "-Wl,--allow-shlib-undefined")

    def refused(self, function, *words):
        with self.assertRaises(st.Failed) as refusal:
            function(*words)
        return str(refusal.exception)


class Finding(InFolder):
    def test_compiler_of_the_environment_of_the_path_and_of_the_toolkit_in_this_order(self):
        self.environment(PATH=str(self.programs))
        self.assertIn("nvcc is neither in PATH", self.refused(lc.find_nvcc))
        last = self.program("nvcc", NVCC, lc.TOOLKIT)
        self.assertEqual(lc.find_nvcc(), last)
        on_path = self.program("nvcc", NVCC)
        self.assertEqual(lc.find_nvcc(), on_path)
        named = self.program("nvcc", NVCC, self.folder / "named")
        self.environment(CUDACXX=str(named))
        self.assertEqual(lc.find_nvcc(), named)
        self.environment(CUDACXX="/nowhere/nvcc")
        self.assertIn("CUDACXX names /nowhere/nvcc", self.refused(lc.find_nvcc))

    def test_version_and_architectures_are_the_compilers_own_word(self):
        nvcc = self.program("nvcc", NVCC)
        self.assertEqual(lc.version_of(nvcc), "13.0")
        lc.need_arch(nvcc, [80, 90])
        self.assertIn("has no architecture 70; it has 80, 90", self.refused(lc.need_arch, nvcc, [70]))
        self.assertIn("no nvcc that works", self.refused(lc.version_of, self.program("nvcc", "exit 1")))

    def test_architectures_asked_for_here_and_there_already(self):
        current = self.folder / "current"
        self.program("nvidia-smi", "exit 9")
        self.assertEqual(lc.chosen_archs(None, current, COMMIT), [])
        current.symlink_to(f"{COMMIT}-sm80-sm90")
        self.assertEqual(lc.chosen_archs(None, current, COMMIT), [80, 90])
        self.assertEqual(lc.chosen_archs(None, current, "0123456789ab"), [])
        self.program("nvidia-smi", "printf '9.0\\n12.0\\n9.0\\n'")
        self.assertEqual(lc.chosen_archs(None, current, COMMIT), [90, 120])
        self.assertEqual(lc.chosen_archs(75, current, COMMIT), [75])
        self.assertEqual(lc.variant_of(COMMIT, [90, 120]), f"{COMMIT}-sm90-sm120")


class Checking(InFolder):
    def check(self, library):
        return lc.check_file(library, COMMIT)

    def test_a_module_as_it_should_be(self):
        self.assertEqual(self.check(self.library()), ["libcudart.so.13", lc.BASE])

    def test_what_is_wrong_is_said(self):
        other = self.compile("other.so", "int other(void) { return 0; }", "-Wl,-soname,libnccl.so.2")
        for words, said in (({"more": [other]}, "needs libnccl.so.2"), ({"base": "libggml-base.so.9"}, f"does not need {lc.BASE}"),
                            ({"runtime": "libcuda.so.1"}, "CUDA's runtime linked into it"),
                            ({"path": "/home/somebody/lib"}, "looks for libraries in '/home/somebody/lib'"),
                            ({"text": USES + CALLED}, "lacks ggml_backend_cuda_buffer_type, ggml_backend_cuda_host"),
                            ({"text": MODULE}, "does not call cuDeviceGetAttribute, cudaFree")):
            with self.subTest(said=said):
                self.assertIn(said, self.refused(self.check, self.library(**words)))
        self.assertIn("cannot be read", self.refused(self.check, self.program("no-library", "")))

    def test_it_is_opened_where_cudas_libraries_are(self):
        library = self.library(runtime="libcudart.so.99", path=str(self.folder))  # of which no machine has one
        base = self.folder / "base.so"
        self.assertIn("scripts/engines llama makes it", lc.check_opened(library, self.folder / "gone.so"))
        self.assertIn("was checked by reading it alone: it cannot be opened here, without libcudart.so.99",
                      lc.check_opened(library, base))
        (self.folder / "libcudart.so.99").symlink_to("cuda.so")
        self.assertEqual(lc.check_opened(library, base), "finds 3 devices")
        broken = self.compile("broken.so", "int gone(void); int here(void); int here(void) { return gone(); }", "-Wl,-z,now")
        self.assertIn("cannot be opened", self.refused(lc.check_opened, broken, base))


class Building(InFolder):
    def setUp(self):
        super().setUp()
        self.store = st.Store(self.folder / "store", Quiet())
        self.program("nvcc", NVCC)
        self.program("nvidia-smi", "exit 9")
        for name in ("ninja", "c++"):
            self.program(name, "")
        for patched in (mock.patch.object(engines, "unpack_llama", self.unpack),
                        mock.patch.object(self.store, "fetch", lambda name: self.folder / name)):
            patched.start()
            self.addCleanup(patched.stop)

    @staticmethod
    def unpack(_archive, _pin, folder):
        folder.mkdir()
        (folder / "LICENSE").write_text("MIT")

    def cmake(self, build):
        self.program("cmake", CMAKE.format(folder=self.folder, build=build))

    def item(self, arch=90, jobs=3):
        return engines.llama_cuda_item(self.store, PIN, arch, jobs)

    def test_what_is_built_lies_where_the_engine_looks(self):
        library = self.library()
        self.cmake(f"cp '{library}' \"$(cat '{self.folder}/tree')/bin/libggml-cuda.so\"")
        item = self.item()
        self.assertTrue(item.ensure())
        self.assertEqual(item.state(), ("ready", ""))
        current = self.store.path("engines", "llama-cuda", "current")
        self.assertEqual(os.readlink(current), f"{COMMIT}-sm90")
        self.assertEqual(sorted(path.name for path in current.iterdir()), [".stamp", "LICENSE", "commit", "lib"])
        self.assertTrue(os.access(current / "lib/libggml-cuda.so", os.X_OK))
        facts = dict(line.split("=", 1) for line in (current / "commit").read_text().splitlines())
        self.assertEqual((facts["commit"], facts["commit12"], facts["arch"], facts["nvcc"]), (PIN["commit"], COMMIT, "90", "13.0"))
        self.assertEqual(facts["machine"], st.machine())
        configure, build = (self.folder / "called").read_text().splitlines()
        for option in ("GGML_CUDA=ON", "CMAKE_CUDA_ARCHITECTURES=90-real", "CMAKE_CUDA_RUNTIME_LIBRARY=Shared", "GGML_CUDA_NCCL=OFF",
                       "GGML_CUDA_FA_ALL_QUANTS=OFF", f"CMAKE_CUDA_COMPILER={self.programs}/nvcc",
                       f"CMAKE_INSTALL_RPATH=$ORIGIN/../../../llama/{COMMIT}/lib", f"LLAMA_BUILD_COMMIT={COMMIT}"):
            self.assertIn(f"-D{option}", configure.split())
        self.assertNotIn("GGML_AVX", configure)
        self.assertRegex(build, r"--target ggml-cuda -j 3$")
        self.assertIn("scripts/engines llama makes it", self.store.screen.lines[-1])
        self.assertFalse(self.item(arch=None).ensure())  # that which is there is looked for

    def fails(self, item=None):
        why = self.refused((item or self.item()).ensure)
        self.assertFalse(self.store.path("engines").exists())
        self.assertFalse(self.store.path("tmp").exists())
        return why

    def test_a_step_that_fails_says_why(self):
        for build, said in (("echo 'fattn.cu(7): error: no such thing'; exit 1", "fattn.cu(7): error: no such thing"),
                            ("echo 'nvcc: Killed'; exit 1", "call again with --jobs 1"),
                            ("echo 'No space left on device'; exit 1", "the disk became full"),
                            (f"cp '{self.library(text=MODULE)}' \"$(cat '{self.folder}/tree')/bin/libggml-cuda.so\"",
                             "does not call cuDeviceGetAttribute")):
            self.cmake(build)
            with self.subTest(said=said):
                self.assertIn(said, self.fails())

    def test_nothing_is_begun_without_an_architecture_or_a_compiler(self):
        self.cmake("exit 1")
        self.assertIn("--arch 90 for H100 and H200", self.fails(self.item(arch=None)))
        self.assertIn("has no architecture 70", self.fails(self.item(arch=70)))
        (self.programs / "nvcc").unlink()
        self.environment(PATH=f"{self.programs}{os.pathsep}/usr/bin{os.pathsep}/bin")
        self.assertIn("needs CUDA's compiler", self.fails())
        self.assertFalse((self.folder / "called").exists())


class CommandLine(InFolder):
    def call(self, *words):
        shown = io.StringIO()
        with mock.patch.object(sys, "argv", ["scripts/engines", *words]), contextlib.redirect_stdout(shown), \
                contextlib.redirect_stderr(shown):
            try:
                status = engines.main()
            except SystemExit as left:
                status = left.code
        return status, shown.getvalue()

    def test_it_is_offered_with_cuda_and_made_by_its_name_alone(self):
        self.environment(WEIR_HOME=str(self.folder / "store"))
        self.program("nvidia-smi", "exit 9")
        self.assertNotIn("llama-cuda", self.call("--list")[1])
        self.assertEqual(self.call("llama-cuda")[0], 2)
        self.assertRegex(self.call("--cuda", "--arch", "90", "--list")[1], rf"llama-cuda\s+{COMMIT}-sm90\s+missing")
        status, said = self.call("--cuda", "llama-cuda")
        self.assertEqual(status, 1)
        self.assertIn("nvidia-smi shows no GPU here", said)
        with mock.patch.object(engines.st, "command", lambda _parser, _args, items: list(items)):
            self.assertNotIn("llama-cuda", self.call("--cuda", "--arch", "90")[0])
            self.assertIn("llama-cuda", self.call("--cuda", "--arch", "90", "llama-cuda")[0])
        for word in ("llama-cuda", "about half an hour", "NCCL"):
            self.assertIn(word, " ".join(self.call("--help")[1].split()))


if __name__ == "__main__":
    unittest.main()
