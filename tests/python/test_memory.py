"""Runtimes, clients, blocks, statistics, options, errors: on the host."""

import contextlib
import ctypes
import os
import threading
import unittest
from unittest import mock

from common import MIB, dropped, run_python

import weir
from weir._c import library, structures


class Bed(unittest.TestCase):
    """A runtime of its own with 64 MiB; at the end nothing is left in it."""

    def setUp(self):
        self.runtime = weir.Runtime("host", budget="64MiB", own=True)

    def tearDown(self):
        self.assertEqual((0, 0, ()), (self.runtime.drain(), self.runtime.stats().live, self.runtime.stats().clients))
        self.runtime.close()


class Blocks(Bed):
    def test_a_block_holds_what_is_written_and_is_freed_at_the_end_of_with(self):
        with self.runtime.client("a") as client:
            with client.alloc("4KiB") as before:
                before.memory[:] = b"x" * 4096
            with client.alloc("4KiB", tag="notes", zeroed=True, memory_class=weir.Class.KV) as block:
                self.assertEqual(bytes(4096), bytes(block.memory))
                block.memory[:5] = b"hello"
                self.assertEqual(b"hello", bytes(block.memory[:5]))
                self.assertEqual((4096, 0), (block.bytes, block.pointer % 256))
                self.assertEqual(4096, client.stats().live_class[weir.Class.KV])
            self.assertEqual((0, 2, 2), (client.stats().live, client.stats().allocations, client.stats().frees))

    def test_flags_are_asked_for_by_name(self):
        asked, call = [], library.lib.weir_alloc_with

        def note(client, request, out):
            asked.append(request._obj.flags)
            return call(client, request, out)

        with self.runtime.client("a") as client, mock.patch.object(library.lib, "weir_alloc_with", note):
            for wanted in ({}, {"zeroed": True}, {"wait": False}):
                client.alloc(1, **wanted).close()
        self.assertEqual([0, structures.ALLOC_ZEROED, structures.ALLOC_NO_WAIT], asked)

    def test_alignment_is_obeyed_or_refused(self):
        with self.runtime.client("a") as client:
            with client.alloc(100, alignment=MIB) as block:
                self.assertEqual(0, block.pointer % MIB)
            with self.assertRaises(weir.Invalid):
                client.alloc(100, alignment=3)

    def test_what_is_made_of_the_memory_keeps_the_block(self):
        with self.runtime.client("a") as client:
            block = client.alloc(4096)
            part = block.memory[16:32]
            with self.assertRaisesRegex(BufferError, "alive"):
                block.close()
            self.assertFalse(block.closed)
            part[:] = b"x" * 16
            del part
            block.close()
            self.assertEqual(0, client.stats().live)

    def test_a_kept_memoryview_is_released_by_close(self):
        with self.runtime.client("a") as client:
            block = client.alloc(4096)
            view = block.memory
            block.close()
            with self.assertRaises(ValueError):
                view[0] = 1

    def test_closing_twice_is_fine_and_use_after_it_raises(self):
        client = self.runtime.client("a")
        block = client.alloc(256)
        for thing in (block, client):
            thing.close()
            thing.close()
            self.assertTrue(thing.closed)
        self.assertEqual(1, self.runtime.stats().frees)
        for use in (lambda: block.pointer, lambda: block.memory, client.stats, lambda: client.alloc(1)):
            with self.assertRaisesRegex(weir.Closed, "is closed") as caught:
                use()
            self.assertEqual(weir.Status.INVALID, caught.exception.status)

    def test_a_client_with_blocks_stays_open(self):
        client = self.runtime.client("a")
        block = client.alloc(4096, tag="the-tag")
        with self.assertRaisesRegex(weir.Busy, "the-tag"):
            client.close()
        self.assertFalse(client.closed)
        with self.assertRaises(weir.Busy):
            self.runtime.close()
        block.close()
        client.close()


