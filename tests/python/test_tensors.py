"""Tensors without copies, on the host: blocks and outputs that other libraries take, and theirs as inputs."""

import array
import ctypes
import gc
import unittest
from unittest import mock

from common import SOURCE, dropped, missing, run_python
from dlpack_peer import Giver, Taker

import weir
from weir import tensors
from weir._c import dlpack
from weir.tensors import numpy

MLP = SOURCE / "tests/data/onnx/mlp.onnx"
np = numpy()


class Blocks(unittest.TestCase):
    def setUp(self):
        self.runtime = weir.Runtime("host", budget="64MiB", own=True)
        self.client = self.runtime.client("a")
        self.block = self.client.alloc(4096, zeroed=True)

    def tearDown(self):
        self.block.close()
        self.assertEqual(0, self.client.stats().live)
        self.client.close()
        self.runtime.close()
        self.assertEqual(({}, {}), (dlpack._lent, dlpack._untaken))

    def test_both_sides_see_what_is_written(self):
        for version, name in ((None, b"dltensor"), ((0, 8), b"dltensor"), ((1, 0), b"dltensor_versioned"), ((2, 3), b"dltensor_versioned")):
            taker = Taker(self.block.__dlpack__(max_version=version))
            self.assertEqual((name, self.block.pointer, [4096], [1]), (taker.name, taker.tensor.data, taker.shape, taker.strides))
            there = (ctypes.c_ubyte * 4096).from_address(taker.tensor.data)
            there[7] = 5
            self.assertEqual(5, self.block.memory[7])
            self.block.memory[8] = 6
            self.assertEqual(6, there[8])
            taker.give_back()

    def test_a_taker_keeps_the_block_until_it_gives_it_back(self):
        takers = [Taker(self.block.__dlpack__(max_version=(1, 1))) for _ in range(2)]
        for taker in takers:
            with self.assertRaisesRegex(BufferError, "alive"):
                self.block.close()
            self.assertFalse(self.block.closed)
            taker.give_back()
        self.block.close()
        with self.assertRaises(weir.Closed):
            self.block.__dlpack__()

    def test_a_capsule_that_nobody_takes_keeps_nothing(self):
        capsule = self.block.__dlpack__()
        with self.assertRaises(BufferError):
            self.block.close()
        del capsule
        self.block.close()

    def test_a_dropped_block_lives_as_long_as_its_taker(self):
        takers = []

        def drop():
            block = self.client.alloc(512)
            takers.append(Taker(block.__dlpack__()))
        self.assertEqual([], dropped(drop))
        self.assertEqual(2, self.client.stats().blocks)
        told = dropped(takers.pop().give_back)
        self.assertEqual((["the block of 512 bytes of a was never closed"], 1), (told, self.client.stats().blocks))

    def test_the_collector_may_free_a_block_inside_of_a_call(self):
        block = self.client.alloc(512)
        with self.client._lock:  # as it would be held
            block.close()

    def test_types_and_shapes(self):
        for kind, code in dlpack.CODES.items():
            tensor = self.block.tensor(kind, (3, 0 if kind == weir.Type.I8 else 2), 64)
            taker = Taker(tensor.__dlpack__())
            self.assertEqual(((*code, 1), self.block.pointer + 64, tensor.shape),
                             ((taker.tensor.code, taker.tensor.bits, taker.tensor.lanes), taker.tensor.data, tuple(taker.shape)), kind)
            taker.give_back()
        self.assertEqual(set(weir.Type) - {weir.Type.NONE, weir.Type.TEXT}, set(dlpack.CODES))
        scalar = Taker(self.block.tensor(weir.Type.F64, ()).__dlpack__())
        self.assertEqual((0, []), (scalar.tensor.rank, scalar.shape))
        scalar.give_back()
        rest = self.block.tensor(weir.Type.F32, offset=32)
        self.assertEqual(((1016,), 4064), (rest.shape, rest.bytes))

    def test_a_tensor_that_does_not_fit_is_refused(self):
        for shape, offset in (((1025,), 0), ((1024,), 4), ((1,), 2), ((1,), -4), ((-1,), 0)):
            with self.assertRaises(ValueError):
                self.block.tensor(weir.Type.F32, shape, offset)

    def test_a_copy_is_made_where_it_is_asked_for_and_else_never(self):
        self.block.memory[0] = 9
        taker = Taker(self.block.__dlpack__(max_version=(1, 0), copy=True))
        self.assertEqual((dlpack.COPIED, 9), (taker.managed.flags, ctypes.c_ubyte.from_address(taker.tensor.data).value))
        self.assertNotEqual(self.block.pointer, taker.tensor.data)
        self.block.close()  # the copy is no part of it
        taker.give_back()
        other = self.client.alloc(16)
        for wrong in ({"dl_device": (2, 0)}, {"dl_device": (2, 0), "copy": False}):
            with self.assertRaises(BufferError):
                other.__dlpack__(**wrong)
        for fine in ({"dl_device": (1, 0)}, {"dl_device": (1, 0), "copy": False}, {"copy": False, "stream": None}):
            taker = Taker(other.__dlpack__(**fine))
            self.assertEqual(other.pointer, taker.tensor.data)
            taker.give_back()
        with self.assertRaises(ValueError):
            other.__dlpack__(stream=1)
        with self.assertRaises(AttributeError):
            other.__cuda_array_interface__
        other.close()

    def test_a_taker_that_outlives_python_finds_no_deleter(self):
        ended = run_python("""if True:
            import atexit, ctypes, sys
            def late():
                print(ctypes.cast(managed.deleter or 0, ctypes.c_void_p).value)
            import weir
            sys.path.insert(0, TESTS)
            from dlpack_peer import Taker
            block = weir.Runtime("host").client("a").alloc(64)
            managed = Taker(block.__dlpack__()).managed
            atexit.unregister(late); weir._c.dlpack._forget(); late()""".replace("TESTS", repr(str(SOURCE / "tests/python"))))
        self.assertEqual((0, "None\n"), (ended.returncode, ended.stdout))

    @unittest.skipUnless(np, "without NumPy")
    def test_numpy_shares_the_memory(self):
        mine = np.from_dlpack(self.block.tensor(weir.Type.F32, (4, 256)))
        self.assertEqual((np.float32, (4, 256), True), (mine.dtype, mine.shape, mine.flags.writeable))
        mine[3, 255] = 1.0
        self.assertEqual(b"\0\0\x80\x3f", bytes(self.block.memory[-4:]))
        self.block.memory[:4] = b"\0\0\0\x40"
        self.assertEqual(2.0, mine[0, 0])
        part = mine[1:]
        del mine
        with self.assertRaises(BufferError):
            self.block.close()
        del part


