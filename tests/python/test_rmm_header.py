"""weir/cccl.hpp, compiled with CCCL's headers alone, and weir/rmm.hpp, compiled with RMM's, each run over the stub of CUDA's driver; and
what RMM logs of it, read by weir replay. Needs the packages nvidia-cuda-cccl and nvidia-cuda-runtime, and for RMM librmm and
rapids_logger, of this Python's; without them it is skipped, or fails under WEIR_TEST_REAL=1."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from common import SOURCE

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ["WEIR_LIBRARY"]).resolve().parent.parent
LIBRARIES = [next(iter(sorted((BUILD / "lib").glob(f"lib{name}.so*"))), None) for name in ("weir-seams", "weir")]
COMPILER = os.environ.get("CXX") or "c++"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"]


def package(name):
    """The folder of a package; None: it is not here."""
    spec = importlib.util.find_spec(name)
    return Path(next(iter(spec.submodule_search_locations))) if spec else None


def needed(*packages):
    """The folders of these packages, and that of CUDA's runtime, with include and lib in it."""
    found = [package(name) for name in packages]
    nvidia = package("nvidia")
    cuda = next(iter(sorted(nvidia.glob("cu*/include/cuda_runtime_api.h"))), None) if nvidia else None
    if cuda and all(found):
        return [*found, cuda.parent.parent]
    what = f"{', '.join([*packages, 'nvidia-cuda-cccl'])} and nvidia-cuda-runtime are not all here"
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

    def build(self, source, standard, includes, cuda, *words):
        """The program of that source: what weir's headers draw warnings for is an error, and others' headers are as they are."""
        program = self.folder / f"{source}-{standard}"
        runtime = next(iter(sorted((cuda / "lib").glob("libcudart.so*"))))
        self.assertEqual("", call([
            COMPILER, f"-std=c++{standard}", *STRICT, HERE / f"{source}.cpp", "-o", program, "-I", SOURCE / "include",
            *(part for each in includes for part in ("-isystem", each)), *LIBRARIES, *words, runtime]))
        return program

    def run_program(self, program, folders, *words):
        path = os.pathsep.join(map(str, [*folders, os.environ.get("LD_LIBRARY_PATH", "")]))
        self.assertEqual("", call([program, *words], LD_LIBRARY_PATH=path))

    def test_it_is_a_resource_of_cccls_without_rmm(self):
        (cuda,) = needed()
        if not (cuda / "include/cccl").is_dir():
            self.skipTest("nvidia-cuda-cccl is not here")
        for standard in (17, 20):
            with self.subTest(standard):
                program = self.build("cccl_resource", standard, [cuda / "include/cccl", cuda / "include"], cuda)
                self.run_program(program, [BUILD / "lib", cuda / "lib"])

    def test_it_is_a_resource_of_rmms_and_its_log_can_be_read(self):
        rmm, logger, cuda = needed("librmm", "rapids_logger")
        # RMM brings the CCCL that it was built with.
        includes = [rmm / "include", rmm / "include/rapids", logger / "include", cuda / "include"]
        program = self.build("rmm_resource", 20, includes, cuda, "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE",
                             *(f"-L{each}/lib64" for each in (rmm, logger)), "-lrmm", "-lrapids_logger")
        log = self.folder / "log.csv"
        self.run_program(program, [BUILD / "lib", rmm / "lib64", logger / "lib64", cuda / "lib"], log)
        command = BUILD / "bin/weir"
        if command.exists():
            self.assertEqual("", call([command, "replay", log]))


if __name__ == "__main__":
    unittest.main()
