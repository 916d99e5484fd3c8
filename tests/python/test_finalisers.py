"""What the collector finds: it is ended outside of weir's locks and calls, and once; what fails there is in nobody's way."""

import gc
import threading
import unittest
import warnings
from unittest import mock

from common import run_python

import weir
from weir import _handle, _later
from weir._c import library
from weir.tensor import Tensor


class Node:
    """Something in a cycle, which only the collector finds."""

    def __init__(self, *has):
        self.me, self.has = self, has


class Bed(unittest.TestCase):
    def setUp(self):
        gc.collect()
        gc.disable()  # it runs where a test says so
        self.runtime = weir.Runtime("host", budget="64MiB", own=True)
        caught = warnings.catch_warnings(record=True)
        self.told = caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("always")

    def tearDown(self):
        gc.enable()
        self.assertEqual((0, 0, ()), (self.runtime.drain(), self.runtime.stats().live, self.runtime.stats().clients))
        self.runtime.close()
        self.assertEqual(0, len(_later._left) + len(_later._stuck))

    def frees(self):
        return self.runtime.stats().frees


class Locks(Bed):
    def free_now(self, lock):
        """Whether another thread can take the lock at this moment."""
        got = []

        def look():
            got.append(lock.acquire(blocking=False))
            if got[0]:
                lock.release()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return got[0]

    def test_an_error_is_made_when_the_lock_is_free(self):
        """Making it may start the collector, and that anybody's finaliser, which may wait for another thread."""
        client, looks = self.runtime.client("a"), []

        def seen(kind):
            def make(*arguments):
                looks.append((kind.__name__, self.free_now(client._lock)))
                return kind(*arguments)
            return make
        with client._use(), mock.patch.object(_handle, "Busy", seen(weir.Busy)), self.assertRaises(weir.Busy):
            client.close()
        client._lend()
        with mock.patch.object(_handle, "BufferError", seen(BufferError), create=True), self.assertRaises(BufferError):
            client.close()
        client._take_back()
        client.close()
        with mock.patch.object(_handle, "Closed", seen(weir.Closed)):
            for use in (client.stats, client._lend):
                with self.assertRaises(weir.Closed):
                    use()
        self.assertEqual([("Busy", True), ("BufferError", True), ("Closed", True), ("Closed", True)], looks)

    def test_nothing_of_weirs_runs_in_a_finaliser_while_the_lock_is_held(self):
        with self.runtime.client("a") as client:
            Node(client.alloc(4096))
            with client._lock, _later.inside:
                gc.collect()
                self.assertEqual(1, len(_later._left))
            self.assertEqual((0, 4096), (len(_later._left), client.stats().peak))
            self.assertEqual(0, client.stats().live)


class Collected(Bed):
    def test_what_is_collected_inside_of_a_call_is_ended_behind_it(self):
        """The collector runs in what libweir calls as well, with locks of libweir's held."""
        call, inside = library.lib.weir_alloc_with, []

        def collecting(*arguments):
            gc.collect()
            status = call(*arguments)
            details = weir._c.structures.weir_client_stats()
            library.check(library.lib.weir_client_info(arguments[0], details))
            inside.append(details.frees)
            return status
        with self.runtime.client("a") as client:
            Node(client.alloc(4096), client.alloc(8192))
            with mock.patch.object(library.lib, "weir_alloc_with", collecting), client.alloc(256):
                self.assertEqual([0], inside)
                self.assertEqual((2, 256), (client.stats().frees, client.stats().live))
        self.assertEqual(2, len(self.told))

    def test_outside_it_is_ended_at_once(self):
        with self.runtime.client("a") as client:
            Node(client.alloc(4096))
            with mock.patch.object(_later, "_here", _later._Here()):
                gc.collect()
            self.assertEqual(0, len(_later._left))
            self.assertEqual(1, self.frees())
            self.assertEqual(["the block of 4096 bytes of a was never closed"], [str(each.message) for each in self.told])

    def test_a_client_and_its_block_in_one_cycle_are_both_closed(self):
        for order in (lambda client, block: (client, block), lambda client, block: (block, client)):
            client = self.runtime.client("both")
            node = Node(*order(client, client.alloc(512)))
            del client, node
            gc.collect()
            self.assertEqual((0, ()), (self.runtime.stats().live, self.runtime.stats().clients))

    def test_another_thread_does_what_one_that_stays_inside_has_left(self):
        with self.runtime.client("a") as client:
            Node(client.alloc(4096))
            with client._use():
                gc.collect()
                thread = threading.Thread(target=client.stats)
                thread.start()
                thread.join()
                self.assertEqual(0, len(_later._left))
            self.assertEqual(0, client.stats().live)

    def test_a_tensor_that_was_lent_is_given_back_behind_the_call(self):
        with self.runtime.client("a") as client, client.alloc(4096) as block:
            block._lend()
            keep = Tensor(block, block._place, block.pointer, weir.Type.U8, (1,))
            keep._shown = True
            Node(keep)
            del keep
            with client._use():
                gc.collect()
                self.assertEqual(1, block._lent)
            self.assertEqual(0, block._lent)

    def test_warnings_that_are_errors_are_printed_and_not_raised_into_a_call(self):
        ended = run_python("import gc, weir\ngc.disable()\nr = weir.Runtime('host', budget='8MiB', own=True)\nc = r.client('a')\n"
                           "x = [c.alloc(64)]\nx.append(x)\ndel x\nwith c._use(): gc.collect()\nprint('frees', c.stats().frees)\n"
                           "d = r.client('d')\ny = [d, d.alloc(64)]\ny.append(y)\ndel d, y\ngc.collect()\n"
                           "print('clients', [each.name for each in r.stats().clients])\n"
                           "c.close(); r.close()", "-W", "error::ResourceWarning")
        self.assertEqual(0, ended.returncode, ended.stdout)
        self.assertIn("frees 1\n", ended.stdout)
        self.assertIn("clients ['a']\n", ended.stdout)
        self.assertIn("ResourceWarning: the block of 64 bytes of a was never closed", ended.stdout)

    def test_what_fails_is_printed_and_the_rest_is_done(self):
        done, printed = [], []

        def fail():
            raise weir.Busy("not now")
        with mock.patch("sys.unraisablehook", lambda raised: printed.append(raised.exc_value)):
            with _later.inside:
                _later.later(fail)
                _later.later(lambda: done.append(1))
        self.assertEqual(([1], ["not now"]), (done, [str(each) for each in printed]))

    def test_an_interrupt_loses_nothing(self):
        with self.runtime.client("a") as client:
            Node(client.alloc(4096))
            with mock.patch.object(library.lib, "weir_free_block", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
                with client._use():
                    gc.collect()
            self.assertEqual(0, client.stats().live)


class Many(Bed):
    def test_cycles_while_a_client_is_closed_and_used_by_others(self):
        """With the collector at almost every object that is made."""
        gc.enable()
        before = gc.get_threshold()
        self.addCleanup(gc.set_threshold, *before)
        client, end = self.runtime.client("shared"), threading.Event()

        def use():
            while not end.is_set():
                client.alloc(4096).close()
        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        gc.set_threshold(1)
        for _ in range(100):
            Node(client.alloc(256))
            try:
                self.runtime.client("other").close()
                with client._use():
                    client.close()
            except weir.Busy:
                pass
        end.set()
        for thread in threads:
            thread.join()
        gc.collect()
        self.assertEqual(0, client.stats().live)
        client.close()


if __name__ == "__main__":
    unittest.main()
