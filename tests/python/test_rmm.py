"""weir.rmm over a stand-in for RMM (fake/) and the stub of CUDA's driver. With WEIR_TEST_REAL=1 over the real RMM (real.py), which needs
no GPU for this; gpu_rmm.py has what does."""

import os
import textwrap
import unittest
from pathlib import Path

from common import run_python

HERE = Path(__file__).resolve().parent
REAL = unittest.skipUnless(os.environ.get("WEIR_TEST_REAL"), "with the real RMM alone (real.py)")
BEGIN = """
import sys
sys.path[:0] = {paths!r}
from driver import *
import rmm
import weir
import weir.rmm

def is_(got, wanted):
    assert got == wanted, f"{{got}}, not {{wanted}}"

class Handle:
    def __init__(self, handle):
        self.handle = handle
    def __cuda_stream__(self):
        return 0, self.handle

def Stream(handle):
    "One of RMM's, of a handle."
    if hasattr(rmm.mr, "Stream"):
        return rmm.mr.Stream(handle)
    from rmm.pylibrmm.stream import Stream
    return Stream(Handle(handle))

begin()
"""


class RMM(unittest.TestCase):
    def run_lines(self, lines, **environment):
        paths = [str(HERE)] + ([] if os.environ.get("WEIR_TEST_REAL") else [str(HERE / "fake")])
        done = run_python(BEGIN.format(paths=paths) + textwrap.dedent(lines), **environment)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_a_resource_allocates_in_the_order_of_its_streams(self):
        told = self.run_lines("""
            client = weir.Runtime("cuda:0", budget="64MiB").client("rmm")
            resource = weir.rmm.resource(client)
            one, other = make_stream(), make_stream()
            with Work(one):
                a = resource.allocate(3 * MIB, Stream(one))
                is_((client.stats().live, a % 256), (3 * MIB, 0))
                resource.deallocate(a, 3 * MIB, Stream(one))
                b = resource.allocate(3 * MIB, Stream(other))
                assert b != a, "the other stream got memory that this one's work still has"
                is_(resource.allocate(3 * MIB, Stream(one)), a)
            resource.deallocate(a, 3 * MIB, Stream(other))  # as the program says
            resource.deallocate(b, 3 * MIB)
            is_(of_account(client), (0, 3, 3))
        """)
        self.assertEqual(told, "")

    def test_a_refusal_has_weirs_words(self):
        self.run_lines("""
            resource = weir.rmm.use(budget="64MiB")
            assert rmm.mr.get_per_device_resource(0) is resource
            is_(resource.refused, None)
            try:
                resource.allocate(65 * MIB)
                raise SystemExit("it was not refused")
            except MemoryError as error:
                assert "rmm asked for 65 MiB (activations) on cuda:0" in str(error), str(error)
            assert resource.refused.refusal.requested >= 65 * MIB
            is_(resource.client.name, "rmm")
            resource.deallocate(resource.allocate(MIB), MIB)
            is_(of_account(resource.client), (0, 1, 1))
        """)

    def test_what_lives_at_the_end_is_left(self):
        told = self.run_lines("""
            class Buffer:
                def __init__(self, resource):
                    self.resource, self.address = resource, resource.allocate(MIB)
                def __del__(self):
                    self.resource.deallocate(self.address, MIB)
            resource = weir.rmm.use(budget="64MiB")
            mine = Buffer(resource)  # goes with the program's module
            sys.kept = Buffer(resource)  # goes when nearly all is gone
            weir.kept = Buffer(resource)
        """)
        self.assertEqual(told, "")

    def test_what_it_refuses(self):
        self.run_lines("""
            client = weir.Runtime("cuda:0", budget="64MiB").client("a")
            for wrong, kind in ((lambda: weir.rmm.resource(weir.Runtime("host").client("h")), weir.Invalid),
                                (lambda: weir.rmm.use(client, maximum=1), weir.Invalid),
                                (lambda: weir.rmm.use(budget="65MiB"), weir.Conflict)):
                try:
                    wrong()
                    raise SystemExit("it was done")
                except kind:
                    pass
            assert weir.rmm.use(client).client is client
        """)

    @REAL
    def test_rmms_adaptors_stand_on_it(self):
        self.run_lines("""
            resource = weir.rmm.use(budget="64MiB")
            assert isinstance(resource, rmm.mr.DeviceMemoryResource)
            assert rmm.mr.get_per_device_resource(0) is resource and rmm.mr.is_initialized()
            stats = rmm.mr.StatisticsResourceAdaptor(resource)
            limited = rmm.mr.LimitingResourceAdaptor(stats, allocation_limit=40 * MIB)
            a = limited.allocate(30 * MIB, Stream(make_stream()))
            is_((stats.allocation_counts.current_bytes, resource.client.stats().live), (30 * MIB, 30 * MIB))
            try:
                limited.allocate(20 * MIB)
                raise SystemExit("it was not refused")
            except MemoryError as error:
                assert "weir" not in str(error), str(error)
            is_(resource.refused, None)
            limited.deallocate(a, 30 * MIB)
            is_(of_account(resource.client), (0, 1, 1))
        """)

    @REAL
    def test_what_rmm_does_after_a_refusal_it_does_after_weirs(self):
        self.run_lines("""
            resource = weir.rmm.use(budget="64MiB")
            neighbour = resource.client.runtime.client("neighbour")
            held = [neighbour.alloc(40 * MIB)]
            asked = []
            def make_room(size):
                asked.append(size)
                if held:
                    held.pop().close()
                    return True
                return False
            retrying = rmm.mr.FailureCallbackResourceAdaptor(resource, make_room)
            a = retrying.allocate(50 * MIB)
            is_((asked, resource.client.stats().live), ([50 * MIB], 50 * MIB))
            is_(resource.refused.refusal.requested, 50 * MIB)
            try:
                retrying.allocate(50 * MIB)
                raise SystemExit("it was not refused")
            except MemoryError as error:
                assert "rmm asked for 50 MiB" in str(error), str(error)
            is_(asked, [50 * MIB, 50 * MIB])
            retrying.deallocate(a, 50 * MIB)
        """)


if __name__ == "__main__":
    unittest.main()
