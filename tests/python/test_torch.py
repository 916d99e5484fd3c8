"""PyTorch's seam (src/seams/torch*.c), called as PyTorch's pluggable allocator calls it, over the stub of CUDA's driver and without
PyTorch. Each test is a process of its own."""

import textwrap
import unittest
from pathlib import Path

from common import run_python
from pages import snippets

BEGIN = """
import sys
import time
sys.path.insert(0, {tests!r})
from driver import *
from weir._c.seams import TorchOpen, wseam_torch_counts

def is_(got, wanted):
    assert got == wanted, f"{{got}}, not {{wanted}}"

P, U, N = c.c_void_p, c.c_uint64, c.c_size_t
for name, answer, arguments in (("alloc", P, [N, c.c_int, P]), ("free", None, [P, N, c.c_int, P]), ("record_stream", None, [P, P]),
                                ("base", P, [P, c.POINTER(N)]), ("set_fraction", None, [c.c_double, c.c_int]),
                                ("begin_pool", None, [c.c_int, U, U, P]), ("end_pool", None, [c.c_int, U, U]),
                                ("release_pool", None, [c.c_int, U, U])):
    function = getattr(seams, "wseam_torch_" + name)
    function.restype, function.argtypes = answer, arguments
    globals()["t_" + name] = function

begin()
runtime = Runtime("cuda:0", budget="64MiB", own=True)
client = runtime.client("torch")
opened = []
def open_device(device):
    opened.append(device)
    if device == 0:
        check(seams.wseam_torch_give(device, client._pointer))
kept = TorchOpen(open_device)
check(seams.wseam_torch_begin(kept))

class Filter(c.Structure):
    "A std::function<bool(cudaStream_t)> that accepts some streams."
    _fields_ = [("functor", P * 2), ("manager", c.CFUNCTYPE(c.c_bool, P, P, c.c_int)),
                ("invoker", c.CFUNCTYPE(c.c_bool, P, c.POINTER(P)))]
    def __init__(self, *streams):
        self.calls = []
        super().__init__(manager=type(self).manager_type(lambda to, at, what: bool(self.calls.append(what))),
                         invoker=type(self).invoker_type(lambda functor, stream: stream[0] in streams))
Filter.manager_type, Filter.invoker_type = Filter._fields_[1][1], Filter._fields_[2][1]

def blocks(number):
    found = (P * 64)()
    return set(found[:seams.wseam_torch_pool_blocks(0, number, 0, found, 64)])

def account():
    stats = client.stats()
    return stats.live, stats.pending
"""


class Lines(unittest.TestCase):
    def run_lines(self, lines, **environment):
        code = BEGIN.format(tests=str(Path(__file__).resolve().parent)) + textwrap.dedent(lines)
        done = run_python(code, **environment)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout


