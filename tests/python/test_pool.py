"""Pools of models and predictions from Python, over the engines of the store. Skipped where they are not; failing then under
WEIR_REQUIRE_ENGINES=1."""

import threading
import unittest

from common import MIB, model_path

import weir

IDS = {"input_ids": [[101, 7592, 102]], "attention_mask": [[1, 1, 1]], "token_type_ids": [[0, 0, 0]]}


class Pools(unittest.TestCase):
    def setUp(self):
        self.path = model_path("minilm.onnx")
        self.runtime = weir.Runtime("host", budget="512MiB", own=True)
        self.events, self.told = [], threading.Condition()
        self.pool = weir.Pool([self.runtime], event=self.note, longest_wait=60)

    def tearDown(self):
        self.pool.close()
        self.runtime.drain()
        self.assertEqual((0, ()), (self.runtime.stats().live, self.runtime.stats().clients))
        self.runtime.close()

    def note(self, event):
        with self.told:
            self.events.append(event)
            self.told.notify_all()

    def is_told(self, kind):
        """Waits for that event: a thread of the pool's may tell it when the call that it is of has returned."""
        with self.told:
            return self.told.wait_for(lambda: kind in self.kinds(), 60)

    def kinds(self):
        return [event.kind for event in self.events if event.kind != "decided"]

    def test_a_model_is_loaded_when_it_is_asked_for(self):
        self.pool.add(self.path, "bert", settings={"threads": 1}, slots=2)
        model = self.pool.models()[0]
        self.assertEqual(("bert", "unloaded", 0), (model.name, model.state, model.taken))
        self.assertGreater(model.predicted_peak, 10 * MIB)
        with self.pool.acquire("bert", size="4MiB") as lease:
            self.assertEqual(4 * MIB, self.pool.models()[0].promised)
            out = lease(IDS)["sentence_embedding"]
            self.assertEqual((1, 384), tuple(out.shape))
            self.assertEqual("onnx", lease.info().engine)
            with self.assertRaises(weir.Busy):
                lease.suspend()
            with self.assertRaises(weir.Busy):
                self.pool.close()
        again = self.pool("bert", IDS)["sentence_embedding"]
        self.assertEqual(bytes(memoryview(out)), bytes(memoryview(again)))
        model, usage = self.pool.models()[0], self.pool.usage()
        self.assertEqual((1, "loaded", 0), (model.loads, model.state, model.running))
        self.assertEqual(("host", model.taken), (usage[0].device, usage[0].taken))
        self.assertLessEqual(usage[0].taken, usage[0].ceiling)
        receipt = self.pool.unload("bert")
        self.assertTrue(receipt.complete)
        self.assertGreater(receipt.before[weir.Class.WEIGHTS], 0)
        for kind in ("loading", "promised", "loaded", "unloaded"):
            self.assertTrue(self.is_told(kind), self.kinds())
        self.assertTrue(self.events[0].line.startswith("begin "))

    def test_refusals_are_errors(self):
        self.pool.add(self.path, "bert")
        with self.assertRaises(weir.OutOfMemory) as caught:
            self.pool.acquire("bert", size="4GiB")
        self.assertIn("can never have its request", str(caught.exception))
        with self.assertRaises(weir.NotFound):
            self.pool.acquire("none")
        with self.assertRaises(weir.Busy):
            self.pool.acquire("bert", wait=0)
        with self.assertRaises(weir.Conflict):
            self.pool.add(self.path, "bert")
        with self.assertRaises(weir.Invalid):
            self.pool.add(self.path, "other", gives_up=["all"])
        with self.assertRaises(weir.Invalid):
            self.pool.add(self.path, "other", gives_up=["wait", "evict"])
        with self.assertRaises(weir.Invalid):
            self.pool.add(self.path, "other", variants=[weir.Variant({"threads": 1})], gives_up=["evict"])
        self.assertFalse(self.pool.cancel(7))
        self.pool.load("bert")
        self.pool.remove("bert", 60)

    def test_a_wait_is_cancelled(self):
        self.pool.add(self.path, "bert", slots=1, load_now=True)
        caught = []

        def ask():
            try:
                self.pool.acquire("bert", request=7).close()
            except weir.Error as error:
                caught.append(error)
        with self.pool.acquire("bert"):
            thread = threading.Thread(target=ask)
            thread.start()
            while not self.pool.cancel(7):
                pass
            thread.join()
        self.assertIsInstance(caught[0], weir.Cancelled)

    def test_a_pool_that_is_closed(self):
        with weir.Pool([self.runtime]) as pool:
            pool.add(self.path)
            self.assertEqual("minilm.onnx", pool.models()[0].name)
        with self.assertRaises(weir.Closed):
            pool.models()


class Predictions(unittest.TestCase):
    def test_what_it_will_take(self):
        path = model_path("minilm.onnx")
        told = weir.predict(path, quick=True, cold=True, threads=1)
        self.assertEqual(("onnx", "cpu", "host"), (told.engine, told.provider, told.device))
        self.assertEqual(told.peak, sum(told.peak_by_class.values()))
        self.assertGreaterEqual(told.peak, told.least)
        self.assertGreater(told.resident_by_class[weir.Class.WEIGHTS], 10 * MIB)
        self.assertTrue(weir.predict_fit(path, "4GiB").fits)
        self.assertFalse(weir.predict_fit(path, MIB).fits)
        with self.assertRaises(weir.NotFound):
            weir.predict("/nonexistent/model.onnx")


if __name__ == "__main__":
    unittest.main()
