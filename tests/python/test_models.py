"""Models of the store: whole runs, pieces, closing early, refusals. Skipped where they are not; failing then under
WEIR_REQUIRE_ENGINES=1."""

import array
import asyncio
import contextlib
import gc
import signal
import tempfile
import threading
import time
import unittest
from unittest import mock

from common import MIB, dropped, missing, model_path, run_python

import weir
from weir.stream import Run
from weir.tensors import numpy

LONG = {"tokens": 200, "ignore_eos": True}


def held(released):
    """Runs hold their third piece back until `released` of them; so a run that is ended by then has made three at most."""
    take, made = Run.take, []

    def wait(run, data, token, number):
        made.append(number)
        for _ in range(20000 if number == 2 else 0):
            if released(run):
                break
            time.sleep(0.001)
        return take(run, data, token, number)
    return mock.patch.object(Run, "take", wait), made


class Loading(unittest.TestCase):
    def test_a_file_that_is_not_there_or_is_no_model(self):
        with self.assertRaises(weir.NotFound) as caught:
            weir.load("/nonexistent/model.onnx")
        self.assertIn("/nonexistent/model.onnx", str(caught.exception))
        with self.assertRaises(weir.Error):
            weir.load(__file__)

    def test_bare_names_are_the_stores(self):
        """As the command has them, in every function that takes the path of a model."""
        path = model_path("minilm.onnx")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder) if hasattr(contextlib, "chdir") else contextlib.nullcontext():
            with weir.load("minilm.onnx") as model:
                self.assertEqual("minilm.onnx", model.stats().name)
            self.assertEqual(weir.predict(path, quick=True).peak, weir.predict("minilm.onnx", quick=True).peak)
            self.assertTrue(weir.check("minilm.onnx").good)
            self.assertEqual("onnx", weir.explain("minilm.onnx", device="cpu").chosen.engine)
            with weir.Pool() as pool:
                pool.add("minilm.onnx")
                self.assertEqual("minilm.onnx", pool.models()[0].name)
            with self.assertRaisesRegex(weir.NotFound, "none.onnx is not there"):
                weir.load("none.onnx")
            with self.assertRaises(weir.NotFound):
                weir.load("./minilm.onnx")

    def test_a_setting_of_no_known_kind_is_a_type_error(self):
        with self.assertRaises(TypeError):
            weir.load("/nonexistent/model.onnx", threads=object())


