"""weir/cccl.hpp, compiled with CCCL's headers alone, and weir/rmm.hpp, compiled with RMM's, each run over the stub of CUDA's driver; what
docs/guide/cupy.md shows of both, compiled; and what RMM logs, read by weir replay. Needs the packages nvidia-cuda-cccl and
nvidia-cuda-runtime, and for RMM librmm and rapids_logger, of this Python's; without them it is skipped, or fails under
WEIR_TEST_REAL=1."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from common import SOURCE
from guide import blocks

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ["WEIR_LIBRARY"]).resolve().parent.parent
LIBRARIES = [next(iter(sorted((BUILD / "lib").glob(f"lib{name}.so*"))), None) for name in ("weir-seams", "weir")]
COMPILER = os.environ.get("CXX") or "c++"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]


def found(package, pattern):
    """The first such file of a package of this Python's, which may lie in several folders; None: it is not here."""
    spec = importlib.util.find_spec(package)
    folders = map(Path, spec.submodule_search_locations) if spec else ()
    return next((path for folder in folders for path in sorted(folder.glob(pattern))), None)


def needed(*files):
    """Those files; the test is skipped where one is not here."""
    if all(files):
        return files
    what = "librmm, rapids_logger, nvidia-cuda-cccl and nvidia-cuda-runtime are not all here"
    if os.environ.get("WEIR_TEST_REAL"):
        raise AssertionError(what)
    raise unittest.SkipTest(what)


def call(words, **environment):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=1000, env={**os.environ, **environment})
    return f"exit status {done.returncode}\n{done.stdout}" if done.returncode else ""


@unittest.skipUnless(shutil.which(COMPILER), f"not here: {COMPILER}")
class Header(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def compile(self, source, standard, includes, *words):
        """What weir's headers draw warnings for is an error, and others' headers are as they are."""
        self.assertEqual("", call([COMPILER, f"-std=c++{standard}", *STRICT, source, "-I", SOURCE / "include",
                                   *(part for each in includes for part in ("-isystem", each)), *words]))

    def build(self, source, standard, includes, cuda, *words):
        program = self.folder / f"{source}-{standard}"
        runtime = next(iter(sorted((cuda / "lib").glob("libcudart.so*"))))
        self.compile(HERE / f"{source}.cpp", standard, includes, "-o", program, *LIBRARIES, *words, runtime)
        return program

    def compile_shown(self, text, standard, includes):
        """A fragment of the page, as the inside of a function."""
        lines = text.splitlines()
        outside, inside = ([line for line in lines if line.startswith("#include") is is_outside] for is_outside in (True, False))
        source = self.folder / "shown.cpp"
        source.write_text("\n".join([
            *outside, "void shown(weir_client *client, cuda::stream_ref stream, std::size_t bytes);",
            "void shown(weir_client *client, cuda::stream_ref stream, std::size_t bytes)", "{", "(void)stream;", "(void)bytes;", *inside,
            "}", ""]))
        self.compile(source, standard, includes, "-fsyntax-only")

    def run_program(self, program, folders, *words):
        path = os.pathsep.join(map(str, [*folders, os.environ.get("LD_LIBRARY_PATH", "")]))
        self.assertEqual("", call([program, *words], LD_LIBRARY_PATH=path))

    def test_it_is_a_resource_of_cccls_without_rmm(self):
        runtime, cccl = needed(found("nvidia", "cu*/include/cuda_runtime_api.h"), found("nvidia", "cu*/include/cccl"))
        includes, cuda = [cccl, runtime.parent], runtime.parent.parent
        for standard in (17, 20):
            with self.subTest(standard):
                program = self.build("cccl_resource", standard, includes, cuda)
                self.run_program(program, [BUILD / "lib", cuda / "lib"])
                (shown,) = (text for text in blocks("cpp") if "weir/cccl.hpp" in text)
                self.compile_shown(shown, standard, includes)

    def test_it_is_a_resource_of_rmms_and_its_log_can_be_read(self):
        runtime, rmm, logger = needed(found("nvidia", "cu*/include/cuda_runtime_api.h"), found("librmm", "include"),
                                      found("rapids_logger", "include"))
        rmm, logger, cuda = rmm.parent, logger.parent, runtime.parent.parent
        # RMM brings the CCCL that it was built with.
        includes = [rmm / "include", rmm / "include/rapids", logger / "include", cuda / "include"]
        (shown,) = (text for text in blocks("cpp") if "weir/rmm.hpp" in text)
        self.compile_shown(shown, 20, includes)
        program = self.build("rmm_resource", 20, includes, cuda, *(f"-L{each}/lib64" for each in (rmm, logger)), "-lrmm", "-lrapids_logger")
        log = self.folder / "log.csv"
        self.run_program(program, [BUILD / "lib", rmm / "lib64", logger / "lib64", cuda / "lib"], log)
        command = BUILD / "bin/weir"
        if command.exists():
            self.assertEqual("", call([command, "replay", log]))


if __name__ == "__main__":
    unittest.main()
