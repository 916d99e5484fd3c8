"""weir.cupy over a stand-in for CuPy (fake/) and the stub of CUDA's driver; gpu_cupy.py is over the real ones. Each test is a process
of its own."""

import textwrap
import unittest
from pathlib import Path

from common import run_python

HERE = Path(__file__).resolve().parent
BEGIN = """
import sys
sys.path[:0] = [{tests!r}, {fake!r}]
from driver import *
import cupy
from cupy_backends.cuda import stream as backend
import weir
import weir.cupy

def is_(got, wanted):
    assert got == wanted, f"{{got}}, not {{wanted}}"

begin()
"""


class CuPy(unittest.TestCase):
    def run_lines(self, lines, **environment):
        code = BEGIN.format(tests=str(HERE), fake=str(HERE / "fake")) + textwrap.dedent(lines)
        done = run_python(code, **environment)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_arrays_are_of_one_client(self):
        for kind in ("new", "13", "old"):
            with self.subTest(kind):
                told = self.run_lines("""
                    pool = weir.cupy.use(budget="64MiB")
                    a, b = cupy.empty(3 * MIB), cupy.empty(1000)
                    is_((pool.client.name, pool.used_bytes()), ("cupy", 3 * MIB + 1024))
                    is_(pool.client.stats().live_class[weir.Class.ACTIVATIONS], 3 * MIB + 1024)
                    is_(cupy.empty(0).data.ptr, 0)
                    del a, b
                    is_((pool.used_bytes(), pool.client.stats().frees), (0, 2))
                    is_(pool.free_bytes(), pool.total_bytes())
                    assert pool.total_bytes() >= 3 * MIB
                    pool.free_all_blocks()
                    is_(pool.total_bytes(), 0)
                """, FAKE_CUPY=kind)
                self.assertEqual(told, "")

    def test_without_a_driver_weir_says_what_to_do(self):
        done = run_python(textwrap.dedent(f"""
            import ctypes, sys
            try:
                ctypes.CDLL("libcuda.so.1")
                sys.exit("a driver is here")
            except OSError:
                pass
            sys.path[:0] = [{str(HERE / "fake")!r}]
            import cupy, weir, weir.cupy
            def none():
                raise RuntimeError("cudaErrorInsufficientDriver")
            cupy.cuda.Device = none
            try:
                weir.cupy.use()
            except weir.NotFound as error:
                print(error)
        """), LD_LIBRARY_PATH=None)
        if "a driver is here" in done.stdout:
            self.skipTest("a driver is here")
        self.assertIn("install the NVIDIA driver", done.stdout)

    def test_memory_is_freed_in_the_order_of_the_stream_it_was_allocated_on(self):
        self.run_lines("""
            pool = weir.cupy.use(budget="64MiB")
            one, other = make_stream(), make_stream()
            with cupy.cuda.Stream(one), Work(one):
                a = cupy.empty(3 * MIB)
                was = a.data.ptr
                with cupy.cuda.Stream(other):
                    del a
                    b = cupy.empty(3 * MIB)
                    assert b.data.ptr != was, "the current stream got memory that the other one's work still has"
        """)

    def test_memory_waits_for_the_stream_that_is_current_when_it_is_freed(self):
        self.run_lines("""
            pool = weir.cupy.use(budget="64MiB")
            one, other = make_stream(), make_stream()
            with cupy.cuda.Stream(one):
                a = cupy.empty(3 * MIB)
                was = a.data.ptr
                with cupy.cuda.Stream(other), Work(other):
                    del a
                    is_(pool.client.stats().pending, 3 * MIB)
                    with cupy.cuda.Stream(one):
                        b = cupy.empty(3 * MIB)
                        assert b.data.ptr != was, "its own stream got memory that the current one's work still has"
            del b
            is_(pool.used_bytes(), 0)
        """)

    def test_memory_of_a_per_thread_stream_is_freed_by_another_thread(self):
        self.run_lines("""
            pool = weir.cupy.use(budget="64MiB")
            cupy.empty(1000)
            arrays, made, over = [], threading.Event(), threading.Event()
            def work():
                begin()
                with cupy.cuda.Stream(PER_THREAD):
                    arrays.append(cupy.empty(3 * MIB))
                made.set()
                over.wait(60)
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            made.wait(60)
            with Work(1), cupy.cuda.Stream(make_stream()):
                arrays.clear()
                is_((seams.wseam_waiting(), pool.used_bytes(), pool.client.stats().frees), (0, 0, 2))
                is_(pool.client.stats().pending, 3 * MIB)  # behind the legacy stream, as nothing can be put behind the thread's
            over.set()
            thread.join()
        """)

    def test_a_free_on_its_own_stream_asks_the_driver_nothing(self):
        self.run_lines("""
            pool = weir.cupy.use(budget="64MiB")
            with cupy.cuda.Stream(make_stream()):
                cupy.empty(1000)
                a = cupy.empty(1000)
                before = [stub(name) for name in ("cuStreamGetId", "cuEventRecord")]
                del a
                is_([stub(name) for name in ("cuStreamGetId", "cuEventRecord")], before)
        """)

    def test_a_refusal_is_cupys_error_and_weirs_with_the_words(self):
        self.run_lines("""
            import gc, pickle
            pool = weir.cupy.use(budget="64MiB")
            a = cupy.empty(30 * MIB)
            for kind in (cupy.cuda.memory.OutOfMemoryError, weir.OutOfMemory, MemoryError):
                try:
                    cupy.empty(40 * MIB)
                    raise SystemExit("it was not refused")
                except kind as error:
                    assert str(error).startswith("cupy asked for 40 MiB (activations) on cuda:0"), str(error)
                    is_((error.refusal.requested, error.refusal.cause), (40 * MIB, weir.Cause.BUDGET))
                    is_(str(pickle.loads(pickle.dumps(error))), str(error))
            is_(pool.used_bytes(), 30 * MIB)
            a.itself = a  # only the collector can free it
            gc.disable()
            del a
            cupy.empty(40 * MIB)
        """)

    def test_the_interpreters_lock_is_not_held_while_memory_is_waited_for(self):
        self.run_lines("""
            import time
            pool = weir.cupy.use(budget="64MiB")
            one, other = make_stream(), make_stream()
            with cupy.cuda.Stream(one):
                a = cupy.empty(40 * MIB)
                work = Work(one)
                waits = threading.Thread(target=lambda: (begin(), cupy.cuda.Stream(other).__enter__(), cupy.empty(40 * MIB)))
                del a
            refusals = pool.client.stats().refusals
            waits.start()
            work.__exit__()  # on a thread of the driver's the work ends with the interpreter's lock
            waits.join()
            is_(pool.client.stats().refusals, refusals)
        """, WEIR_WAIT="20s")

    def test_a_thread_can_have_a_client_of_its_own(self):
        self.run_lines("""
            pool = weir.cupy.use(budget="64MiB")
            mine = weir.Runtime("cuda:0").client("mine", maximum="8MiB")
            a = cupy.empty(MIB)
            with weir.cupy.using(mine) as inside:
                b = cupy.empty(2 * MIB)
                others = []
                thread = threading.Thread(target=lambda: (begin(), others.append(cupy.empty(4 * MIB))))
                thread.start()
                thread.join()
                try:
                    cupy.empty(7 * MIB)
                    raise SystemExit("it was not refused")
                except weir.OutOfMemory as error:
                    is_(error.refusal.cause, weir.Cause.MAXIMUM)
                with weir.cupy.using(mine) as again:
                    assert again is inside
            is_((pool.used_bytes(), mine.stats().live), (5 * MIB, 2 * MIB))
            try:
                mine.close()
                raise SystemExit("a client with arrays was closed")
            except weir.Busy:
                pass
            del b
            mine.close()
            del a
            is_(pool.used_bytes(), 4 * MIB)
        """)

    def test_each_device_has_a_client(self):
        self.run_lines("""
            pool = weir.cupy.use(budget="64MiB")
            a = cupy.empty(MIB)
            cupy.cuda.Device(1).use()
            b = cupy.empty(2 * MIB)
            is_((pool.client.runtime.device, pool.used_bytes(), pool.client.runtime.budget), ("cuda:1", 2 * MIB, 64 * MIB))
            del a  # of the other device
            cupy.cuda.Device(0).use()
            is_(pool.used_bytes(), 0)
            only = weir.cupy.Pool(weir._clients.Clients("cupy", [pool.client]))
            cupy.cuda.Device(1).use()
            try:
                only.malloc(1)
                raise SystemExit("it was allocated")
            except weir.NotFound as error:
                assert "no client for cuda:1" in error.detail, error.detail
        """, STUB_CUDA_DEVICES="2")

    def test_limits(self):
        self.run_lines("""
            pool = weir.cupy.use(budget="64MiB", maximum="32MiB", guarantee="16MiB")
            is_((pool.get_limit(), pool.client.stats().guaranteed), (32 * MIB, 16 * MIB))
            pool.set_limit(size="20MiB")
            is_(pool.get_limit(), 20 * MIB)
            pool.set_limit(fraction=0.5)
            is_(pool.get_limit(), 32 * MIB)
            pool.set_limit(size=0)
            is_((pool.get_limit(), pool.client.stats().guaranteed), (0, 16 * MIB))
            for wrong, kind in ((lambda: weir.cupy.use(budget="65MiB"), weir.Conflict),
                                (lambda: weir.cupy.use(pool.client, budget="64MiB"), weir.Invalid),
                                (lambda: weir.cupy.use(pool.client, pool.client), weir.Conflict),
                                (lambda: weir.cupy.use(weir.Runtime("host").client("h")), weir.Invalid),
                                (lambda: pool.set_limit(), ValueError)):
                try:
                    wrong()
                    raise SystemExit("it was done")
                except kind:
                    pass
        """)

    def test_page_locked_memory_is_the_hosts(self):
        self.run_lines("""
            pool = weir.cupy.use(budget="64MiB")
            host = weir.Runtime("host")
            a = cupy.cuda.alloc_pinned_memory(5000)
            is_((stub("pinned"), host.stats().live, pool.used_bytes()), (1, 8192, 0))
            del a
            b = cupy.cuda.alloc_pinned_memory(6000)
            is_(stub("pinned"), 1)
            del b
            pool.free_all_blocks()
            is_((stub("pinned"), host.stats().live), (0, 0))
            kept = [cupy.cuda.alloc_pinned_memory(32 * MIB)]
            kept.clear()
            host.budget = "48MiB"
            c = cupy.cuda.alloc_pinned_memory(20 * MIB)  # what the pool keeps goes first
            is_((stub("registered"), host.stats().live), (1, 32 * MIB))  # long pieces are registered pages
            weir.cupy.use(pool.client, pinned=False)
            assert cupy.cuda.pinned._everywhere[0].__self__ is pool._pinned
        """)

    def test_what_lives_at_the_end_asks_nobody_any_more(self):
        told = self.run_lines("""
            pool = weir.cupy.use(budget="64MiB")
            sys.kept = cupy.empty(MIB)
            is_(backend.state.asked, 1)
            import atexit
            seams.wseam_cupy_end()
            a = cupy.empty(1000)
            del a
            is_(backend.state.asked, 2)
        """)
        self.assertEqual(told, "")


if __name__ == "__main__":
    unittest.main()
