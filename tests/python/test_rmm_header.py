"""weir/rmm.hpp, compiled with RMM's own headers and run over the stub of CUDA's driver; and what RMM logs of it, read by weir replay.
Needs the packages librmm, rapids_logger, nvidia-cuda-cccl and nvidia-cuda-runtime of this Python's; without them it is skipped."""

import importlib.util
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from common import SOURCE

HERE = Path(__file__).resolve().parent


def package(name):
    spec = importlib.util.find_spec(name)
    return Path(next(iter(spec.submodule_search_locations))) if spec else None


class Header(unittest.TestCase):
    def test_it_is_a_resource_and_its_log_can_be_read(self):
        rmm, logger, nvidia = package("librmm"), package("rapids_logger"), package("nvidia")
        cuda = next(iter(sorted(nvidia.glob("cu*/include"))), None) if nvidia else None
        if not rmm or not logger or not cuda or not (cuda / "cccl").exists():
            self.skipTest("librmm, rapids_logger, nvidia-cuda-cccl and nvidia-cuda-runtime are not all here")
        build = Path(os.environ["WEIR_LIBRARY"]).resolve().parent.parent
        folders = [build / "lib", rmm / "lib64", logger / "lib64"]
        with tempfile.TemporaryDirectory() as folder:
            program, log = Path(folder, "rmm_resource"), Path(folder, "log.csv")
            includes = [SOURCE / "include", rmm / "include", rmm / "include/rapids", logger / "include", cuda / "cccl", cuda]
            words = [os.environ.get("CXX") or "c++", "-std=c++20", "-w", HERE / "rmm_resource.cpp", "-o", program,
                     "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE", "-DSPDLOG_FMT_EXTERNAL",
                     *(part for each in includes for part in ("-isystem", each)),
                     *(f"-L{each}" for each in folders), "-lweir-seams", "-lweir", "-lrmm", "-lrapids_logger",
                     f"-L{cuda.parent / 'lib'}", f"-l:{next((cuda.parent / 'lib').glob('libcudart.so*')).name}"]
            done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 0, done.stdout)
            path = os.pathsep.join(map(str, [*folders, cuda.parent / "lib", os.environ.get("LD_LIBRARY_PATH", "")]))
            done = subprocess.run([program, log], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1000,
                                  env={**os.environ, "LD_LIBRARY_PATH": path})
            self.assertEqual(done.returncode, 0, done.stdout)
            command = build / "bin/weir"
            if command.exists():
                done = subprocess.run([command, "replay", log], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True, timeout=1000)
                self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
