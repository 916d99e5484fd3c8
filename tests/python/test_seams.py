"""libweir-seams, called as frameworks call it, over the stub of CUDA's driver. Each test is a process of its own, as a process has
one runtime for a device."""

import textwrap
import unittest
from pathlib import Path

from common import run_python

BEGIN = """
import sys
import time
sys.path.insert(0, {tests!r})
from driver import *

def is_(got, wanted):
    assert got == wanted, f"{{got}}, not {{wanted}}"

begin()
runtime = Runtime("cuda:0", budget="64MiB", own=True)
client = runtime.client("one")
"""


class Seams(unittest.TestCase):
    def run_lines(self, lines, **environment):
        """Answers what was told."""
        code = BEGIN.format(tests=str(Path(__file__).resolve().parent)) + textwrap.dedent(lines)
        done = run_python(code, **environment)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_a_freed_block_serves_its_stream_at_once_and_another_one_later(self):
        self.run_lines("""
            one, other = make_stream(), make_stream()
            with Work(one):
                a = alloc(client, 3 * MIB, one)
                free(client, a, one)
                b = alloc(client, 3 * MIB, other)
                assert b != a, "the other stream got memory that this one's work still has"
                is_(alloc(client, 3 * MIB, one), a)
            is_(of_account(client), (6 * MIB, 3, 1))
            is_(seams.wseam_streams(), 2)
        """)

    def test_a_stream_is_made_known_once_whoever_asks(self):
        self.run_lines("""
            streams = [make_stream() for _ in range(40)]
            def use_all():
                begin()
                for _ in range(3):
                    for stream in streams:
                        free(client, alloc(client, 1000, stream), stream)
            threads = [threading.Thread(target=use_all) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            is_(seams.wseam_streams(), 40)
            is_(of_account(client), (0, 480, 480))
            before = stub("cuStreamGetCtx")
            for _ in range(100):
                free(client, alloc(client, 1000, streams[0]), streams[0])
            is_(stub("cuStreamGetCtx") - before, 0)  # nobody has to register it again
        """)

    def test_a_new_stream_with_the_handle_of_an_old_one_is_another_stream(self):
        self.run_lines("""
            one = make_stream()
            with Work(one):
                a = alloc(client, 3 * MIB, one)
                free(client, a, one)
                destroy_stream(one)
                is_(make_stream(), one)
                b = alloc(client, 3 * MIB, one)
                assert b != a, "the new stream got memory that the old one's work still has"
                free(client, b, one)
                is_(alloc(client, 3 * MIB, one), b)
            is_(seams.wseam_streams(), 1)
            is_(stub("dead streams used"), 0)
        """)

    def test_another_thread_sees_that_a_handle_means_a_new_stream(self):
        self.run_lines("""
            one = make_stream()
            found, turn = [], [threading.Event(), threading.Event()]
            def other():
                begin()
                found.append(alloc(client, 3 * MIB, one))
                free(client, found[0], one)
                turn[0].set()
                turn[1].wait(60)
                found.append(alloc(client, 3 * MIB, one))
            thread = threading.Thread(target=other)
            with Work(one):
                thread.start()
                turn[0].wait(60)
                destroy_stream(one)
                is_(make_stream(), one)
                alloc(client, 1000, one)
                turn[1].set()
                thread.join()
            assert found[0] != found[1], "the new stream got memory that the old one's work still has"
        """)

    def test_what_is_freed_in_a_capture_is_freed_behind_it(self):
        self.run_lines("""
            one = make_stream()
            a = alloc(client, 3 * MIB, one)
            begin_capture(one)
            b = alloc(client, MIB, one)
            for pointer in (a, b):
                free(client, pointer, one)
            is_((client.stats().blocks, seams.wseam_waiting()), (2, 2))
            end_capture(one)
            is_(seams.wseam_waiting(), 0)
            is_(of_account(client), (0, 2, 2))
            is_(stub("captures broken"), 0)
        """)

    def test_a_stream_that_weir_meets_in_a_capture(self):
        self.run_lines("""
            one = make_stream()
            begin_capture(one)
            a = alloc(client, 3 * MIB, one)
            free(client, a, one)
            end_capture(one)
            is_((seams.wseam_waiting(), of_account(client)), (0, (0, 1, 1)))
            is_(stub("captures broken"), 0)
            free(client, alloc(client, MIB, one), one)
            is_(of_account(client), (0, 2, 2))
        """)

    def test_the_legacy_stream_has_two_names(self):
        self.run_lines("""
            a = alloc(client, MIB, None)
            free(client, a, 1)
            is_(alloc(client, MIB, 1), a)
            is_(seams.wseam_streams(), 1)
        """)

    def test_per_thread_streams_are_given_up_when_their_threads_have_ended(self):
        self.run_lines("""
            blocks = []
            def work():
                begin()
                blocks.append(alloc(client, MIB, PER_THREAD))
                free(client, alloc(client, MIB, PER_THREAD), PER_THREAD)
            import os
            for number in range(5):
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
                while os.path.exists(f"/proc/self/task/{thread.native_id}"):
                    pass  # Python does not wait for the end of the system's thread
                is_(seams.wseam_streams(), 1)  # the one before was given up
            is_(len(set(blocks)), 5)
            for pointer in blocks:  # each on the stream of this thread, as the program says
                free(client, pointer, PER_THREAD)
            is_(of_account(client), (0, 10, 10))
            is_(seams.wseam_streams(), 1)
        """)

    def test_the_streams_of_all_threads_that_have_ended_are_given_up(self):
        self.run_lines("""
            import os
            met = threading.Barrier(4)
            def work():
                begin()
                free(client, alloc(client, MIB, PER_THREAD), PER_THREAD)
                met.wait()
                met.wait()
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            met.wait()
            is_(seams.wseam_streams(), 3)
            met.wait()
            for thread in threads:
                thread.join()
                while os.path.exists(f"/proc/self/task/{thread.native_id}"):
                    pass
            free(client, alloc(client, MIB, PER_THREAD), PER_THREAD)
            is_(seams.wseam_streams(), 1)
        """)

    def test_frees_of_two_captures_wait_for_the_one_and_for_the_other(self):
        self.run_lines("""
            one, other = make_stream(), make_stream()
            blocks = [(alloc(client, 1000, stream), stream) for stream in (one, other) for _ in range(100)]
            begin_capture(one), begin_capture(other)
            for pointer, stream in blocks:
                free(client, pointer, stream)
            is_((seams.wseam_waiting(), client.stats().blocks), (200, 200))
            end_capture(one)
            is_((seams.wseam_waiting(), client.stats().blocks), (100, 100))
            for pointer in [alloc(client, 1000, other) for _ in range(100)]:  # for which there is room in front only
                free(client, pointer, other)
            is_((seams.wseam_waiting(), client.stats().blocks), (200, 200))
            end_capture(other)
            is_(seams.wseam_waiting(), 0)
            is_(of_account(client), (0, 300, 300))
            is_(stub("captures broken"), 0)
        """)

    def test_what_is_freed_for_all_streams_waits_for_the_legacy_one(self):
        self.run_lines("""
            a = alloc_for_all(client, 3 * MIB)
            with Work(1):
                seams.wseam_free_behind(client._pointer, a)
                stats = client.stats()
                is_((stats.live, stats.pending), (0, 3 * MIB))
                assert alloc_for_all(client, 3 * MIB) != a
            synchronize(1)
            until = time.monotonic() + 60
            while runtime.drain() and time.monotonic() < until:  # the point behind all streams comes a moment later
                time.sleep(0.001)
            is_((runtime.drain(), client.stats().pending), (0, 0))
        """)

    def test_a_thread_without_a_context(self):
        self.run_lines("""
            one = make_stream()
            for _ in range(2):
                thread = threading.Thread(target=lambda: free(client, alloc(client, MIB, one), one))
                thread.start()
                thread.join()
            is_(of_account(client), (0, 2, 2))
            is_(seams.wseam_streams(), 1)
        """)

    def test_a_runtime_can_be_closed_when_its_streams_are_forgotten(self):
        self.run_lines("""
            import weir
            one = make_stream()
            free(client, alloc(client, MIB, one), one)
            client.close()
            try:
                runtime.close()
                raise SystemExit("it was closed with a registered stream")
            except weir.Busy:
                pass
            check(seams.wseam_forget(runtime._pointer))
            is_(seams.wseam_streams(), 0)
            runtime.close()
            again = Runtime("cuda:0", budget="64MiB", own=True)
            client = again.client("two")
            free(client, alloc(client, MIB, one), one)  # and the thread's copy is not taken for it
            is_(of_account(client), (0, 1, 1))
        """)

    def test_a_runtime_forgets_all_of_its_streams_and_no_others(self):
        self.run_lines("""
            second = Runtime("cuda:1", budget="64MiB", own=True)
            its = second.client("two")
            for stream in [make_stream() for _ in range(3)]:
                free(client, alloc(client, MIB, stream), stream)
            begin(1)
            other = make_stream()
            free(its, alloc(its, MIB, other), other)
            is_(seams.wseam_streams(), 4)
            check(seams.wseam_forget(runtime._pointer))
            is_(seams.wseam_streams(), 1)
            client.close()
            runtime.close()
            free(its, alloc(its, MIB, other), other)
            is_(seams.wseam_streams(), 1)
            seams.wseam_end_stream(other)
            is_(seams.wseam_streams(), 0)
            free(its, alloc(its, MIB, other), other)  # it is met anew, whatever the thread knew of it
            is_((seams.wseam_streams(), of_account(its)), (1, (0, 3, 3)))
        """, STUB_CUDA_DEVICES="2")

    def test_a_stream_that_ends_is_given_up_by_all_runtimes(self):
        self.run_lines("""
            second = Runtime("cuda:0", budget="64MiB", own=True)
            its = second.client("two")
            one = make_stream()
            for who in (client, its):
                free(who, alloc(who, MIB, one), one)
            is_(seams.wseam_streams(), 2)
            seams.wseam_end_stream(one)
            is_(seams.wseam_streams(), 0)
            for who, of in ((client, runtime), (its, second)):
                who.close()
                of.close()
        """)

    def test_a_stream_that_ends_is_given_up_as_often_as_it_was_made_known(self):
        self.run_lines("""
            one, other = make_stream(), make_stream()
            for stream in (one, other, one):
                free(client, alloc(client, MIB, stream), stream)
                driver.stub_fail(b"cuStreamGetId", 1, 999)  # which stream it is cannot be told: it is made known once more
            driver.stub_fail(b"cuStreamGetId", 0, 0)
            seams.wseam_end_stream(one)
            is_(seams.wseam_streams(), 1)
            seams.wseam_end_stream(other)
            is_(seams.wseam_streams(), 0)
            client.close()
            runtime.close()
        """)

    def test_what_weir_does_not_take_is_said(self):
        self.run_lines("""
            import weir
            for wrong, kind in ((lambda: alloc(client, 65 * MIB, None), weir.OutOfMemory), (lambda: alloc(closed, 1, None), weir.Invalid)):
                closed = runtime.client("closed")
                closed_pointer = closed._pointer
                closed.close()
                closed._pointer = closed_pointer
                try:
                    wrong()
                    raise SystemExit("it was done")
                except kind as error:
                    assert error.detail, "no words"
                finally:
                    closed._pointer = None
            is_(of_account(client), (0, 0, 0))
        """)

    def test_a_free_that_fails_is_logged(self):
        told = self.run_lines("""
            a = alloc(client, MIB, None)
            free(client, a + 256, None)
            is_(of_account(client), (MIB, 1, 0))
        """, WEIR_LOG="warning")
        self.assertIn("was not freed: ", told)


if __name__ == "__main__":
    unittest.main()
