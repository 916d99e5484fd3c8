"""weir.numba over a stand-in for Numba (fake/) and the stub of CUDA's driver; with WEIR_TEST_REAL=1 over the real numba-cuda (real.py),
and gpu_numba.py on a GPU. Each test is a process of its own."""

import os
import textwrap
import unittest
from pathlib import Path

from common import run_python

HERE = Path(__file__).resolve().parent
REAL = unittest.skipUnless(os.environ.get("WEIR_TEST_REAL"), "with the real Numba alone (real.py)")
BEGIN = """
import sys
sys.path[:0] = {paths!r}
if {stand_in!r}:  # numba-cuda puts itself before all that is called numba.cuda
    sys.meta_path[:] = [each for each in sys.meta_path if "numba" not in type(each).__module__]
from driver import *
from types import SimpleNamespace
from numba import cuda
from numba.cuda.cudadrv import driver as numbas
import weir
import weir.numba

def is_(got, wanted):
    assert got == wanted, f"{{got}}, not {{wanted}}"

begin()

class Context(SimpleNamespace):
    pass

def manager(number=0):
    "As a context makes it."
    context = Context(device=SimpleNamespace(id=number))
    made = numbas._memory_manager(context=context)
    made.kept = context
    made.initialize()
    made.initialize()
    return made

def address(memory):
    return int(memory.device_pointer)
"""


