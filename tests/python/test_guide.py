"""What docs/guide/cupy.md shows in Python and for a shell, over stand-ins for the frameworks (fake/) and the stub of CUDA's driver. What
it shows in C++ test_rmm_header.py compiles, and gpu_shared.py runs the page with the real frameworks. And what the page says of budgets."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from common import PACKAGE, run_python
from guide import blocks

HERE = Path(__file__).resolve().parent
BEGIN = f"""
import sys
sys.path[:0] = [{str(HERE)!r}, {str(HERE / "fake")!r}]
sys.meta_path[:] = [each for each in sys.meta_path if "numba" not in type(each).__module__]  # numba-cuda's, which comes first
from driver import *
import cupy
import weir
begin()
client = weir.Runtime("cuda:0", budget="20GiB").client("mine")
cupy.zeros = cupy.empty
seams.wseam_torch_throws = lambda: True  # there is no PyTorch that could
"""
END = """
assert (y.data.ptr % 256, y.size, client.stats().live) == (0, 1 << 20, 1 << 20)
assert pool.client.runtime.budget == 20 << 30 and pool.get_limit() == 8 << 30
assert {each.name for each in client.runtime.stats().clients} == {"cupy", "mine", "rmm"}, client.runtime.stats().clients
import rmm
assert rmm.mr.get_per_device_resource(0).client.name == "rmm"
assert weir.torch._used.client().runtime.budget == 20 << 30
"""


FRAMEWORKS = f"""
import sys
sys.path[:0] = [{str(HERE)!r}, {str(HERE / "fake")!r}]
sys.meta_path[:] = [each for each in sys.meta_path if "numba" not in type(each).__module__]
from driver import *
from types import SimpleNamespace
from numba.cuda.cudadrv import driver as numbas
import weir, weir.cupy, weir.numba, weir.rmm
begin()
context = type("Context", (SimpleNamespace,), {{}})(device=SimpleNamespace(id=0))
"""


class Budget(unittest.TestCase):
    def run_lines(self, lines):
        done = run_python(FRAMEWORKS + lines)
        self.assertEqual((0, ""), (done.returncode, done.stdout))

    def test_the_first_that_says_one_sets_it_however_late_it_allocates(self):
        self.run_lines("""
weir.numba.use(budget="64MiB")  # opens its client with the first allocation
resource, pool = weir.rmm.use(), weir.cupy.use()
assert (resource.client.runtime.budget, pool.client.runtime.budget) == (64 * MIB, 64 * MIB)
kept = numbas._memory_manager(context=context).memalloc(MIB)
assert [(each.name, each.live) for each in pool.client.runtime.stats().clients] == [("rmm", 0), ("cupy", 0), ("numba", MIB)]
""")

    def test_a_runtime_that_is_there_keeps_its_own(self):
        self.run_lines("""
mine = weir.Runtime("cuda:0", budget="32MiB")
weir.numba.use(budget="64MiB")
assert weir.rmm.use().client.runtime.budget == mine.budget == 32 * MIB
try:
    numbas._memory_manager(context=context).memalloc(MIB)
    raise SystemExit("it was allocated")
except weir.Conflict:
    pass
""")


class Guide(unittest.TestCase):
    maxDiff = None

    def test_the_page_in_python(self):
        shown = blocks("python")
        self.assertEqual(3, len(shown))
        done = run_python(BEGIN + "".join(shown) + END, STUB_CUDA_TOTAL=hex(32 << 30))
        self.assertEqual((0, ""), (done.returncode, done.stdout))

    def test_the_page_in_a_shell(self):
        (shown,) = blocks("sh")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "program.py").write_text("""
import importlib, os
from numba import cuda
from numba.cuda.cudadrv import driver as numbas
cuda.set_memory_manager(importlib.import_module(os.environ["NUMBA_CUDA_MEMORY_MANAGER"])._numba_memory_manager)  # as Numba does
from types import SimpleNamespace
from driver import begin
begin()
context = type("Context", (SimpleNamespace,), {})(device=SimpleNamespace(id=0))
kept = numbas._memory_manager(context=context).memalloc(1000)
import weir.numba
print(weir.numba.clients()[0].runtime.budget)
""")
            Path(folder, "python3").symlink_to(sys.executable)
            done = subprocess.run(["sh", "-euc", shown], cwd=folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=1000, env={
                                      **os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "STUB_CUDA_TOTAL": hex(32 << 30),
                                      "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{PACKAGE}:{HERE}:{HERE / 'fake'}"})
        self.assertEqual((0, f"{20 << 30}\n"), (done.returncode, done.stdout))


if __name__ == "__main__":
    unittest.main()