class Torch(Lines):
    def test_a_device_is_opened_when_it_is_first_used(self):
        self.run_lines("""
            is_(opened, [])
            a = t_alloc(3 * MIB, 0, None)
            b = t_alloc(100, 0, None)
            is_(opened, [0])
            is_(account(), (3 * MIB + 256, 0))
            is_(t_alloc(0, 0, None), None)
            is_(t_alloc(100, 1, None), None)  # there is no client for it, and no PyTorch to throw to
            t_free(a, 3 * MIB, 0, None)
            t_free(b, 100, 0, None)
            t_free(None, 0, 0, None)
            is_(account(), (0, 0))
        """)

    def test_counts_are_those_of_what_was_asked_for(self):
        self.run_lines("""
            counts = wseam_torch_counts()
            def now(name):
                seams.wseam_torch_count(0, c.byref(counts))
                gauge = getattr(counts, name)
                return gauge.current, gauge.peak, gauge.allocated, gauge.freed
            a, b = t_alloc(MIB, 0, None), t_alloc(MIB + 1, 0, None)
            is_(now("allocation"), (2, 2, 2, 0))
            is_(now("requested_bytes"), (2 * MIB + 1, 2 * MIB + 1, 2 * MIB + 1, 0))
            is_(now("allocated_bytes"), (2 * MIB + 256, 2 * MIB + 256, 2 * MIB + 256, 0))
            is_(now("allocated_bytes")[0], client.stats().live)
            t_free(b, MIB + 1, 0, None)
            seams.wseam_torch_reset(0, 3)
            is_(now("allocated_bytes"), (MIB, MIB, 0, 0))
            is_(now("requested_bytes"), (MIB, MIB, 0, 0))
            is_(t_alloc(65 * MIB, 0, None), None)
            seams.wseam_torch_count(0, c.byref(counts))
            is_((counts.retries, counts.failures), (1, 1))
            is_(now("allocated_bytes"), (MIB, MIB, 0, 0))
            t_free(a, MIB, 0, None)
            is_(now("allocation"), (0, 1, 0, 1))
        """)

    def test_record_stream_holds_a_block_until_the_other_stream_is_past(self):
        self.run_lines("""
            one, other = make_stream(), make_stream()
            a = t_alloc(3 * MIB, 0, one)
            with Work(other):
                t_record_stream(a, other)
                t_record_stream(a, one)      # its own: nothing to wait for
                t_record_stream(1 << 40, other)  # memory of others: nothing happens
                t_free(a, 3 * MIB, 0, one)
                is_(account(), (0, 3 * MIB))
                b = t_alloc(3 * MIB, 0, one)
                assert a != b
            synchronize(other)
            is_(account(), (3 * MIB, 0))
            t_free(b, 3 * MIB, 0, one)
        """)

    def test_record_stream_is_of_what_the_stream_has_to_do_when_the_block_is_freed(self):
        self.run_lines("""
            one, other, third = make_stream(), make_stream(), make_stream()
            a = t_alloc(3 * MIB, 0, one)
            t_record_stream(a, third)
            t_record_stream(a, other)
            t_record_stream(a, third)
            with Work(other):  # it comes after that
                t_free(a, 3 * MIB, 0, one)
                is_(account(), (0, 3 * MIB))
                b = t_alloc(3 * MIB, 0, one)
                assert a != b
                t_free(b, 3 * MIB, 0, one)  # which nobody else uses
                is_(account(), (0, 3 * MIB))
            synchronize(other)
            is_(account(), (0, 0))
            later = {t_alloc(3 * MIB, 0, one), t_alloc(3 * MIB, 0, one)}
            assert a in later
            with Work(other):
                for block in later:
                    t_free(block, 3 * MIB, 0, one)
                is_(account(), (0, 0))  # a use is of one block, not of its place
        """)

    def test_a_block_waits_for_each_of_the_streams_that_use_it(self):
        self.run_lines("""
            one, others = make_stream(), [make_stream() for _ in range(3)]
            a = t_alloc(3 * MIB, 0, one)
            for other in others:
                t_record_stream(a, other)
            works = [Work(other) for other in others]
            t_free(a, 3 * MIB, 0, one)
            for work, other in zip(works, others):
                is_(account(), (0, 3 * MIB))
                work.__exit__()
                synchronize(other)
            is_(account(), (0, 0))
        """)

    def test_what_a_capture_holds_up_is_freed_when_it_is_over_all_of_it(self):
        self.run_lines("""
            one, other = make_stream(), make_stream()
            blocks_of_one = [t_alloc(3 * MIB, 0, one) for _ in range(3)]
            t_free(t_alloc(256, 0, other), 256, 0, other)
            begin_capture(other)
            for block in blocks_of_one:
                t_record_stream(block, other)
                t_free(block, 3 * MIB, 0, one)
            is_(account(), (9 * MIB, 0))
            end_capture(other)
            t_free(t_alloc(256, 0, one), 256, 0, one)
            synchronize(other), synchronize(one)
            is_(account(), (0, 0))
        """)

    def test_a_use_within_a_capture_holds_the_block_until_the_capture_is_over(self):
        self.run_lines("""
            one, other = make_stream(), make_stream()
            a = t_alloc(3 * MIB, 0, one)
            t_free(t_alloc(256, 0, other), 256, 0, other)
            begin_capture(other)
            t_record_stream(a, other)
            t_free(a, 3 * MIB, 0, one)
            is_(account(), (3 * MIB, 0))  # nothing can be recorded as yet
            b = t_alloc(3 * MIB, 0, one)
            assert a != b
            end_capture(other)
            with Work(other):
                t_free(t_alloc(256, 0, one), 256, 0, one)
                is_(account(), (3 * MIB, 3 * MIB))
            synchronize(other)
            is_(account(), (3 * MIB, 0))
            t_free(b, 3 * MIB, 0, one)
        """)

    def test_a_pool_keeps_what_its_graphs_have(self):
        self.run_lines("""
            one, joins, outside = make_stream(), make_stream(), make_stream()
            first = Filter(one, joins)
            t_alloc(256, 0, one), t_alloc(256, 0, joins)
            t_begin_pool(0, 7, 0, c.byref(first))
            begin_capture(one)
            a = t_alloc(2 * MIB, 0, one)
            t_free(a, 2 * MIB, 0, one)
            b = t_alloc(2 * MIB, 0, one)
            is_(b, a)
            d, e = t_alloc(2 * MIB, 0, joins), t_alloc(2 * MIB, 0, outside)
            is_(blocks(7), {b, d})
            t_free(b, 2 * MIB, 0, one)
            end_capture(one)
            t_end_pool(0, 7, 0)
            is_(first.calls, [2, 3])  # the filter was copied, and the copy destroyed
            is_(blocks(7), {d})
            f = t_alloc(2 * MIB, 0, one)
            assert f != a  # the pool is nobody else's
            is_(account(), (6 * MIB + 512, 2 * MIB))
            t_free(d, 2 * MIB, 0, joins)
            is_(account(), (4 * MIB + 512, 4 * MIB))
            t_begin_pool(0, 7, 0, c.byref(Filter(one)))
            is_(t_alloc(2 * MIB, 0, one), a)
            t_end_pool(0, 7, 0)
            t_free(a, 2 * MIB, 0, one)
            t_release_pool(0, 7, 0)
            is_(account(), (4 * MIB + 512, 4 * MIB))  # a graph is left
            t_release_pool(0, 7, 0)
            g = t_alloc(58 * MIB, 0, one)
            assert g, "the pool's memory is not there"
            is_(account(), (62 * MIB + 512, 0))
        """)

    def test_what_graphs_have_steps_aside_if_asked(self):
        self.run_lines("""
            one = make_stream()
            t_free(t_alloc(256, 0, one), 256, 0, one)
            t_begin_pool(0, 7, 0, c.byref(Filter(one)))
            begin_capture(one)
            a, b = t_alloc(4 * MIB, 0, one), t_alloc(4 * MIB, 0, one)
            t_free(b, 4 * MIB, 0, one)
            end_capture(one)
            t_end_pool(0, 7, 0)
            before = account()
            is_(before, (4 * MIB, 4 * MIB))
            is_(client.suspend().away, 0)
            client.resume()
            for _ in range(3):
                is_(client.suspend(graphs=True).away, 8 * MIB)
                is_(account(), (0, 0))
                runtime.client("other").alloc("64MiB").close()
                client.resume()
                is_(account(), before)
            t_begin_pool(0, 7, 0, c.byref(Filter(one)))
            is_(t_alloc(4 * MIB, 0, one), b)  # what the pool keeps is its own still
            t_end_pool(0, 7, 0)
            t_free(b, 4 * MIB, 0, one)
            client.suspend(graphs=True)
            t_free(a, 4 * MIB, 0, one)
            t_release_pool(0, 7, 0)
            t_release_pool(0, 7, 0)
            client.resume()
            is_(account(), (0, 0))
        """)

    def test_pools_are_told_apart_by_all_of_their_names_and_go_one_by_one(self):
        self.run_lines("""
            def of(second):
                found = (P * 64)()
                return set(found[:seams.wseam_torch_pool_blocks(0, 7, second, found, 64)])
            streams = [make_stream() for _ in range(3)]
            for stream in streams:
                t_free(t_alloc(256, 0, stream), 256, 0, stream)
            for going in range(3):  # of which the first goes first, or the one between, or the last
                filters = [Filter(stream) for stream in streams]
                made = []
                for second in range(3):
                    t_begin_pool(0, 7, second, c.byref(filters[second]))
                for second, stream in enumerate(streams):
                    made.append([t_alloc(5 * MIB, 0, stream) for _ in range(3)])
                is_([of(second) for second in range(3)], [set(blocks) for blocks in made])
                for second, stream in enumerate(streams):
                    first, between, last = made[second]
                    for block in [(between, first, last), (first, last, between), (last, between, first)][second][:2]:
                        t_free(block, 5 * MIB, 0, stream)
                        made[second].remove(block)
                        is_(of(second), set(made[second]))
                for second, stream in enumerate(streams):
                    t_end_pool(0, 7, second)
                    t_free(made[second][0], 5 * MIB, 0, stream)
                    is_(of(second), set())
                is_(t_alloc(30 * MIB, 0, streams[0]), None)  # each pool has 15 MiB
                t_release_pool(0, 7, going)
                large = t_alloc(30 * MIB, 0, streams[0])
                assert large, "the pool's memory is not there"
                t_free(large, 30 * MIB, 0, streams[0])
                for second in {0, 1, 2} - {going}:
                    t_release_pool(0, 7, second)
                large = t_alloc(64 * MIB, 0, streams[0])
                assert large, "not all of the pools' memory is there"
                t_free(large, 64 * MIB, 0, streams[0])
        """)

    def test_two_devices_have_pools_of_one_name_counts_and_fractions(self):
        self.run_lines("""
            second = Runtime("cuda:1", budget="64MiB", own=True)
            its = second.client("torch")
            check(seams.wseam_torch_give(1, its._pointer))
            counts, found = wseam_torch_counts(), (P * 64)()
            filters = [Filter(None) for _ in range(2)]
            for device in range(2):
                t_begin_pool(device, 7, 0, c.byref(filters[device]))
            a = t_alloc(2 * MIB, 0, None)
            begin(1)
            b = t_alloc(4 * MIB, 1, None)
            is_([seams.wseam_torch_pool_blocks(device, 7, 0, found, 64) for device in range(2)], [1, 1])
            is_((found[0], client.stats().live, its.stats().live), (b, 2 * MIB, 4 * MIB))
            seams.wseam_torch_count(1, c.byref(counts))
            is_(counts.requested_bytes.current, 4 * MIB)
            t_free(b, 4 * MIB, 1, None)
            begin()
            t_free(a, 2 * MIB, 0, None)
            for device in range(2):
                t_end_pool(device, 7, 0)
                t_release_pool(device, 7, 0)
            t_set_fraction(1 / 64, 1)
            is_((client.stats().maximum, its.stats().maximum), (64 * MIB, 16 * MIB))
            is_((t_alloc(17 * MIB, 1, None), t_alloc(17 * MIB, 0, None) is None), (None, False))
            begin(1)
            t_free(t_alloc(8 * MIB, 1, None), 8 * MIB, 1, None)
            synchronize(1)
            until = time.monotonic() + 60
            while second.drain() and time.monotonic() < until:  # the point behind all streams comes a moment later
                time.sleep(0.001)
            assert second.stats().held >= 8 * MIB
            seams.wseam_torch_empty_cache()
            is_((second.drain(), second.stats().held), (0, 0))
        """, STUB_CUDA_DEVICES="2")

    def test_a_snapshot_has_segments_of_pools_and_whole_blocks(self):
        self.run_lines("""
            import unittest.mock
            sys.modules["torch"] = unittest.mock.MagicMock()
            import weir.torch
            def active(segment):
                return [(block["address"], block["size"]) for block in segment["blocks"] if block["state"] == "active_allocated"]
            one, joins = make_stream(), make_stream()
            a = t_alloc(5 * MIB, 0, one)
            t_begin_pool(0, 7, 3, c.byref(Filter(one, joins)))
            begin_capture(one)
            b, d, e = t_alloc(7 * MIB, 0, one), t_alloc(1 * MIB, 0, one), t_alloc(2 * MIB, 0, joins)
            end_capture(one)
            t_end_pool(0, 7, 3)
            segments = weir.torch._segments(0, client)
            of_pool = [segment for segment in segments if segment["segment_pool_id"] == (7, 3)]
            is_(sorted(block for segment in of_pool for block in active(segment)), sorted([(b, 7 * MIB), (d, MIB), (e, 2 * MIB)]))
            is_({segment["stream"] for segment in of_pool if active(segment) != [(e, 2 * MIB)]}
                & {segment["stream"] for segment in of_pool if active(segment) == [(e, 2 * MIB)]}, set())
            is_({segment["is_expandable"] for segment in segments}, {True})
            is_([block for segment in segments if segment["segment_pool_id"] == (0, 0) for block in active(segment)], [(a, 5 * MIB)])
            is_(sum(segment["total_size"] for segment in segments), runtime.stats().held)
            for segment in segments:
                is_(segment["total_size"], sum(block["size"] for block in segment["blocks"]))
                at = segment["address"]
                for block in segment["blocks"]:
                    is_(block["address"], at)
                    at += block["size"]
            is_(sum(segment["requested_size"] for segment in segments), 15 * MIB)
            t_free(b, 7 * MIB, 0, one)
            is_(seams.wseam_torch_pool_of(b, (U * 2)()), 0)
        """)

    def test_captured_streams_that_weir_does_not_know_get_nothing_of_each_other(self):
        self.run_lines("""
            one, joins = make_stream(), make_stream()
            begin_capture(one), begin_capture(joins)
            t_begin_pool(0, 1, 0, c.byref(Filter(one, joins)))
            a = t_alloc(2 * MIB, 0, one)
            t_free(a, 2 * MIB, 0, one)
            b = t_alloc(2 * MIB, 0, joins)
            assert b != a, "work of both streams would be in the same memory"
            is_(seams.wseam_streams(), 0)
            is_(blocks(1), {b})
            end_capture(one), end_capture(joins)
            t_end_pool(0, 1, 0)
            is_(account(), (2 * MIB, 2 * MIB))
            third = make_stream()
            begin_capture(third)
            t_begin_pool(0, 1, 0, c.byref(Filter(third)))
            is_(t_alloc(2 * MIB, 0, third), a)  # a later graph has what an earlier one is past
            end_capture(third)
            t_end_pool(0, 1, 0)
        """)

    def test_all_that_a_captured_stream_has_freed_that_weir_does_not_know_is_the_pools_at_its_end(self):
        self.run_lines("""
            one = make_stream()
            begin_capture(one)
            accepts = Filter(one)
            t_begin_pool(0, 1, 0, c.byref(accepts))
            made = [t_alloc(2 * MIB, 0, one) for _ in range(3)]
            for block in made:
                t_free(block, 2 * MIB, 0, one)
            is_((account(), blocks(1)), ((6 * MIB, 0), set()))
            end_capture(one)
            t_end_pool(0, 1, 0)
            is_(account(), (0, 6 * MIB))
        """)

    def test_a_use_by_a_captured_stream_that_weir_does_not_know_is_not_lost(self):
        self.run_lines("""
            one, other = make_stream(), make_stream()
            a = t_alloc(3 * MIB, 0, one)
            begin_capture(other)
            t_record_stream(a, other)
            t_free(a, 3 * MIB, 0, one)
            is_(account(), (3 * MIB, 0))
            end_capture(other)
            with Work(other):
                t_free(t_alloc(256, 0, one), 256, 0, one)
                is_(account(), (0, 3 * MIB))
            synchronize(other)
            is_(account(), (0, 0))
        """)

    def test_a_pool_may_be_the_first_that_a_device_sees(self):
        self.run_lines("""
            t_begin_pool(0, 1, 0, c.byref(Filter()))
            is_(opened, [0])
            t_end_pool(0, 1, 0)
        """)

    def test_where_a_block_begins(self):
        self.run_lines("""
            a, size = t_alloc(1000, 0, None), c.c_size_t()
            is_(t_base(a + 300, c.byref(size)), a)
            is_(size.value, 1024)
            t_free(a, 1000, 0, None)
        """)

    def test_a_fraction_of_the_device_is_a_maximum_and_the_budget_holds_beside_it(self):
        self.run_lines("""
            t_set_fraction(1 / 64, 0)  # of 1 GiB
            is_(client.stats().maximum, 16 * MIB)
            is_(t_alloc(17 * MIB, 0, None), None)
            t_set_fraction(0.25, 0)
            is_(client.stats().maximum, 64 * MIB)
            is_(t_alloc(65 * MIB, 0, None), None)
            t_set_fraction(1.0, 0)
            is_(client.stats().maximum, 64 * MIB)
        """)

    def test_without_a_cache_memory_goes_back_at_once_and_is_in_no_count(self):
        self.run_lines("""
            counts, one = wseam_torch_counts(), make_stream()
            def counted():
                seams.wseam_torch_count(0, c.byref(counts))
                return counts.allocation.current, counts.requested_bytes.allocated
            a = t_alloc(8 * MIB, 0, one)
            is_(counted(), (1, 8 * MIB))
            seams.wseam_torch_set_caching(False)
            b = t_alloc(4 * MIB, 0, one)
            is_(counted(), (1, 8 * MIB))
            t_free(a, 8 * MIB, 0, one)  # which was counted
            is_(counted(), (0, 8 * MIB))
            seams.wseam_torch_set_caching(True)
            synchronize(one)
            until = time.monotonic() + 60
            while runtime.drain() and time.monotonic() < until:
                time.sleep(0.001)
            assert runtime.stats().held >= 12 * MIB
            t_free(b, 4 * MIB, 0, one)
            assert runtime.stats().held <= 4 * MIB, runtime.stats().held
            is_(counted(), (0, 8 * MIB))
            d = t_alloc(4 * MIB, 0, one)
            is_(counted(), (1, 12 * MIB))
            t_free(d, 4 * MIB, 0, one)
            seams.wseam_torch_empty_cache()
            counted()
            is_(counts.emptied, 1)
        """)

    def test_a_pool_that_is_kept_stays_without_a_graph(self):
        self.run_lines("""
            one = make_stream()
            check(seams.wseam_torch_keep_pool(0, 0, 9))
            is_((seams.wseam_torch_pool_users(0, 0, 9), seams.wseam_torch_pool_users(0, 9, 0)), (1, 0))
            t_begin_pool(0, 0, 9, c.byref(Filter(one)))
            is_(seams.wseam_torch_pool_users(0, 0, 9), 2)
            a = t_alloc(40 * MIB, 0, one)
            t_end_pool(0, 0, 9)
            t_release_pool(0, 0, 9)
            t_free(a, 40 * MIB, 0, one)
            synchronize(one)
            is_(t_alloc(40 * MIB, 0, one), None)  # the pool has it
            t_begin_pool(0, 0, 9, c.byref(Filter(one)))
            is_(t_alloc(40 * MIB, 0, one), a)
            t_end_pool(0, 0, 9)
            t_release_pool(0, 0, 9)
            t_free(a, 40 * MIB, 0, one)
            t_release_pool(0, 0, 9)
            is_(seams.wseam_torch_pool_users(0, 0, 9), 0)
            synchronize(one)
            assert t_alloc(40 * MIB, 0, one), "the pool's memory is not there"
        """)

    def test_segments_come_from_the_client_of_their_place(self):
        self.run_lines("""
            other = runtime.client("part")
            place, more = c.c_int(), c.c_int()
            make, drop = P(), P()
            check(seams.wseam_torch_place(other._pointer, c.byref(place)))
            check(seams.wseam_torch_place(client._pointer, c.byref(more)))
            assert place.value != more.value
            check(seams.wseam_torch_place_functions(place, c.byref(make), c.byref(drop)))
            make = c.CFUNCTYPE(P, N, c.c_int, P)(make.value)
            drop = c.CFUNCTYPE(None, P, N, c.c_int, P)(drop.value)
            a = make(20 * MIB, 0, None)
            is_((other.stats().live, client.stats().live), (20 * MIB, 0))
            is_(make(65 * MIB, 0, None), None)
            make_more, drop_more = P(), P()
            check(seams.wseam_torch_place_functions(more, c.byref(make_more), c.byref(drop_more)))
            b = c.CFUNCTYPE(P, N, c.c_int, P)(make_more.value)(10 * MIB, 0, None)
            is_((other.stats().live, client.stats().live), (20 * MIB, 10 * MIB))
            c.CFUNCTYPE(None, P, N, c.c_int, P)(drop_more.value)(b, 10 * MIB, 0, None)
            is_(client.stats().live, 0)
            drop(a, 20 * MIB, 0, None)
            runtime.drain()
            is_(other.stats().live, 0)
            check(seams.wseam_torch_leave_place(place))
            is_(make(MIB, 0, None), None)
            check(seams.wseam_torch_leave_place(more))
            for _ in range(32):
                check(seams.wseam_torch_place(client._pointer, c.byref(place)))
            try:
                check(seams.wseam_torch_place(client._pointer, c.byref(place)))
                raise AssertionError("a place too many")
            except Exception as error:
                is_(type(error).__name__, "Busy")
        """)


