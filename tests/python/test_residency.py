"""Clients and models that step aside, on the host; and PyTorch's, over a stand-in for it (fake/) and the stub of CUDA's driver."""

import array
import os
import signal
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

from common import MIB, model_path, run_python

import weir
from weir import Class, ResidencyState, Stay

HERE = Path(__file__).resolve().parent
IDS = {name: memoryview(array.array("q", ids)).cast("B").cast("q", (1, 3))
       for name, ids in {"input_ids": [101, 7592, 102], "attention_mask": [1, 1, 1], "token_type_ids": [0, 0, 0]}.items()}


class Clients(unittest.TestCase):
    def setUp(self):
        self.runtime = weir.Runtime("host", budget="64MiB", own=True)
        self.client = self.runtime.client("aside")

    def tearDown(self):
        self.client.close()
        self.runtime.close()

    def test_what_was_written_is_there_again(self):
        with self.client.alloc(8 * MIB, memory_class=Class.WEIGHTS, tag="weights") as block:
            block.memory[:] = bytes(range(256)) * (8 * MIB // 256)
            for number in range(100):
                receipt = self.client.suspend(unwritten=[Class.WEIGHTS])
                self.assertEqual((ResidencyState.SUSPENDED, 8 * MIB, 0), (receipt.state, receipt.away, receipt.stayed))
                self.assertEqual((0, "", 0), (receipt.outside, receipt.outside_method, receipt.graphs))
                self.assertEqual((8 * MIB, 0) if number == 0 else (0, 8 * MIB), (receipt.copied, receipt.trusted))
                stats = self.runtime.stats()
                self.assertEqual((0, 8 * MIB, 8 * MIB), (stats.live, stats.away, stats.clients[0].away))
                self.client.resume()
                self.assertEqual(bytes(range(256)), bytes(block.memory[-256:]))
            self.assertEqual((ResidencyState.RESIDENT, 0), (self.client.residency.state, self.client.residency.away))
            self.assertEqual(8 * MIB, self.client.residency.stored)
            self.assertEqual(8 * MIB, self.client.forget_copies())
            self.assertEqual(0, self.client.residency.stored)

    def test_a_with_resumes_at_its_end_also_after_an_error(self):
        with self.client.alloc(MIB) as block, self.runtime.client("other") as other:
            block.memory[:3] = b"abc"
            with self.client.suspended() as receipt, other.alloc(63 * MIB):
                self.assertEqual(MIB, receipt.away)
                self.assertEqual(ResidencyState.SUSPENDED, self.client.residency.state)
                with self.assertRaises(weir.Busy):
                    self.client.suspend()
                with self.assertRaises(weir.Busy):
                    self.client.alloc(1)
            self.assertEqual(b"abc", bytes(block.memory[:3]))
            with self.assertRaises(KeyError), self.client.suspended():
                raise KeyError
            self.assertEqual(ResidencyState.RESIDENT, self.client.residency.state)
            with self.client.suspended(resume_on_alloc=True):
                self.client.alloc(1).close()
                self.assertEqual(ResidencyState.RESIDENT, self.client.residency.state)

    def test_weights_without_room_begin_in_the_hosts_memory(self):
        self.client.set_overflow(room=40 * MIB)
        with self.client.alloc(30 * MIB, memory_class=Class.WEIGHTS) as block:
            now = self.client.residency
            self.assertEqual((ResidencyState.SUSPENDED, 30 * MIB, 30 * MIB), (now.state, now.away, now.shown))
            block.memory[:3] = b"abc"
            self.client.resume()
            self.assertEqual((0, b"abc"), (self.client.residency.away, bytes(block.memory[:3])))
        self.client.forget_copies()
        self.client.set_overflow(False)
        with self.client.alloc(30 * MIB, memory_class=Class.WEIGHTS):
            self.assertEqual(0, self.client.residency.away)
        with self.assertRaises(weir.Invalid):
            self.client.set_overflow(room=2**64 - 1)

    def test_no_room_to_come_back(self):
        with self.client.alloc(8 * MIB) as block, self.runtime.client("other") as other:
            block.memory[:3] = b"abc"
            self.client.suspend()
            with other.alloc(60 * MIB):
                with self.assertRaises(weir.OutOfMemory) as caught:
                    self.client.resume()
                self.assertEqual("aside", caught.exception.refusal.client)
                self.assertEqual(8 * MIB, self.client.residency.away)
            self.client.resume()
            self.assertEqual(b"abc", bytes(block.memory[:3]))

    def test_two_change_places_where_one_has_room(self):
        with self.runtime.client("other") as other, self.client.alloc(40 * MIB) as mine:
            mine.memory[:3] = b"abc"
            self.client.suspend()
            with other.alloc(40 * MIB, memory_class=Class.WEIGHTS) as its:
                its.memory[:3] = b"xyz"
                for _ in range(2):
                    receipt = other.exchange(self.client)
                    self.assertEqual((ResidencyState.SUSPENDED, 40 * MIB), (receipt.state, receipt.away))
                    self.assertEqual(b"abc", bytes(mine.memory[:3]))
                    with self.assertRaises(weir.Busy):
                        other.exchange(self.client)
                    self.client.exchange(other)
                    self.assertEqual(b"xyz", bytes(its.memory[:3]))
                receipt = other.exchange(self.client, unwritten=[Class.WEIGHTS])
                self.assertEqual((0, 40 * MIB), (receipt.copied, receipt.trusted))
                self.client.exchange(other)
            self.client.resume()

    def test_an_idle_client_leaves_for_another_process(self):
        with self.client.alloc(8 * MIB, memory_class=Class.WEIGHTS) as block:
            block.memory[:3] = b"abc"
            self.assertEqual((False, 0, 0), (self.runtime.outside.watched, self.runtime.outside.looks, self.runtime.outside.suspends))
            with self.assertRaises(weir.Invalid):
                self.runtime.look_outside()
            self.client.idle(unwritten=[Class.WEIGHTS])
            free = self.runtime.yield_(0).available
            answer = self.runtime.yield_(2 * free + MIB, wait=0)  # more than there is
            self.assertEqual((1, 8 * MIB, 0), (answer.clients, answer.suspended, answer.live))
            self.assertGreater(answer.lacks, 0)
            self.assertEqual(answer.given, answer.trimmed + answer.suspended + answer.called)
            self.assertEqual("", answer.why)
            self.assertEqual((ResidencyState.SUSPENDED, 1), (self.client.residency.state, self.runtime.outside.suspends))
            self.runtime.end_outside()
            self.client.busy()
            self.assertEqual(ResidencyState.RESIDENT, self.client.residency.state)
            self.assertEqual(b"abc", bytes(block.memory[:3]))
            self.runtime.yield_(2 * free + MIB, wait=0)  # it is not offered any more
            self.assertEqual(ResidencyState.RESIDENT, self.client.residency.state)
            self.runtime.end_outside()

    def test_a_device_is_watched_by_hand(self):
        self.runtime.watch_outside("1MiB", by_hand=True)
        seen = self.runtime.look_outside()
        self.assertEqual((True, MIB, 1), (seen.watched, seen.reserve, seen.looks))
        self.assertEqual(seen, self.runtime.outside)
        self.assertGreaterEqual(seen.total, seen.available)
        self.assertEqual(64 * MIB, seen.budget)
        self.runtime.end_outside()
        self.assertFalse(self.runtime.outside.watched)
        for wrong in ({"hold": -1}, {"wait": -1}):
            with self.assertRaises(weir.Invalid):
                self.runtime.yield_(MIB, **wrong)

    def test_one_that_has_no_room_to_come_changes_nothing(self):
        with self.runtime.client("other") as other, self.client.alloc(40 * MIB):
            self.client.suspend()
            with other.alloc(20 * MIB) as small, self.runtime.client("third") as third, third.alloc(30 * MIB):
                small.memory[:3] = b"xyz"
                with self.assertRaises(weir.OutOfMemory) as caught:
                    other.exchange(self.client)
                self.assertEqual("aside", caught.exception.refusal.client)
                self.assertEqual(ResidencyState.RESIDENT, other.residency.state)
                self.assertEqual(b"xyz", bytes(small.memory[:3]))

    def test_classes_that_stay_and_that_are_dropped(self):
        with self.client.alloc(4 * MIB, memory_class=Class.KV, tag="cache") as kept, \
             self.client.alloc(4 * MIB, memory_class=Class.SCRATCH) as dropped:
            kept.memory[:3] = dropped.memory[:3] = b"abc"
            receipt = self.client.suspend(stay=[Class.KV], drop=[Class.SCRATCH])
            self.assertEqual((4 * MIB, 0), (receipt.dropped, receipt.copied))
            self.assertIn((kept.pointer, Stay.CLASS, "cache"), [(each.pointer, each.why, each.tag) for each in receipt.stays])
            self.client.resume()
            self.assertEqual((b"abc", b"\0\0\0"), (bytes(kept.memory[:3]), bytes(dropped.memory[:3])))

    def test_nothing_is_prepared_where_copies_are_in_files(self):
        with self.client.alloc(4 * MIB):
            self.client.prepare(drop=[Class.SCRATCH], wait=True)
            told = self.client.preparation
            self.assertEqual((0, 0, weir.Status.OK, ""), (told.ready, told.coming, told.status, told.why))
            with self.client.suspended():
                pass
        with weir.Runtime("host", budget="1MiB", resource="budget(direct)", own=True) as other, other.client("other") as client:
            with self.assertRaises(weir.Unsupported):
                client.prepare()

    def test_a_folder_takes_the_contents_and_shows_no_file(self):
        with self.client.alloc(MIB), tempfile.TemporaryDirectory() as folder:
            with self.client.suspended(folder=folder, wait=60):
                self.assertEqual([], os.listdir(folder))
            self.client.forget_copies()
            with self.assertRaises(weir.SystemFailed):
                self.client.suspend(folder="/nonexistent")
            with self.assertRaises(ValueError):
                self.client.suspend(wait=-1)

    def test_what_is_away_cannot_be_touched(self):
        done = run_python("""
import weir
client = weir.Runtime("host", budget="64MiB", own=True).client("aside")
memory = client.alloc("8MiB").memory
print(memory[4096], flush=True)
client.suspend()
memory[4096]""")
        self.assertEqual((-signal.SIGSEGV, "0"), (done.returncode, done.stdout.strip().splitlines()[0]))


class Models(unittest.TestCase):
    def setUp(self):
        self.runtime = weir.Runtime("host", budget="1GiB", own=True)

    def tearDown(self):
        self.runtime.drain()
        self.runtime.close()

    def test_a_run_resumes_it(self):
        with weir.load(model_path("minilm.onnx"), runtime=self.runtime, threads=1) as model:
            wanted = bytes(model(IDS)["sentence_embedding"])
            before = time.monotonic()
            for _ in range(3):
                receipt = model.suspend()
                self.assertGreater(receipt.away, 64 * MIB)
                self.assertEqual((ResidencyState.SUSPENDED, receipt.away), (model.residency.state, model.residency.away))
                self.assertEqual(receipt.away, model.stats().away)
                self.assertEqual(wanted, bytes(model(IDS)["sentence_embedding"]))
            told = model.residency
            self.assertEqual((ResidencyState.RESIDENT, 3, 3, 3), (told.state, told.suspends, told.resumes, told.resumes_by_runs))
            self.assertEqual(receipt.away, told.returned)
            self.assertTrue(before <= told.suspended_at <= told.resumed_at <= time.monotonic())
            self.assertTrue(told.suspend_seconds > 0 and told.resume_seconds > 0)

    def test_a_run_is_answered_from_what_is_shown(self):
        with weir.load(model_path("minilm.onnx"), runtime=self.runtime, threads=1) as model:
            wanted = bytes(model(IDS)["sentence_embedding"])
            for number in range(3):
                receipt = model.suspend(show=True, step="8MiB")
                self.assertGreater(receipt.shown, 64 * MIB)
                self.assertEqual((receipt.shown, False), (model.residency.shown, model.residency.coming))
                if number:
                    model.resume(behind=True)
                with model.infer(IDS):  # nothing comes while outputs are held
                    if not number:
                        told = model.residency
                        self.assertTrue(told.coming and told.shown > 64 * MIB)
                        with self.assertRaises(weir.Busy):
                            model.resume()
                self.assertEqual(wanted, bytes(model(IDS)["sentence_embedding"]))
                model.resume()
                told = model.residency
                self.assertEqual((ResidencyState.RESIDENT, 0, 0, False, weir.Status.OK),
                                 (told.state, told.away, told.shown, told.coming, told.stopped))
                self.assertEqual(wanted, bytes(model(IDS)["sentence_embedding"]))

    def test_runs_are_refused_until_it_is_resumed(self):
        with weir.load(model_path("tiny-llm"), runtime=self.runtime, threads=1) as model:
            wanted = model("a dam", tokens=4, temperature=0)["text"]
            with model.suspended(refuse_runs=True):
                with self.assertRaises(weir.Busy):
                    model("a dam", tokens=4)
            self.assertEqual(wanted, model("a dam", tokens=4, temperature=0)["text"])
            model.suspend()
            model.resume()
            self.assertEqual((2, 0), (model.residency.resumes, model.residency.resumes_by_runs))

    def test_two_change_places(self):
        with weir.load(model_path("minilm.onnx"), runtime=self.runtime, threads=1) as one, \
             weir.load(model_path("tiny-llm"), runtime=self.runtime, threads=1) as two:
            wanted, text = bytes(one(IDS)["sentence_embedding"]), two("a dam", tokens=4, temperature=0)["text"]
            with self.assertRaises(weir.Busy):
                one.exchange(two)  # which is here
            with self.assertRaises(weir.Invalid):
                one.exchange(one)
            two.suspend()
            for leaves, comes in ((one, two), (two, one), (one, two)):
                receipt = leaves.exchange(comes)
                self.assertEqual((ResidencyState.SUSPENDED, receipt.away), (leaves.residency.state, leaves.residency.away))
                self.assertEqual(ResidencyState.RESIDENT, comes.residency.state)
                self.assertGreater(comes.residency.returned, 0)
            self.assertEqual(text, two("a dam", tokens=4, temperature=0)["text"])
            self.assertEqual(wanted, bytes(one(IDS)["sentence_embedding"]))
            self.assertEqual((2, 1), (one.residency.resumes, one.residency.resumes_by_runs))

    def test_outputs_that_are_not_closed_are_in_the_way(self):
        with weir.load(model_path("minilm.onnx"), runtime=self.runtime, threads=1) as model:
            with model.infer(IDS):
                for options in ({}, {"at_once": True}, {"wait": 0.001}):
                    with self.assertRaises(weir.Busy):
                        model.suspend(**options)
            model.suspend(verify=True)  # and it is unloaded so


class Torch(unittest.TestCase):
    def run_lines(self, lines):
        paths = [str(HERE), str(HERE / "fake")]
        done = run_python(f"import sys\nsys.path[:0] = {paths!r}\n" + textwrap.dedent(lines))
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_clients_of_a_pool_and_of_all(self):
        self.run_lines("""
            from driver import *
            import torch, weir.torch
            begin()
            runtime = Runtime("cuda:0", budget="64MiB", own=True)
            client, other = runtime.client("torch"), runtime.client("other")
            block = client.alloc("8MiB")
            try:
                weir.torch.suspend()
            except weir.Invalid as error:
                assert "weir.torch.use()" in str(error)
            for clients in ((client,), ()):
                left = weir.torch.suspend(*clients)
                assert list(left) == [0] and left[0].away == 8 * MIB == client.stats().away, left
                assert torch.cuda.waited.pop() == 0 and not torch.cuda.waited
                other.alloc("56MiB").close()
                weir.torch.resume(*clients)
                assert client.stats().live == 8 * MIB and client.stats().away == 0
                weir.torch._used = weir.torch.Used(weir.torch.Clients("torch", [client]))
            weir.torch.suspend(client)
            try:
                weir.torch.suspend()
                assert False
            except weir.Busy:
                pass
            weir.torch.resume()
            block.close()
        """)

    def test_streams_that_are_named_are_waited_for_alone(self):
        self.run_lines("""
            import threading, types
            from driver import *
            import torch, weir.torch
            begin()
            runtime = Runtime("cuda:0", budget="64MiB", own=True)
            client = runtime.client("torch")
            block = client.alloc("8MiB")

            def stream(native, device=0):
                return types.SimpleNamespace(cuda_stream=native, device=types.SimpleNamespace(index=device))

            mine, others = make_stream(), make_stream()
            with Work(others):  # which the suspends below would wait for until it ends
                for streams in ([stream(mine)], [stream(0)], [stream(2)], [], iter([stream(mine), stream(others, device=1)])):
                    assert weir.torch.suspend(client, streams=streams)[0].away == 8 * MIB
                    weir.torch.resume(client)
            assert not torch.cuda.waited
            for native in (mine, 0, 2):
                work, ended = Work(native or 1), []
                timer = threading.Timer(0.2, lambda: (ended.append(native), work.__exit__()))
                timer.start()
                weir.torch.suspend(client, streams=[stream(native)])
                assert ended == [native], (native, ended)
                timer.join()
                weir.torch.resume(client)
            begin_capture(mine)
            try:
                weir.torch.suspend(client, streams=[stream(mine)])
                assert False
            except weir.StreamMisuse:
                pass
            end_capture(mine)
            assert client.stats().away == 0
            weir.torch.suspend(client, streams=[stream(mine)])
            weir.torch.resume(client)
            destroy_stream(mine)
            block.close()
        """)


if __name__ == "__main__":
    unittest.main()