class Refusals(Bed):
    def test_the_numbers_of_a_maximum(self):
        with self.runtime.client("small", maximum=MIB) as client, client.alloc(MIB // 2, memory_class=weir.Class.KV):
            with self.assertRaisesRegex(weir.OutOfMemory, "small asked for 1 MiB") as caught:
                client.alloc(MIB, memory_class=weir.Class.WEIGHTS)
            refusal = caught.exception.refusal
            self.assertEqual((weir.Cause.MAXIMUM, "small", "host", weir.Class.WEIGHTS, MIB, MIB // 2, MIB // 2, MIB, 3 * MIB // 2),
                             (refusal.cause, refusal.client, refusal.device, refusal.memory_class, refusal.requested, refusal.current,
                              refusal.remaining, refusal.limit, refusal.needed))
            self.assertEqual(1, client.stats().refusals)
            self.assertIsInstance(caught.exception, MemoryError)

    def test_a_budget_names_who_has_it(self):
        with self.runtime.client("big") as big, big.alloc("60MiB"), self.runtime.client("late") as late:
            with self.assertRaises(weir.OutOfMemory) as caught:
                late.alloc("8MiB", wait=False)
            self.assertEqual(weir.Cause.BUDGET, caught.exception.refusal.cause)
            self.assertEqual((weir.Holder("big", 60 * MIB),), caught.exception.refusal.holders)

    def test_a_refused_guarantee_has_not_the_numbers_of_an_earlier_refusal(self):
        with self.runtime.client("x", maximum=MIB) as client:
            with self.assertRaises(weir.OutOfMemory):
                client.alloc(2 * MIB)
            with self.assertRaisesRegex(weir.OutOfMemory, "guaranteed") as caught:
                self.runtime.client("x", guarantee="1GiB")
            self.assertIsNone(caught.exception.refusal)

    def test_a_failure_of_its_own_has_not_the_numbers_of_a_refusal_that_python_did_not_see(self):
        """A program's C code is refused on this thread, between two calls of the package."""
        own = ctypes.CDLL(library.lib._name).weir_alloc  # of which the package knows nothing
        own.argtypes = [ctypes.c_void_p, ctypes.c_size_t, structures.weir_stream, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)]
        with self.runtime.client("x", maximum=MIB) as client:
            with client._use() as pointer:
                status = own(pointer, 2 * MIB, structures.weir_stream(), weir.Class.OTHER, ctypes.byref(ctypes.c_void_p()))
            self.assertEqual(weir.Status.OUT_OF_MEMORY, status)
            with self.assertRaises(weir.OutOfMemory) as caught:
                self.runtime.client("y", guarantee="1GiB")
            self.assertIsNone(caught.exception.refusal)

    def test_refusals_in_the_same_words_have_numbers_of_their_own(self):
        with self.runtime.client("x", maximum=MIB) as client:
            told = []
            for held in (0, MIB // 2):
                with contextlib.ExitStack() as blocks:
                    if held:
                        blocks.enter_context(client.alloc(held))
                    with self.assertRaises(weir.OutOfMemory) as caught:
                        client.alloc(2 * MIB)
                    told.append(caught.exception.refusal)
            self.assertEqual([(0, MIB), (MIB // 2, MIB // 2)], [(one.current, one.remaining) for one in told])


class Statistics(Bed):
    def test_they_add_up(self):
        clients = [self.runtime.client(f"c{i}", maximum=MIB) for i in range(20)]  # more than one look has places for
        blocks = [client.alloc(1024 * (i + 1), memory_class=weir.Class(i % 5)) for i, client in enumerate(clients)]
        stats = self.runtime.stats()
        self.assertEqual([client.name for client in clients], [each.name for each in stats.clients])
        self.assertEqual(stats.live, sum(each.live for each in stats.clients))
        self.assertEqual(1024 * 210, stats.live)
        self.assertEqual(stats.held, stats.live + stats.pending + stats.cached + stats.spare)
        for each in stats.clients:
            self.assertEqual((each.live, MIB, 1), (sum(each.live_class.values()), each.maximum, each.blocks))
        self.assertEqual(stats.clients[3], clients[3].stats())
        with self.assertRaises(AttributeError):
            stats.live = 0
        for thing in (*blocks, *clients):
            thing.close()

    def test_limits_and_the_budget_can_change(self):
        with self.runtime.client("a", maximum=MIB) as client, client.alloc(MIB):
            client.set_limits(maximum="2MiB", guarantee="1MiB")
            self.assertEqual((2 * MIB, MIB), (client.stats().maximum, client.stats().guaranteed))
            self.runtime.budget = "32MiB"
            self.assertEqual(32 * MIB, self.runtime.budget)
            with self.assertRaises(weir.OutOfMemory):
                self.runtime.budget = 4096
            self.assertEqual(32 * MIB, self.runtime.budget)


class Leaks(Bed):
    def test_a_dropped_client_is_reported_by_name_and_closed(self):
        told = dropped(lambda: self.runtime.client("forgotten"))
        self.assertEqual(["the client forgotten was never closed"], told)
        self.assertEqual((), self.runtime.stats().clients)

    def test_a_dropped_block_is_reported_and_freed(self):
        with self.runtime.client("a") as client:
            self.assertEqual(["the block of 512 bytes of a was never closed"], dropped(lambda: client.alloc(512)))
            self.assertEqual(0, client.stats().live)

    def test_a_block_whose_memory_was_looked_at_needs_no_collector(self):
        with self.runtime.client("a") as client, self.assertWarns(ResourceWarning):
            client.alloc(512).memory[0] = 1
            self.assertEqual(0, client.stats().live)

    def test_what_is_open_at_exit_harms_nothing(self):
        ended = run_python("import weir\nc = weir.Runtime('host', budget='8MiB').client('a')\nb = c.alloc(64)\nm = b.memory\nprint('end')")
        self.assertEqual((0, "end\n"), (ended.returncode, ended.stdout))


class Threads(Bed):
    def test_many_threads_allocate_and_are_refused_with_their_own_numbers(self):
        wrong, meet = [], threading.Barrier(8)

        def work(number):
            with self.runtime.client(f"t{number}", maximum=MIB) as client:
                meet.wait()
                for i in range(100):
                    with client.alloc(4096 * (1 + i % 7)) as block:
                        block.memory[0] = number
                    try:
                        client.alloc(MIB + 4096 * (number + 1))
                        wrong.append("it was not refused")
                    except weir.OutOfMemory as error:
                        if (error.refusal.client, error.refusal.requested) != (f"t{number}", MIB + 4096 * (number + 1)):
                            wrong.append(error.refusal)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([], wrong)
        self.assertEqual((800, 800, 800), (self.runtime.stats().allocations, self.runtime.stats().frees, self.runtime.stats().refusals))

    def test_a_client_is_not_closed_under_a_call_of_another_thread(self):
        client = self.runtime.client("a")
        with client._use():
            with self.assertRaisesRegex(weir.Busy, "1 calls"):
                client.close()
        client.close()


class Machine(unittest.TestCase):
    def test_the_process_has_one_runtime_of_a_device(self):
        with weir.Runtime("host", budget="1GiB") as first:
            with weir.Runtime("host") as second, second.client("seen"):
                self.assertEqual(["seen"], [each.name for each in first.stats().clients])
            with self.assertRaises(weir.Conflict) as caught:
                weir.Runtime("host", budget="2GiB")
            self.assertEqual(weir.Status.CONFLICT, caught.exception.status)
            self.assertEqual(str(caught.exception), caught.exception.detail)
            self.assertIn("budget", caught.exception.detail)

    def test_errors_are_those_of_python_where_it_has_them(self):
        with self.assertRaises(weir.NotFound) as caught:
            weir.Runtime("cuda:63")
        self.assertIsInstance(caught.exception, LookupError)
        with self.assertRaisesRegex(weir.Invalid, "moon"):
            weir.Runtime("moon")
        with self.assertRaisesRegex(LookupError, "there is no resource"):
            weir.Runtime("host", own=True, resource="nonsense")

    def test_options_by_name(self):
        self.assertIn("budget", [each.name for each in weir.options()])
        weir.set_option("wait", "250ms")
        self.assertEqual(("250ms", weir.Source.CALL), (weir.option("wait").value, weir.option("wait").source))
        weir.set_option("wait", None)
        self.assertEqual(weir.Source.DEFAULT, weir.option("wait").source)
        with self.assertRaisesRegex(weir.NotFound, "budget"):
            weir.option("bugdet")
        with self.assertRaises(weir.Invalid):
            weir.set_option("wait", "soon")

    def test_sizes(self):
        self.assertEqual([0, 7, 512, 1536, 3 * 2**30, 2**40],
                         [weir.parse_size(each) for each in (0, 7, "512", "1.5KiB", "3 GiB", "1TiB")])
        for wrong in ("", "many", "-1", -1, "1PiB", "1 GiB of it"):
            with self.assertRaises(ValueError):
                weir.parse_size(wrong)
        self.assertEqual("1.5 GiB", weir.format_size(3 * 2**29))

    def test_the_machine_has_its_processor(self):
        first = weir.devices()[0]
        self.assertEqual((weir.Hardware.CPU, "cpu", "host", True), (first.kind, first.key, first.runtime, first.usable))
        self.assertTrue(weir.version().startswith("0.2."))

    def test_a_libweir_that_is_none_is_an_import_error_with_its_name(self):
        ended = run_python("import weir", WEIR_LIBRARY="/nonexistent/libweir.so")
        self.assertIn("ImportError: weir needs libweir.so.0.2", ended.stdout)
        self.assertIn("/nonexistent/libweir.so", ended.stdout)

    @unittest.skipUnless("WEIR_LIBRARY" in os.environ, "an installed package has its own libweir beside it")
    def test_without_the_variable_the_system_is_asked(self):
        folder = os.path.dirname(os.environ["WEIR_LIBRARY"])
        ended = run_python("import weir; print(weir.version()[:3])", WEIR_LIBRARY=None, LD_LIBRARY_PATH=folder)
        self.assertEqual("0.2\n", ended.stdout)

    def test_a_forked_child_is_told_so(self):
        ended = run_python("import os, weir\nr = weir.Runtime('host')\nif os.fork() == 0:\n    try: r.stats()\n"
                           "    except weir.Forked as e: print(e.status.name, flush=True)\n    os._exit(0)\nos.wait()")
        self.assertEqual("FORKED\n", ended.stdout)


if __name__ == "__main__":
    unittest.main()