class Answers(unittest.TestCase):
    """What PyTorch asks its own allocator for in Python, over a stand-in for it (fake/): gpu_torch.py asks PyTorch itself."""

    def test_the_accelerator_and_the_snapshot_answer_from_weir(self):
        here = Path(__file__).resolve().parent
        done = run_python(f"import sys\nsys.path[:0] = {[str(here), str(here / 'fake')]!r}\n" + textwrap.dedent("""
            from driver import *
            import torch, weir.torch
            begin()
            alloc, free = seams.wseam_torch_alloc, seams.wseam_torch_free
            alloc.restype, alloc.argtypes = c.c_void_p, [c.c_size_t, c.c_int, c.c_void_p]
            free.restype, free.argtypes = None, [c.c_void_p, c.c_size_t, c.c_int, c.c_void_p]
            seams.wseam_torch_throws = lambda: True  # there is no PyTorch that could
            used = weir.torch.use(budget="64MiB")
            own = torch._C
            assert own._accelerator_isAllocatorInitialized()
            assert own._accelerator_getDeviceStats(0)["allocated_bytes"]["all"]["current"] == 0
            a, b = alloc(3 * MIB, 0, None), alloc(5 * MIB, 0, None)
            free(b, 5 * MIB, 0, None)
            def all_of(name):
                return own._accelerator_getDeviceStats(0)[name]["all"]
            assert (all_of("allocated_bytes")["current"], all_of("allocated_bytes")["peak"]) == (3 * MIB, 8 * MIB)
            assert own._accelerator_getDeviceStats(0) == own._cuda_memoryStats(0)
            assert own._accelerator_getMemoryInfo(0) == torch.cuda.mem_get_info(0) == (61 * MIB, 64 * MIB)
            assert own._accelerator_resetPeakStats(0) is None and all_of("allocated_bytes")["peak"] == 3 * MIB
            assert all_of("allocation")["allocated"] == 2
            assert own._accelerator_resetAccumulatedStats(0) is None and all_of("allocation")["allocated"] == 0
            held = used.client().runtime.stats().held
            alloc_held = alloc(40 * MIB, 0, None)
            free(alloc_held, 40 * MIB, 0, None)
            own._accelerator_emptyCache()
            assert used.client().runtime.stats().held <= held, used.client().runtime.stats()
            blocks = [block["address"] for segment in own._cuda_memorySnapshot()["segments"] for block in segment["blocks"]]
            assert a in blocks
            for asked in (None, (0, 0), (0, 0, True)):  # as releases of PyTorch ask for everything
                assert blocks == [block["address"] for segment in own._cuda_memorySnapshot(asked)["segments"] for block in segment["blocks"]]
            for asked in ((7, 7), (7, 7, False)):
                assert own._cuda_memorySnapshot(asked)["segments"] == [], asked
            free(a, 3 * MIB, 0, None)
        """))
        self.assertEqual(done.returncode, 0, done.stdout)


