"""What weir.torch relies on in PyTorch, looked for in a PyTorch that is here: the names, the table of its allocator, its private
functions, and, where it can be imported, errors and calls. No GPU is needed.

WEIR_TEST_TORCH is a search path of Python's with PyTorch in it (a folder `site-packages`, or a wheel's contents, also those for
another machine); else the PyTorch of this Python is taken. Without one the tests are skipped. The stand-in of tests/seams is looked
at in any case."""

import ast
import importlib.util
import mmap
import os
import re
import struct
import tempfile
import textwrap
import unittest
from pathlib import Path
from subprocess import run

from common import PACKAGE, SOURCE, run_python

BUILT = Path(os.environ.get("WEIR_LIBRARY") or "/nonexistent").parent
CLASS = "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"
TABLE = "_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE"
CALLED = {f"{CLASS}6mallocEmaP11CUstream_st", f"{CLASS}10raw_deleteEPv"}  # the others of the class are replaced
# Where PyTorch's own Python calls the functions that weir answers.
CALLERS = ("cuda/*.py", "accelerator/*.py", "_inductor/cudagraph_*.py")


class Elf:
    """The dynamic symbols of a library for any 64-bit machine, and what a table of pointers will hold."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.segments, dynamic = [], {}
        at, = struct.unpack_from("<Q", self.data, 32)
        for i in range(struct.unpack_from("<H", self.data, 56)[0]):
            kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", self.data, at + 56 * i)
            if kind == 1:
                self.segments.append((address, offset, size))
            elif kind == 2:
                dynamic = dict(struct.iter_unpack("<QQ", self.data[offset:offset + size]))
        self.symbol_table, self.texts = self.place(dynamic[6]), self.place(dynamic[5])
        self.relocations = self.data[self.place(dynamic[7]):][:dynamic[8]]
        self.names = [self.read(i) for i in range(self.count(self.place(dynamic[0x6ffffef5])))]
        self.known = {name: (address, size) for name, address, size, section in self.names if section}

    def place(self, address):
        return next(offset + address - begin for begin, offset, size in self.segments if begin <= address < begin + size)

    def read(self, index):
        name, _, _, section, address, size = struct.unpack_from("<IBBHQQ", self.data, self.symbol_table + 24 * index)
        begin = self.texts + name
        return self.data[begin:self.data.find(b"\0", begin)].decode(), address, size, section

    def count(self, at):
        """Symbols, by the table of hashes: the longest chain's last one."""
        buckets, first, words, _ = struct.unpack_from("<IIII", self.data, at)
        last = max(struct.unpack_from(f"<{buckets}I", self.data, at + 16 + 8 * words))
        chains = at + 16 + 8 * words + 4 * buckets
        while last >= first and not struct.unpack_from("<I", self.data, chains + 4 * (last - first))[0] & 1:
            last += 1
        return max(first, last + 1)

    def table(self, name):
        """The names of the functions in a table."""
        begin, size = self.known[name]
        by_address = {}
        for each, address, _, section in self.names:
            if section:
                by_address.setdefault(address, set()).add(each)
        held = set()
        for where, info, added in struct.iter_unpack("<QQq", self.relocations):
            if begin <= where < begin + size:
                held |= {self.names[info >> 32][0]} if info >> 32 else by_address.get(added, set())
        return held


def wanted_names():
    """The mangled names that libweir-seams looks for."""
    library = next(BUILT.glob("libweir-seams.so*"))
    return {name.decode() for name in re.findall(rb"\0(_Z\w+)(?=\0)", library.read_bytes()) if b"c10" in name or b"5torch" in name}


def find_torch():
    """The folder of PyTorch and the search path that has it."""
    path = os.environ.get("WEIR_TEST_TORCH")
    folders = [Path(part) / "torch" for part in (path or "").split(os.pathsep) if part]
    if not path:
        found = importlib.util.find_spec("torch")
        folders = [Path(found.origin).parent] if found and found.origin else []
    folder = next((folder for folder in folders if (folder / "lib/libtorch_cuda.so").exists()), None)
    if not folder:
        raise unittest.SkipTest("not here: PyTorch with CUDA (WEIR_TEST_TORCH)")
    return folder, path or str(folder.parent)


class StandIn(unittest.TestCase):
    """That the reader of libraries finds what is there, and what is not."""

    def test_the_stand_in_has_what_it_has(self):
        path = BUILT.parent / "tests/torch/libtorch_cuda.so"
        if not path.exists():
            self.skipTest(f"not here: {path}")
        library = Elf(path)
        replaced = {name for name in wanted_names() if name.startswith(CLASS)} - CALLED
        self.assertEqual(8, len(replaced), replaced)
        self.assertEqual(set(), CALLED - set(library.known))
        self.assertEqual(replaced | {f"{CLASS}other"}, library.table(TABLE))
        self.assertNotIn("_ZN3c104cuda20getCurrentCUDAStreamEa", library.known)  # which libc10_cuda.so has


