"""Prepared calls of a model of the store. Skipped where that is not; failing then under WEIR_REQUIRE_ENGINES=1."""

import threading
import unittest
from unittest import mock

from common import dropped, model_path

import weir
from weir.tensors import numpy

IDS = {"input_ids": [[101, 7592, 102]], "attention_mask": [[1, 1, 1]], "token_type_ids": [[0, 0, 0]]}


class Minilm(unittest.TestCase):
    def setUp(self):
        if numpy() is None:
            self.skipTest("without NumPy")
        self.runtime = weir.Runtime("host", budget="1GiB", own=True)
        self.model = weir.load(model_path("minilm.onnx"), runtime=self.runtime)

    def tearDown(self):
        self.model.close()
        self.runtime.drain()
        self.assertEqual((0, ()), (self.runtime.stats().live, self.runtime.stats().clients))
        self.runtime.close()

    def equal(self, one, other):
        self.assertEqual(list(one), list(other))
        for name, value in one.items():
            numpy().testing.assert_array_equal(value, other[name])

    def test_it_answers_what_a_call_of_the_model_does(self):
        """Also when its inputs are written anew; all lies where it lay."""
        with self.model.prepare(IDS) as call:
            first = call()
            self.equal(self.model(IDS), first)
            kept = {name: value.copy() for name, value in first.items()}
            call.inputs["input_ids"][:] = [[101, 2088, 102]]
            again = call()
            self.assertIs(first, again)
            self.equal(self.model({**IDS, "input_ids": [[101, 2088, 102]]}), again)
            self.assertFalse((kept["sentence_embedding"] == again["sentence_embedding"]).all())
            call.inputs["input_ids"][:] = IDS["input_ids"]
            self.equal(kept, call())

    def test_the_engine_has_its_memory_back(self):
        live = None
        with self.model.prepare(IDS) as call:
            for _ in range(4):
                call()
                live = live or self.model.stats().live
                self.assertEqual(live, self.model.stats().live)
            with self.model.suspended():
                pass
            call()

    def test_arrays_stay_good_when_all_is_closed(self):
        call = self.model.prepare(IDS)
        found, expected = call(), self.model(IDS)
        inputs = call.inputs["input_ids"]
        call.close()
        call.close()
        with self.assertRaises(weir.Closed):
            call()
        self.model.close()
        self.equal(expected, found)
        self.assertEqual(IDS["input_ids"], inputs.tolist())

    def test_closing_the_model_closes_its_calls(self):
        calls = [self.model.prepare(IDS) for _ in range(3)]
        self.model.close()
        self.assertTrue(all(call.closed for call in calls))

    def test_one_that_is_dropped_is_reported_and_gone(self):
        self.assertEqual([f"the call of {self.model._label} was never closed"], dropped(lambda: self.model.prepare(IDS)))
        self.model.close()

    def test_a_failure_leaves_the_outputs(self):
        with self.model.prepare(IDS) as call:
            found = call()
            kept = {name: value.copy() for name, value in found.items()}
            call.inputs["input_ids"][:] = 10**9  # no word of its vocabulary
            with self.assertRaises(weir.Invalid):
                call()
            self.equal(kept, found)
            call.inputs["input_ids"][:] = IDS["input_ids"]
            self.assertIs(found, call())
            self.equal(kept, found)

    def test_what_is_wrong_is_told_by_the_first_run(self):
        with self.model.prepare({**IDS, "none": numpy().zeros(1)}) as call, self.assertRaisesRegex(weir.Invalid, "none"):
            call()
        with self.assertRaises(TypeError):
            self.model.prepare({**IDS, "input_ids": object()})

    def test_outputs_are_looked_at_once(self):
        """A run costs one call of libweir's, whatever there is of inputs and outputs."""
        with self.model.prepare(IDS) as call:
            call()
            with mock.patch.object(weir.call.Call, "_look", side_effect=AssertionError), \
                    mock.patch.object(weir.call, "array_of", side_effect=AssertionError):
                for _ in range(3):
                    call()

    def test_each_thread_has_its_own(self):
        expected, wrong = self.model(IDS), []

        def work():
            with self.model.prepare(IDS) as call:
                for _ in range(5):
                    if not all((value == expected[name]).all() for name, value in call().items()):
                        wrong.append(1)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual([], wrong)


class Language(unittest.TestCase):
    def test_a_model_that_generates_has_none(self):
        with weir.load(model_path("tiny-llm")) as model, self.assertRaises(weir.Unsupported):
            model.prepare({"text": "a"})


if __name__ == "__main__":
    unittest.main()