class Page(unittest.TestCase):
    """What docs/guide/torch.md shows, as it is printed, over the stand-in: gpu_torch.py runs it with PyTorch."""

    def test_snippets(self):
        here = Path(__file__).resolve().parent
        begin = textwrap.dedent(f"""
            import sys
            sys.path[:0] = {[str(here), str(here / 'fake')]!r}
            from driver import begin
            from weir._c.seams import seams
            begin()
            seams.wseam_torch_throws = lambda: True  # there is no PyTorch that could
            seams.wseam_torch_complete = lambda: 8
        """)
        told = []
        for line, text in snippets("torch.md", "torch"):
            done = run_python(begin + text, STUB_CUDA_TOTAL=hex(64 << 30))
            self.assertEqual(0, done.returncode, f"line {line}: {done.stdout}")
            told.append(done.stdout.split())
        self.assertEqual([["True", "4096", "4096"], ["True"], ["True", "1048576.0"]], told)


class Misuse(Lines):
    """What programs do that no allocator can like, over the stub of CUDA's driver."""

    def test_tensors_of_a_thread_that_is_gone_with_its_stream_are_freed_by_another(self):
        self.run_lines("""
            import threading
            made = {}
            def work():
                begin()
                made["stream"] = one = make_stream()
                made["blocks"] = [t_alloc(3 * MIB, 0, one) for _ in range(3)]
                other = make_stream()
                t_record_stream(made["blocks"][0], other)
                for stream in (one, other):
                    with Work(stream):
                        pass
                    synchronize(stream)
                destroy_stream(one), destroy_stream(other)
            thread = threading.Thread(target=work)
            thread.start(), thread.join()
            is_(account()[0], 9 * MIB)
            for block in made["blocks"]:
                t_free(block, 3 * MIB, 0, made["stream"])
            until = time.monotonic() + 60
            while (account() != (0, 0) or seams.wseam_waiting()) and time.monotonic() < until:
                time.sleep(0.001)
                runtime.drain()
            is_(account(), (0, 0))
            third = make_stream()
            large = t_alloc(60 * MIB, 0, third)
            assert large, "the thread's memory is lost"
            t_free(large, 60 * MIB, 0, third)
        """)

    def test_a_stream_that_has_the_address_of_a_gone_one_is_another(self):
        self.run_lines("""
            one = make_stream()
            blocks = [t_alloc(3 * MIB, 0, one) for _ in range(3)]
            destroy_stream(one)
            again = make_stream()
            mine = t_alloc(MIB, 0, again)
            for block in blocks:
                t_free(block, 3 * MIB, 0, one)  # by a handle that is gone, or the new stream's
            t_free(mine, MIB, 0, again)
            synchronize(again)
            until = time.monotonic() + 60
            while account() != (0, 0) and time.monotonic() < until:
                time.sleep(0.001)
                runtime.drain()
            is_(account(), (0, 0))
        """)

    def test_refusals_in_the_middle_lose_nothing(self):
        self.run_lines("""
            one = make_stream()
            held = [t_alloc(8 * MIB, 0, one) for _ in range(7)]
            for _ in range(20):
                is_(t_alloc(30 * MIB, 0, one), None)
                is_(account(), (56 * MIB, 0))
            for block in held:
                t_free(block, 8 * MIB, 0, one)
            large = t_alloc(60 * MIB, 0, one)
            assert large, "what was freed after a refusal is not there"
            t_free(large, 60 * MIB, 0, one)
            synchronize(one)
            is_(account(), (0, 0))
        """)

    def test_a_capture_that_fails_gives_its_pool_back(self):
        self.run_lines("""
            one = make_stream()
            t_free(t_alloc(256, 0, one), 256, 0, one)
            for number in range(1, 4):
                t_begin_pool(0, number, 0, c.byref(Filter(one)))
                begin_capture(one)
                inside = [t_alloc(20 * MIB, 0, one) for _ in range(2)]
                t_free(inside[0], 20 * MIB, 0, one)
                end_capture(one)             # the program's exception is on its way
                t_end_pool(0, number, 0)
                t_free(inside[1], 20 * MIB, 0, one)
                t_release_pool(0, number, 0)
            is_(blocks(3), set())
            large = t_alloc(60 * MIB, 0, one)
            assert large, "the pools' memory is not there"
            t_free(large, 60 * MIB, 0, one)
        """)

    def test_a_child_by_fork_does_nothing_with_what_it_has_inherited(self):
        self.run_lines("""
            import os, signal
            counts = wseam_torch_counts()
            a = t_alloc(3 * MIB, 0, None)
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                t_free(a, 3 * MIB, 0, None)  # its garbage; a lock that the parent's threads had would be locked for ever
                seams.wseam_torch_empty_cache()
                made = t_alloc(MIB, 0, None)
                seams.wseam_torch_count(0, c.byref(counts))
                os._exit(0 if made is None and (counts.allocation.current, counts.emptied) == (1, 0) else 3)
            is_(os.waitpid(child, 0)[1], 0)
            is_(account(), (3 * MIB, 0))
            t_free(a, 3 * MIB, 0, None)
            is_(account(), (0, 0))
        """)

    def test_empty_tensors_take_nothing(self):
        self.run_lines("""
            counts = wseam_torch_counts()
            one = make_stream()
            for _ in range(3):
                is_(t_alloc(0, 0, one), None)
                t_free(None, 0, 0, one)
            t_record_stream(None, one)
            seams.wseam_torch_count(0, c.byref(counts))
            is_((counts.allocation.allocated, counts.failures), (0, 0))
            is_((account(), t_base(None, None)), ((0, 0), None))
        """)