class Names(unittest.TestCase):
    def setUp(self):
        self.torch, _ = find_torch()

    def test_every_name_is_there_and_every_replaced_function_in_the_table(self):
        libraries = {name: Elf(self.torch / f"lib/lib{name}.so") for name in ("c10", "c10_cuda", "torch_cuda")}
        known = {name for library in libraries.values() for name in library.known}
        self.assertEqual(set(), wanted_names() - known)
        self.assertEqual(set(), {name for name in wanted_names() if name.startswith(CLASS)} - CALLED - libraries["torch_cuda"].table(TABLE))

    def test_every_private_function_is_there(self):
        source = (PACKAGE / "weir/torch.py").read_text()
        names = set(re.findall(r"(?:own|torch\._C)\.(_\w+)|\(\"(set_\w+)\", ", source))
        with open(self.torch / "lib/libtorch_python.so", "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            lacking = {a or b for a, b in names if data.find(f"\0{a or b}\0".encode()) < 0}
        self.assertEqual(set(), lacking)
        self.assertGreater(len(names), 15)

    def test_answers_take_what_pytorch_gives(self):
        """Each call in PyTorch's Python of a function that weir answers fits weir's function."""
        calls = []
        for path in (path for pattern in CALLERS for path in self.torch.glob(pattern)):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and re.match("_(cuda|accelerator)_", node.func.attr):
                    if not any(isinstance(word, ast.Starred) for word in node.args):
                        calls.append((node.func.attr, len(node.args), [word.arg for word in node.keywords if word.arg]))
        here = str(Path(__file__).resolve().parent / "fake")
        done = run_python(textwrap.dedent(f"""
            import inspect, sys
            sys.path.insert(0, {here!r})
            import torch, weir.torch
            given = set(vars(torch._C))
            weir.torch._answer_from_weir(None)
            answers = {{name: answer for name, answer in vars(torch._C).items() if name not in given}}
            tried = 0
            for name, count, keywords in {calls!r}:
                if inspect.isfunction(answers.get(name)):
                    inspect.signature(answers[name]).bind(*range(count), **dict.fromkeys(keywords))
                    tried += 1
            assert tried >= 5, tried
        """))
        self.assertEqual(0, done.returncode, done.stdout)

    def test_statistics_have_what_pytorch_names(self):
        tree = ast.parse((self.torch / "cuda/memory.py").read_text())
        [text] = [ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "memory_stats"]
        named = set(re.findall(r'- ``"(\w+)', text))
        source = (PACKAGE / "weir/torch.py").read_text()
        [stats] = re.findall(r"^def memory_stats.*?return stats$", source, re.M | re.S)
        self.assertEqual(set(), {name for name in named if not re.search(rf"\b{name}\b", stats)})
        self.assertGreater(len(named), 10)


CATCHER = """
#include <cstddef>
#include <exception>
#include <string>
#include <typeinfo>
static std::string said;
extern "C" const char *try_alloc(void *(*alloc)(size_t, int, void *), size_t bytes)
{
    try {
        alloc(bytes, 0, nullptr);
        said = "nothing";
    } catch (const std::exception &error) {
        said = std::string(typeid(error).name()) + ": " + error.what();
    }
    return said.c_str();
}
"""


class Used(unittest.TestCase):
    """PyTorch itself, over the stub of CUDA's driver, on which its own first use of a device fails: what comes before that."""

    def setUp(self):
        _, self.path = find_torch()
        done = self.run_torch("from torch import Tensor")
        if done.returncode:
            self.skipTest(f"not here: PyTorch that can be imported: {done.stdout.strip().splitlines()[-1]}")

    def run_torch(self, code, **environment):
        path = os.pathsep.join([str(PACKAGE), str(SOURCE / "tests/python"), self.path])
        return run_python(textwrap.dedent(code), PYTHONPATH=path, **environment)

    def test_errors_and_replaced_functions(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "catch.cpp").write_text(CATCHER)
            run([os.environ.get("CXX") or "c++", "-shared", "-fPIC", "-o", f"{folder}/catch.so", f"{folder}/catch.cpp"], check=True)
            done = self.run_torch(f"""
                import torch, weir.torch
                from driver import *
                used = weir.torch.use(budget="64MiB")
                assert used.complete
                begin()
                catch, alloc = c.CDLL("{folder}/catch.so").try_alloc, c.cast(seams.wseam_torch_alloc, c.c_void_p)
                catch.restype, catch.argtypes = c.c_char_p, [c.c_void_p, c.c_size_t]
                assert catch(alloc, MIB) == b"nothing" and used.client(0).stats().live == MIB
                said = catch(alloc, 1 << 40).decode()
                assert said.startswith("N3c1016OutOfMemoryErrorE: CUDA out of memory. Tried to allocate 1024.00 GiB. GPU 0 has a total capacity of 64.00 MiB of "
                                       "which 63.00 MiB is free. torch asked"), said
                said = catch(alloc, 1 << 61).decode()
                assert said.startswith("N3c1016OutOfMemoryErrorE: CUDA out of memory. Tried to allocate more than 1EB memory."), said
                assert used.client(0).stats().live == MIB
                own = torch._C
                assert own._cuda_getAllocatorBackend() == "pluggable" and own._cuda_getMemoryFraction(0) == 1
                own._cuda_setMemoryFraction(1 / 32, 0)  # of the stub's 1 GiB
                assert own._cuda_getMemoryFraction(0) == 1 / 32 and used.client(0).stats().maximum == 32 * MIB
                own._cuda_resetAccumulatedMemoryStats(0)
                own._cuda_resetPeakMemoryStats(0)
                counts = own._cuda_memoryStats(0)
                assert counts["allocated_bytes"]["all"] == dict(current=MIB, peak=MIB, allocated=0, freed=0), counts
                assert counts["num_ooms"] == 0, counts
                try:
                    own._cuda_getCheckpointState(0, (7, 3))
                    raise SystemExit("the state of a pool that is none")
                except RuntimeError as error:
                    assert "the state of a pool that is none was asked for" in str(error), error
                try:
                    own._cuda_setMemoryFraction(0.5, 77)
                    raise SystemExit("device 77")
                except RuntimeError as error:
                    assert "N3c1016" not in str(error)
            """)
        self.assertEqual(0, done.returncode, done.stdout)


if __name__ == "__main__":
    unittest.main()