class Inputs(unittest.TestCase):
    """What a model of two layers makes of rows of 16 float32."""

    @classmethod
    def setUpClass(cls):
        if "onnx" not in weir.engines():
            missing("the plug-in onnx")
        cls.runtime = weir.Runtime("host", budget="64MiB", own=True)
        try:
            cls.model = weir.load(MLP, runtime=cls.runtime)
        except (weir.NotFound, weir.Unsupported) as error:
            missing(error)
        cls.outputs = [port.name for port in cls.model.info().outputs]
        cls.output = cls.outputs[0]

    @classmethod
    def tearDownClass(cls):
        cls.model.close()
        cls.runtime.close()

    def run_counted(self, value):
        """(what comes out, how many inputs were copied)"""
        with mock.patch.object(tensors, "_copied", side_effect=tensors._copied) as copied:
            out = self.model({"x": value})[self.output]
        return memoryview(out).tobytes(), copied.call_count

    VALUES = [float(i % 7) for i in range(32)]

    def expected(self):
        out, copies = self.run_counted(memoryview(array.array("f", self.VALUES)).cast("B").cast("f", (2, 16)))
        self.assertEqual(0, copies)
        return out

    def test_a_str_that_is_no_text_is_named(self):
        with self.assertRaisesRegex(ValueError, "the input 'x' is a str that is no UTF-8 text"):
            self.model({"x": "a\ud800"})

    def test_a_tensor_is_read_where_it_lies_and_given_back_once(self):
        wanted = self.expected()
        for how in ({}, {"versioned": False}, {"strides": (16, 1)}):
            giver = Giver(self.VALUES, (2, 16), **how)
            self.assertEqual((wanted, 0), self.run_counted(giver), how)
            self.assertEqual((1, 1), (giver.deleted, len(giver.asked)))
        giver = Giver([9.0, 9.0, *self.VALUES], (2, 16), offset=8)
        self.assertEqual((wanted, 0), self.run_counted(giver))

    def test_what_is_not_contiguous_is_copied(self):
        by_columns = [self.VALUES[row * 16 + column] for column in range(16) for row in range(2)]
        giver = Giver(by_columns, (2, 16), strides=(1, 2))
        self.assertEqual((self.expected(), 1), self.run_counted(giver))
        self.assertEqual(1, giver.deleted)
        one = Giver(self.VALUES[:16], (1, 16), strides=(99, 1))  # the stride of one row means nothing
        self.assertEqual(0, self.run_counted(one)[1])

    def test_read_only_buffers_are_copied(self):
        data = array.array("f", self.VALUES).tobytes()
        self.assertEqual((self.expected(), 1), self.run_counted(memoryview(data).cast("f", (2, 16))))

    def test_what_cannot_be_taken_is_named_and_given_back(self):
        for how, kind, words in (({"major": 2}, TypeError, "DLPack 2.0"), ({"dtype": (5, 64, 1)}, TypeError, "type 5 with 64 bits"),
                                 ({"dtype": (2, 32, 4)}, TypeError, "4 lanes"), ({"device": (2, 0)}, weir.Invalid, "lies on cuda:0"),
                                 ({"device": (7, 0)}, weir.Invalid, "kind 7")):
            giver = Giver(self.VALUES, (2, 16), **how)
            with self.assertRaisesRegex(kind, f"the input 'x'.*{words}"):
                self.model({"x": giver})
            self.assertEqual(len(giver.asked), giver.deleted, how)
        giver = Giver(self.VALUES, (1,) * 17)
        with self.assertRaisesRegex(ValueError, "17 dimensions"):
            self.model({"x": giver})
        self.assertEqual(1, giver.deleted)
        good = Giver(self.VALUES, (2, 16))
        with self.assertRaises(TypeError):
            self.model({"x": good, "y": object()})
        self.assertEqual(1, good.deleted)

    def test_a_failed_run_gives_its_inputs_back(self):
        giver = Giver(self.VALUES, (4, 8))
        with self.assertRaisesRegex(weir.Invalid, "expected f32"):
            self.model({"x": giver})
        self.assertEqual(1, giver.deleted)

    @unittest.skipUnless(np, "without NumPy")
    def test_arrays_of_numpy_are_read_where_they_lie(self):
        mine = np.array(self.VALUES, dtype=np.float32).reshape(2, 16)
        wanted = self.expected()
        self.assertEqual((wanted, 0), self.run_counted(mine))
        self.assertEqual((wanted, 1), self.run_counted(np.asfortranarray(mine)))
        mine.flags.writeable = False
        self.assertEqual((wanted, 0), self.run_counted(mine))

    def test_a_block_is_an_input(self):
        with self.runtime.client("b") as client, client.alloc(128) as block:
            block.memory[:] = array.array("f", self.VALUES).tobytes()
            self.assertEqual((self.expected(), 0), self.run_counted(block.tensor(weir.Type.F32, (2, 16))))

    # ---- outputs

    def test_outputs_stay_where_they_are_until_they_are_closed(self):
        idle = self.model.stats().live
        with self.model.infer({"x": Giver(self.VALUES, (2, 16))}) as outputs:
            self.assertEqual((self.outputs, len(self.outputs)), (list(outputs), len(outputs)))
            tensor = outputs[self.output]
            self.assertEqual((weir.Type.F32, "host", (1, 0)), (tensor.type, tensor.device, tensor.__dlpack_device__()))
            self.assertEqual(self.expected(), memoryview(tensor.to_host()).tobytes())
            self.assertGreater(self.model.stats().live, idle)
            taker = Taker(tensor.__dlpack__())
            self.assertEqual(tensor.pointer, taker.tensor.data)
            with self.assertRaisesRegex(BufferError, "outputs of"):
                outputs.close()
            taker.give_back()
        self.assertEqual(idle, self.model.stats().live)
        with self.assertRaises(weir.Closed):
            tensor.pointer
        with self.assertRaises(weir.Closed):
            tensor.__dlpack__()

    def test_a_tensor_keeps_its_outputs_and_dropping_it_gives_them_back(self):
        idle = self.model.stats().live
        tensor = self.model.infer({"x": Giver(self.VALUES, (2, 16))})[self.output]
        gc.collect()
        self.assertGreater(self.model.stats().live, idle)
        self.assertEqual([], dropped(lambda: None))
        self.assertEqual(self.expected(), memoryview(tensor.to_host()).tobytes())
        del tensor
        self.assertEqual((idle, []), (self.model.stats().live, list(self.model._kept)))

    def test_closing_the_model_closes_its_outputs(self):
        model = weir.load(MLP, runtime=self.runtime, client="second")
        first, second = (model.infer({"x": Giver(self.VALUES, (2, 16))}) for _ in range(2))
        taker = Taker(second[self.output].__dlpack__())
        with self.assertRaises(BufferError):
            model.close()
        self.assertFalse(model.closed)
        taker.give_back()
        model.close()
        self.assertEqual((True, True), (first.closed, second.closed))


if __name__ == "__main__":
    unittest.main()