STAND_IN = """
import sys
sys.path[:0] = {paths!r}
from driver import *
import torch, weir, weir.torch
begin()
alloc, free = seams.wseam_torch_alloc, seams.wseam_torch_free
alloc.restype, alloc.argtypes = c.c_void_p, [c.c_size_t, c.c_int, c.c_void_p]
free.restype, free.argtypes = None, [c.c_void_p, c.c_size_t, c.c_int, c.c_void_p]
seams.wseam_torch_throws = lambda: True  # there is no PyTorch that could

def refused(error, function, *words):
    try:
        function()
    except error as caught:
        for word in words:
            assert word in str(caught), str(caught)
    else:
        raise AssertionError("it was not refused")
"""


class Sharing(unittest.TestCase):
    """What is asked before PyTorch sends a tensor to another process."""

    def run_lines(self, lines):
        here = Path(__file__).resolve().parent
        done = run_python(STAND_IN.format(paths=[str(here), str(here / "fake")]) + textwrap.dedent(lines))
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_mapped_memory_is_not_shared_and_stays_as_it_is(self):
        self.run_lines("""
            used = weir.torch.use(budget="64MiB")
            share = lambda pointer, *device: torch.UntypedStorage(pointer, *device)._share_cuda_()
            a = alloc(3000, 0, None)
            refused(weir.Unsupported, lambda: share(a), "3000 bytes on cuda:0", "budget(mapped)", "tensor.cpu()", 'resource="segments"')
            refused(weir.Unsupported, lambda: share(a + 100), "3000 bytes")  # a part of it
            refused(weir.Unsupported, lambda: share(4096), "not weir's")
            assert share(None) == ("shared", None)  # an empty tensor
            assert share(4096, "cpu") == ("shared", 4096)
            assert used.client().stats().live == 3072
            free(a, 3000, 0, None)
            assert used.client().stats().live == 0
        """)

    def test_memory_in_segments_is_shared_and_its_block_is_counted_by_pytorch(self):
        self.run_lines("""
            refused(weir.Invalid, lambda: weir.torch.use(weir.Runtime("cuda:0").client("mine"), resource="segments"), "limits")
            used = weir.torch.use(resource="segments")
            refused(weir.Conflict, used.client, "segments", "cache")  # the process has a runtime of that device already
        """)
        self.run_lines("""
            used = weir.torch.use(budget="64MiB", resource="segments")
            a = alloc(3000, 0, None)
            assert used.client().runtime.resource == "budget(segments)"
            assert torch.UntypedStorage(a)._share_cuda_() == ("shared", a)
            refused(weir.Unsupported, weir.torch.suspend, "segments")
            free(a, 3000, 0, None)
        """)

    def test_a_pools_segments_are_shared_where_each_is_an_allocation(self):
        for resource, shared in (("cache", False), ("segments", False), ("direct", True)):
            with self.subTest(resource):
                self.run_lines(f"""
                    import contextlib
                    made = []
                    torch._C._cuda_customAllocator = lambda make, drop: made.append(make) or torch.cuda.Allocator(make, drop)
                    torch.cuda.MemPool = lambda allocator: type("MemPool", (), {{}})()
                    torch.cuda.use_mem_pool = lambda pool: contextlib.nullcontext()
                    client = weir.Runtime("cuda:0", budget="64MiB", resource={resource!r}).client("part")
                    with weir.torch.pool(client), weir.torch.pool(client):
                        make = c.CFUNCTYPE(c.c_void_p, c.c_size_t, c.c_int, c.c_void_p)(made[0])
                        segments = [make(2 * MIB, 0, None) for _ in range(2)]
                    share = [lambda at=at: torch.UntypedStorage(at + 5000)._share_cuda_() for at in segments]
                    if {shared}:
                        assert [send() for send in share] == [("shared", at + 5000) for at in segments]
                    else:
                        refused(weir.Unsupported, lambda: [send() for send in share], 'resource="direct"')
                    assert torch.UntypedStorage(4096)._share_cuda_() == ("shared", 4096)  # of PyTorch's own memory
                """)

    def test_a_child_by_fork_is_told_so(self):
        self.run_lines("""
            import os
            used = weir.torch.use(budget="64MiB", resource="segments")
            a = alloc(3000, 0, None)
            child = os.fork()
            if child == 0:
                try:
                    torch.UntypedStorage(a)._share_cuda_()
                except weir.Forked:
                    os._exit(alloc(256, 0, None) is not None)  # nothing is done, and nothing crashes
                os._exit(3)
            assert os.waitpid(child, 0)[1] == 0
            assert torch.UntypedStorage(a)._share_cuda_() == ("shared", a)
            b = alloc(5 * MIB, 0, None)
            free(b, 5 * MIB, 0, None), free(a, 3000, 0, None)
            assert used.client().stats().live == 0
        """)

    def test_use_is_refused_where_cuda_has_started_and_the_program_goes_on(self):
        self.run_lines("""
            torch.cuda.is_initialized = lambda: True
            own = torch.UntypedStorage._share_cuda_
            refused(weir.Conflict, lambda: weir.torch.use(budget="64MiB"), "first tensor", "weir.torch.pool")
            assert torch.UntypedStorage._share_cuda_ is own  # nothing of PyTorch's was touched
            assert not hasattr(torch._C, "_cuda_memoryStats")
            refused(weir.Invalid, weir.torch.suspend, "use()")
            torch.cuda.is_initialized = lambda: False
            used = weir.torch.use(budget="64MiB")
            refused(weir.Conflict, weir.torch.use, "once")
            free(alloc(3000, 0, None), 3000, 0, None)
        """)


if __name__ == "__main__":
    unittest.main()