class Numba(unittest.TestCase):
    def run_lines(self, lines, **environment):
        paths = [str(HERE)] + ([] if os.environ.get("WEIR_TEST_REAL") else [str(HERE / "fake")])
        done = run_python(BEGIN.format(paths=paths, stand_in=len(paths) > 1) + textwrap.dedent(lines), **environment)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_arrays_are_of_one_client(self):
        told = self.run_lines("""
            weir.numba.use(budget="64MiB", maximum="32MiB")
            is_(weir.numba.clients(), {})
            it = manager()
            it.reset()  # it may come first
            a, b = it.memalloc(3 * MIB), it.memalloc(1000)
            client = weir.numba.clients()[0]
            is_((client.name, client.stats().live, client.stats().maximum), ("numba", 3 * MIB + 1024, 32 * MIB))
            is_(tuple(it.get_memory_info()), (61 * MIB - 1024, 64 * MIB))
            a.free()
            del b
            is_((client.stats().live, client.stats().frees), (0, 2))
        """)
        self.assertEqual(told, "")

    def test_what_is_freed_is_nobodys_before_the_device_is_past_it(self):
        self.run_lines("""
            weir.numba.use(budget="64MiB")
            it = manager()
            a = it.memalloc(3 * MIB)
            was, client = address(a), weir.numba.clients()[0]
            with Work(1):
                del a
                is_((client.stats().live, client.stats().pending), (0, 3 * MIB))
                b = it.memalloc(3 * MIB)
                assert address(b) != was, "work that was queued before the free still has it"
        """)

    def test_streams_that_weir_does_not_know_are_waited_for_as_well(self):
        self.run_lines("""
            weir.numba.use(budget="64MiB")
            it = manager()
            a = it.memalloc(3 * MIB)
            was, stream, client = address(a), make_stream(), weir.numba.clients()[0]
            with Work(stream):  # a non-blocking one
                del a
                is_((client.stats().live, client.stats().pending), (0, 3 * MIB))
                b = it.memalloc(3 * MIB)
                assert address(b) != was, "work on a stream of the program's own still has it"
            synchronize(stream)
            import time
            until = time.monotonic() + 60
            while client.runtime.drain() and time.monotonic() < until:  # the point behind all streams comes a moment later
                time.sleep(0.001)
            is_(client.stats().pending, 0)
        """)

    def test_what_goes_in_a_capture_is_freed_behind_it(self):
        self.run_lines("""
            weir.numba.use(budget="64MiB")
            it = manager()
            a, stream = it.memalloc(3 * MIB), make_stream()
            client = weir.numba.clients()[0]
            free(client, alloc(client, MIB, stream), stream)  # weir knows the stream
            begin_capture(stream)
            del a
            is_((client.stats().live, seams.wseam_waiting()), (3 * MIB, 1))
            end_capture(stream)
            is_((seams.wseam_waiting(), client.stats().live, stub("captures broken")), (0, 0, 0))
        """)

    def test_a_refusal_is_numbas_error_and_weirs_with_the_words(self):
        self.run_lines("""
            import pickle
            weir.numba.use(budget="64MiB")
            it = manager()
            a = it.memalloc(30 * MIB)
            for kind in (numbas.CudaAPIError, weir.OutOfMemory, MemoryError):
                try:
                    it.memalloc(40 * MIB)
                    raise SystemExit("it was not refused")
                except kind as error:
                    is_(error.code, 2)
                    assert "numba asked for 40 MiB (activations) on cuda:0" in str(error), str(error)
                    is_(error.refusal.requested, 40 * MIB)
                    is_(str(pickle.loads(pickle.dumps(error))), str(error))
            is_(weir.numba.clients()[0].stats().live, 30 * MIB)
        """)

    def test_cleaning_up_can_be_put_off(self):
        self.run_lines("""
            weir.numba.use(budget="64MiB")
            it = manager()
            a, b = it.memalloc(MIB), it.memalloc(MIB)
            stats = weir.numba.clients()[0].stats
            with it.defer_cleanup():
                with it.defer_cleanup():
                    del a
                del b
                is_((stats().blocks, stats().frees), (2, 0))
            is_((stats().blocks, stats().frees), (0, 2))
        """)

    def test_a_reset_frees_all_and_finalizers_come_later(self):
        told = self.run_lines("""
            weir.numba.use(budget="64MiB")
            it = manager()
            a, b = it.memalloc(MIB), it.memhostalloc(1000)
            stats = weir.numba.clients()[0].stats
            it.reset()
            is_((stats().blocks, weir.Runtime("host").stats().live), (0, 0))
            del a, b
            is_(stats().frees, 1)
        """, WEIR_LOG="warning")
        self.assertEqual(told, "")

    def test_page_locked_memory_is_the_hosts(self):
        self.run_lines("""
            weir.numba.use(budget="64MiB")
            it = manager()
            a = it.memhostalloc(1000)
            host = weir.Runtime("host")
            is_((stub("pinned"), host.stats().live, weir.numba.clients()[0].stats().live), (1, 1024, 0))
            (c.c_ubyte * 1000).from_address(a.host_pointer)[999] = 7
            del a
            is_(host.stats().live, 0)
            if hasattr(numbas, "_Pending"):  # the stand-in
                is_(it.memhostalloc(1000, mapped=True), ("the driver's", 1000, True, False))
                is_(it.memhostalloc(1000, wc=True), ("the driver's", 1000, False, True))
        """)

    def test_what_it_refuses(self):
        self.run_lines("""
            weir.numba.use(budget="64MiB")
            it = manager()
            a = it.memalloc(1000)
            def used_already():
                numbas.driver.devices[0] = SimpleNamespace(primary_context=it.context)
                weir.numba.use()
            for wrong, kind in ((lambda: it.get_ipc_handle(a), weir.Unsupported),
                                (lambda: weir.numba.use(weir.numba.clients()[0], budget=1), weir.Invalid), (used_already, weir.Busy)):
                try:
                    wrong()
                    raise SystemExit("it was done")
                except kind:
                    pass
        """)

    def test_a_program_as_it_is(self):
        self.run_lines("""
            import importlib
            cuda.set_memory_manager(importlib.import_module("weir.numba")._numba_memory_manager)
            a = manager().memalloc(MIB)
            is_(weir.numba.clients()[0].runtime.budget, 48 * MIB)
        """, WEIR_BUDGET="48MiB")

    @REAL
    def test_numbas_plug_is_there_and_filled(self):
        self.run_lines("""
            import inspect
            is_(cuda.set_memory_manager, numbas.set_memory_manager)
            ours, plug = weir.numba.MemoryManager, cuda.BaseCUDAMemoryManager
            assert issubclass(ours, plug) and issubclass(ours, cuda.HostOnlyCUDAMemoryManager)
            is_(set(ours.__abstractmethods__), set())
            wanted = {"memalloc", "memhostalloc", "mempin", "initialize", "get_ipc_handle", "get_memory_info", "reset", "defer_cleanup",
                      "interface_version"}
            is_(set(plug.__abstractmethods__), wanted)  # what a newer Numba asks for besides, nobody has looked at
            for name in wanted - {"interface_version"}:
                theirs, mine = (list(inspect.signature(getattr(each, name)).parameters.values()) for each in (plug, ours))
                is_([each.name for each in mine[:len(theirs)]], [each.name for each in theirs])
                assert all(each.default is not each.empty for each in mine[len(theirs):]), name
            weir.numba.use(budget="64MiB")  # Numba looks at the version here
            is_(numbas._memory_manager, ours)
            is_(manager().interface_version, numbas._SUPPORTED_EMM_INTERFACE_VERSION)
        """)

    @REAL
    def test_numba_takes_it_by_its_variable(self):
        self.run_lines("""
            numbas._ensure_memory_manager()  # as its first context does
            is_(numbas._memory_manager, weir.numba.MemoryManager)
            a = manager().memalloc(MIB)
            is_(weir.numba.clients()[0].runtime.budget, 48 * MIB)
        """, NUMBA_CUDA_MEMORY_MANAGER="weir.numba", WEIR_BUDGET="48MiB")

    def test_with_clients(self):
        self.run_lines("""
            mine = weir.Runtime("cuda:1", budget="64MiB").client("mine")
            weir.numba.use(mine)
            a = manager(1).memalloc(MIB)
            is_(mine.stats().live, MIB)
            try:
                manager(0).memalloc(MIB)
                raise SystemExit("it was allocated")
            except weir.NotFound as error:
                assert "no client for cuda:0" in error.detail
        """, STUB_CUDA_DEVICES="2")


if __name__ == "__main__":
    unittest.main()
