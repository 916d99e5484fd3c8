"""Interrupts that come while libweir makes or ends something. Python raises them when the call has returned, in place of its answer:
what was made is ended again, and what was ended is not ended twice."""

import contextlib
import os
import signal
import tempfile
import threading
import unittest
import warnings
from unittest import mock

from common import model_path

import weir
from weir import _handle, model as models, outputs as outs, pool as pools, runtime as runtimes, trace as traces
from weir._c.library import lib

IDS = {"input_ids": [[101, 7592, 102]], "attention_mask": [[1, 1, 1]], "token_type_ids": [[0, 0, 0]]}


def after(name):
    """A function of libweir's is called, and an interrupt raised in place of its answer."""
    function = getattr(lib, name)

    def interrupted(*arguments):
        function(*arguments)
        raise KeyboardInterrupt
    return mock.patch.object(lib, name, interrupted)


def ended():
    """The same where something is given back: its answer is known by then."""
    patches = contextlib.ExitStack()

    def interrupted(told, function, *arguments):
        _handle.once(told, function, *arguments)
        raise KeyboardInterrupt
    for module in (runtimes, models, outs, pools, traces):
        patches.enter_context(mock.patch.object(module, "once", interrupted))
    return patches


class Bed(unittest.TestCase):
    def setUp(self):
        self.runtime = weir.Runtime("host", budget="512MiB", own=True)
        self.addCleanup(self.closed)

    def closed(self):
        self.runtime.drain()
        self.assertEqual((0, ()), (self.runtime.stats().live, self.runtime.stats().clients))
        self.runtime.close()

    def interrupted(self, patch, call):
        """Whatever the interrupt's traceback keeps is still there when this returns."""
        with patch, self.assertRaises(KeyboardInterrupt) as caught:
            call()
        return caught.exception


class Core(Bed):
    def test_what_was_made_is_ended(self):
        kept = [self.interrupted(after("weir_client_create"), lambda: self.runtime.client("a"))]
        self.assertEqual((), self.runtime.stats().clients)
        with self.runtime.client("a") as client:
            kept.append(self.interrupted(after("weir_alloc_with"), lambda: client.alloc(4096)))
            self.assertEqual((0, 1), (client.stats().live, self.runtime.stats().allocations))
        with tempfile.TemporaryDirectory() as folder:
            for file in (None, os.path.join(folder, "trace")):
                kept.append(self.interrupted(after("weir_trace_create"), lambda file=file: self.runtime.trace(file)))
                self.runtime.trace(file).close()  # Busy while there is another
        kept.append(self.interrupted(after("weir_runtime_create"), lambda: weir.Runtime("host", budget="64MiB", own=True)))

    def test_what_was_ended_is_not_ended_again(self):
        client = self.runtime.client("a")
        for handle in (client.alloc(64), self.runtime.trace(), client, weir.Runtime("host", budget="64MiB", own=True)):
            self.interrupted(ended(), handle.close)
            self.assertTrue(handle.closed)
            handle.close()

    def test_what_was_not_ended_can_be(self):
        client = self.runtime.client("a")
        block = client.alloc(64)
        with mock.patch.object(lib, "weir_free_block", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            block.close()
        self.interrupted(ended(), client.close)  # Busy by then
        self.assertEqual((False, False), (block.closed, client.closed))
        block.close()
        client.close()


class Models(Bed):
    def setUp(self):
        super().setUp()
        self.path = model_path("minilm.onnx")

    def test_a_model(self):
        kept = self.interrupted(after("weir_model_create"), lambda: weir.load(self.path, runtime=self.runtime))
        self.assertEqual((), self.runtime.stats().clients)
        model = weir.load(self.path, runtime=self.runtime)
        self.interrupted(ended(), model.close)
        self.assertTrue(model.closed)
        model.close()
        del kept

    def test_the_outputs_of_a_run(self):
        with weir.load(self.path, runtime=self.runtime) as model:  # it is Busy while outputs are out
            kept = self.interrupted(after("weir_model_infer"), lambda: model(IDS))
            outputs = model.infer(IDS)
            self.interrupted(ended(), outputs.close)
            outputs.close()
        del kept

    def test_a_signal_while_a_model_runs(self):
        entered, infer = threading.Event(), lib.weir_model_infer

        def raises(*arguments):
            entered.set()
            return infer(*arguments)

        def send():
            entered.wait()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        thread = threading.Thread(target=send)
        thread.start()
        with self.assertRaises(KeyboardInterrupt), weir.load(self.path, runtime=self.runtime) as model:
            with mock.patch.object(lib, "weir_model_infer", raises):
                while True:
                    model(IDS)
        thread.join()
        self.assertTrue(model.closed)

    def test_a_pool_and_its_leases(self):
        kept = self.interrupted(after("weir_pool_create"), lambda: weir.Pool([self.runtime]))
        pool = weir.Pool([self.runtime])
        pool.add(self.path, "bert")
        leased = self.interrupted(after("weir_pool_acquire"), lambda: pool.acquire("bert"))
        lease = pool.acquire("bert")
        self.interrupted(ended(), lease.close)
        self.assertTrue(lease.closed)
        lease.close()
        self.interrupted(ended(), pool.close)
        self.assertTrue(pool.closed)
        del kept, leased


if __name__ == "__main__":
    warnings.simplefilter("error", ResourceWarning)
    unittest.main()