class Minilm(unittest.TestCase):
    IDS = {"input_ids": [101, 7592, 102], "attention_mask": [1, 1, 1], "token_type_ids": [0, 0, 0]}

    def setUp(self):
        self.path = model_path("minilm.onnx")
        self.runtime = weir.Runtime("host", budget="1GiB", own=True)

    def tearDown(self):
        self.runtime.drain()
        self.assertEqual((0, ()), (self.runtime.stats().live, self.runtime.stats().clients))
        self.runtime.close()

    def load(self, **more):
        return weir.load(self.path, runtime=self.runtime, **more)

    @staticmethod
    def buffers():
        return {name: memoryview(array.array("q", ids)).cast("B").cast("q", (1, 3)) for name, ids in Minilm.IDS.items()}

    def test_info_names_its_ports(self):
        with self.load(client="bert", optimization="basic") as model:
            info = model.info()
            self.assertEqual(("onnx", "cpu", False), (info.engine, info.provider, info.generates))
            self.assertEqual(set(self.IDS), {port.name for port in info.inputs})
            self.assertEqual((weir.Type.I64, (-1, -1)), (info.inputs[0].type, info.inputs[0].shape))
            self.assertEqual("bert", model.stats().name)

    def test_without_numpy_tensors_are_memoryviews(self):
        with self.load() as model, mock.patch.dict("sys.modules", {"numpy": None}):
            before = model.stats().live
            out = model(self.buffers())["sentence_embedding"]
            self.assertIsInstance(out, memoryview)
            self.assertEqual(("f", (1, 384)), (out.format, out.shape))
            self.assertAlmostEqual(1.0, sum(x * x for x in out.tolist()[0]), places=4)
            self.assertEqual(before, model.stats().live)
            with self.assertRaisesRegex(TypeError, "NumPy"):
                model({name: [ids] for name, ids in self.IDS.items()})

    def test_with_numpy_they_are_arrays_and_lists_are_taken(self):
        np = numpy() or missing("numpy")
        with self.load() as model:
            whole = model(self.buffers())
            of_lists = model({name: [ids] for name, ids in self.IDS.items()})
            wide = {name: np.array([ids, ids], dtype=np.int64)[:, ::-1][:, ::-1] for name, ids in self.IDS.items()}
            of_views = model({name: np.asfortranarray(each) for name, each in wide.items()})
            self.assertEqual(((1, 3, 384), np.float32), (whole["last_hidden_state"].shape, whole["last_hidden_state"].dtype))
            for name in whole:
                self.assertTrue(np.array_equal(whole[name], of_lists[name]))
                self.assertTrue(np.allclose(whole[name][0], of_views[name][1], atol=1e-5))
            whole["sentence_embedding"][:] = 0  # a copy: the caller's
            self.assertEqual(3, model.metrics().runs)

    def test_wrong_inputs_are_named(self):
        with self.load() as model:
            inputs = self.buffers()
            del inputs["attention_mask"]
            with self.assertRaisesRegex(weir.Invalid, "attention_mask"):
                model(inputs)
            with self.assertRaisesRegex(TypeError, "input_ids"):
                model({**self.buffers(), "input_ids": object()})
            with self.assertRaises(weir.Error):
                model({**self.buffers(), "input_ids": array.array("f", [1.0])})

    def test_a_maximum_refuses_the_load_with_numbers(self):
        with self.assertRaises(weir.OutOfMemory) as caught:
            self.load(client="tight", maximum=8 * MIB)
        self.assertIn("tight", str(caught.exception))
        self.assertEqual(("tight", 8 * MIB), (caught.exception.refusal.client, caught.exception.refusal.limit))

    def test_a_dropped_model_is_reported_and_unloaded(self):
        told = dropped(self.load)
        self.assertEqual([f"the model {self.path} was never closed"], told)
        self.assertEqual(0, self.runtime.stats().live)

    def test_threads_share_a_model(self):
        with self.load() as model:
            answers, inputs = [], self.buffers()
            threads = [threading.Thread(target=lambda: answers.append(bytes(memoryview(model(inputs)["sentence_embedding"]).cast("B"))))
                       for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((4, 1), (len(answers), len(set(answers))))


class Language(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.path = model_path("tiny-llm")
        cls.runtime = weir.Runtime("host", budget="256MiB", own=True)
        cls.model = weir.load(cls.path, runtime=cls.runtime)
        cls.idle = cls.model.stats().live

    @classmethod
    def tearDownClass(cls):
        cls.model.close()
        cls.runtime.drain()
        assert cls.runtime.stats().live == 0, cls.runtime.stats()
        cls.runtime.close()

    def tearDown(self):
        self.assertEqual(self.idle, self.model.stats().live)

    def test_a_text_is_answered_whole(self):
        out = self.model("Once upon a time", tokens=8)
        self.assertEqual((8, "length"), (len(out["tokens"]), out["finish_reason"]))
        self.assertEqual(out["text"], self.model({"text": b"Once upon a time"}, tokens=8)["text"])

    def test_an_interrupt_cancels_the_run_and_waits_for_its_end(self):
        entered, cancelled, ended = threading.Event(), threading.Event(), []
        cancel = weir.model.lib.weir_model_cancel

        def infer(*_):
            entered.set()
            cancelled.wait()
            ended.append(threading.current_thread())
            return weir.Status.CANCELLED

        def note(*arguments):
            cancelled.set()
            return cancel(*arguments)

        def interrupt():
            entered.wait()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        thread.start()
        with mock.patch.object(weir.model.lib, "weir_model_infer", infer), mock.patch.object(weir.model.lib, "weir_model_cancel", note):
            with self.assertRaises(KeyboardInterrupt):
                self.model("Once upon a time", tokens=8)
        thread.join()
        self.assertEqual([False], [each.is_alive() for each in ended])
        self.assertEqual(8, len(self.model("Once upon a time", tokens=8)["tokens"]))

    def test_an_interrupt_while_the_run_begins_cancels_it_too(self):
        runs, start = [], weir.stream.Run.start

        def interrupted(run, work):
            runs.append(run)
            start(run, work)
            raise KeyboardInterrupt
        with mock.patch.object(weir.stream.Run, "start", interrupted), self.assertRaises(KeyboardInterrupt):
            self.model("Once upon a time", **LONG)
        self.assertEqual([False], [run._thread.is_alive() for run in runs])

    def test_the_pieces_are_the_text(self):
        whole = self.model("Once upon a time", tokens=8)
        with self.model.stream("Once upon a time", tokens=8) as stream:
            self.assertEqual({}, stream.outputs)
            pieces = list(stream)
        self.assertEqual(whole["text"], "".join(pieces))
        self.assertEqual(list(range(8)), [piece.number for piece in pieces])
        self.assertEqual(list(whole["tokens"]), [piece.token for piece in pieces])
        self.assertEqual(whole["text"], stream.outputs["text"])
        self.assertEqual([], list(stream))

    def test_closing_early_ends_the_run_and_leaves_nothing(self):
        for how in ("close", "with", "drop"):
            patch, made = held(lambda run: run._stopped)
            with patch:
                stream = self.model.stream("Once upon a time", **LONG)
                run = stream._run
                self.assertEqual(0, next(stream).number)
                if how == "close":
                    stream.close()
                    stream.close()
                elif how == "with":
                    with stream:
                        pass
                else:
                    del stream
                    gc.collect()
                    run._thread.join(60)
            self.assertFalse(run._thread.is_alive(), how)
            self.assertLessEqual(len(made), 3, how)
            self.assertEqual((self.idle, set()), (self.model.stats().live, self.model._runs), how)

    def test_closing_ends_a_run_that_its_engine_cannot_cancel(self):
        patch, made = held(lambda run: run._stopped)
        with patch, mock.patch.object(self.model, "_cancel", side_effect=weir.Unsupported("no cancel")):
            stream = self.model.stream("Once upon a time", **LONG)
            next(stream)
            stream.close()
        self.assertLessEqual(len(made), 3)
        self.assertEqual(set(), self.model._runs)

    def test_a_wrong_setting_is_raised_by_the_iterator(self):
        stream = self.model.stream("Hello", nonsense=1)
        with self.assertRaisesRegex(weir.Invalid, "nonsense"):
            next(stream)
        self.assertEqual([], list(stream))

    def test_a_failure_nobody_has_read_is_raised_by_close(self):
        stream = self.model.stream("Hello", nonsense=1)
        stream._run._thread.join()  # a run that is stopped before it begins has no failure
        with self.assertRaisesRegex(weir.Invalid, "nonsense"):
            stream.close()

    def test_a_client_that_was_opened_before(self):
        with weir.Client(self.runtime, "early", guarantee="1MiB") as client:
            with self.assertRaisesRegex(ValueError, "has its limits"):
                weir.load(self.path, client=client, maximum="1GiB")
            with weir.load(self.path, client=client) as model:
                self.assertIn("text", model("Hello", tokens=1))
                self.assertEqual("early", model.stats().name)
                self.assertGreater(client.stats().live, 0)
                with self.assertRaises(weir.Busy):
                    client.close()
            self.assertEqual(0, client.stats().live)

    def test_closing_the_model_ends_its_streams(self):
        patch, made = held(lambda run: run._stopped)
        model = weir.load(self.path, runtime=self.runtime, client="second")
        with patch:
            stream = model.stream("Once upon a time", **LONG)
            next(stream)
            model.close()
        self.assertLessEqual(len(made), 3)
        self.assertFalse(stream._run._thread.is_alive())
        with self.assertRaises(weir.Closed):
            model("Hello")

    def test_a_cancel_of_all_is_raised_by_the_iterator(self):
        done = threading.Event()
        patch, made = held(lambda run: done.is_set())
        with patch:
            stream = self.model.stream("Once upon a time", **LONG)
            next(stream)
            self.assertTrue(self.model.cancel())
            done.set()
            with self.assertRaises(weir.Cancelled):
                list(stream)
        self.assertLessEqual(len(made), 3)
        self.assertFalse(self.model.cancel())

    def test_the_loop_goes_on_while_pieces_come(self):
        turned, waited = threading.Event(), []

        async def turn():
            turned.set()

        async def read():
            async with self.model.astream("Once upon a time", tokens=8) as stream:
                pieces = [await stream.__anext__()]
                other = asyncio.create_task(turn())  # runs while the third piece, which waits for it, is waited for
                pieces += [piece async for piece in stream]
                await other
            return pieces, stream.outputs["text"]
        with held(lambda run: turned.is_set() and not waited.append(run))[0]:
            pieces, text = asyncio.run(read())
        self.assertEqual(1, len(waited))
        self.assertEqual(text, "".join(pieces))
        self.assertEqual(list(range(8)), [piece.number for piece in pieces])
        self.assertEqual(text, asyncio.run(self.model.acall("Once upon a time", tokens=8))["text"])

    def test_leaving_an_async_loop_ends_the_run(self):
        async def leave(how):
            stream = self.model.astream("Once upon a time", **LONG)
            run = stream._run
            if how == "with":
                async with stream:
                    await stream.__anext__()
            elif how == "drop":
                async for _ in stream:
                    break
                del stream
                await asyncio.to_thread(run._thread.join, 60)
            else:
                async def all_of_it():
                    async with stream:
                        async for _ in stream:
                            started.set()
                started = asyncio.Event()
                task = asyncio.create_task(all_of_it())
                await started.wait()
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
            return run
        for how in ("with", "drop", "cancel"):
            patch, made = held(lambda run: run._stopped)
            with patch:
                run = asyncio.run(leave(how))
            self.assertFalse(run._thread.is_alive(), how)
            self.assertLessEqual(len(made), 3, how)
            self.assertEqual(set(), self.model._runs, how)

    def test_failures_are_raised_by_the_async_loop(self):
        async def fail():
            with self.assertRaisesRegex(weir.Invalid, "nonsense"):
                async for _ in self.model.astream("Hello", nonsense=1):
                    pass
            with self.assertRaisesRegex(weir.Invalid, "nonsense"):
                await self.model.acall("Hello", nonsense=1)
            with self.assertRaisesRegex(weir.Invalid, "nonsense"):
                await self.model.astream("Hello", nonsense=1).aclose()
        asyncio.run(fail())

    def test_a_program_that_ends_does_not_wait_for_the_whole_text(self):
        ended = run_python(f"""if True:
            import atexit, threading, time, weir
            from weir.stream import Run
            take, made = Run.take, []
            def wait(run, data, token, number):
                made.append(number)
                while number == 2 and threading.main_thread().is_alive():
                    time.sleep(0.001)
                return take(run, data, token, number)
            Run.take = wait
            atexit.register(lambda: print(len(made) <= 3))
            stream = weir.load({str(self.path)!r}).stream("Once", tokens=200, ignore_eos=True)
            next(stream)""")
        self.assertEqual((0, "True\n"), (ended.returncode, ended.stdout))

    def test_a_model_that_does_not_generate_has_no_stream(self):
        with weir.load(model_path("minilm.onnx"), runtime=self.runtime) as model:
            with self.assertRaises(weir.Unsupported):
                next(model.stream(Minilm.buffers()))


if __name__ == "__main__":
    unittest.main()
