"""Memory of a CUDA device, over the stub of CUDA's driver: who takes blocks and outputs there, on which streams, and what a model reads
there. Kernels compute nothing on the stub, so that values of outputs are not looked at."""

import ctypes
import unittest

from common import MIB, SOURCE, missing
from dlpack_peer import Giver, Taker

import weir
from weir import _streams
from weir._c import dlpack, library, structures

MLP = SOURCE / "tests/data/onnx/mlp.onnx"
driver = ctypes.CDLL("libcuda.so.1")
driver.stub_count.restype = ctypes.c_uint64


def call(name, *words):
    """One of the driver's functions."""
    found, status = ctypes.c_void_p(), ctypes.c_int()
    assert driver.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), 12000, ctypes.c_uint64(0), ctypes.byref(status)) == 0, name
    assert ctypes.CFUNCTYPE(ctypes.c_int, *map(type, words))(found.value)(*words) == 0, name


class Stream:
    """A stream that another library made, whose work goes on until it is told to end."""

    def __init__(self):
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        call("cuDevicePrimaryCtxRetain", ctypes.pointer(context), ctypes.c_int(0))
        call("cuCtxSetCurrent", context)
        call("cuStreamCreate", ctypes.pointer(stream), ctypes.c_uint(1))
        self.native = stream.value

    def hold(self):
        """Work that does not end before `let_go`."""
        self._wanted = ctypes.c_bool(False)
        self._work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._wait)
        call("cuLaunchHostFunc", ctypes.c_void_p(self.native), ctypes.cast(self._work, ctypes.c_void_p), ctypes.c_void_p(None))

    def _wait(self, _user):
        while not self._wanted.value:
            pass

    def let_go(self):
        self._wanted.value = True
        call("cuStreamSynchronize", ctypes.c_void_p(self.native))


class Bed(unittest.TestCase):
    def setUp(self):
        self.runtime = weir.Runtime("cuda", budget="64MiB", own=True)
        self.client = self.runtime.client("a")

    def tearDown(self):
        self.client.close()
        self.runtime.drain()
        self.assertEqual((0, 0), (self.runtime.stats().live, self.runtime.stats().pending))
        self.runtime.close()
        self.assertEqual(({}, {}, {}), (dlpack._lent, dlpack._untaken, _streams._known))


class Blocks(Bed):
    def test_a_block_is_handed_out_on_its_device(self):
        with self.client.alloc(4096) as block:
            tensor = block.tensor(weir.Type.BF16, (2, 8), 256)
            self.assertEqual(((2, 0), "cuda:0"), (tensor.__dlpack_device__(), tensor.device))
            for version in (None, (1, 0)):
                taker = Taker(tensor.__dlpack__(stream=-1, max_version=version))
                self.assertEqual((block.pointer + 256, 2, 0, (4, 16), [2, 8]),
                                 (taker.tensor.data, taker.tensor.device_kind, taker.tensor.device, (taker.tensor.code, taker.tensor.bits),
                                  taker.shape))
                taker.give_back()
            with self.assertRaises(weir.Unsupported):
                block.memory

    def test_pinned_memory_is_the_hosts(self):
        with self.client.alloc(4096, kind=weir.Kind.PINNED) as block:
            taker = Taker(block.__dlpack__())
            self.assertEqual((1, block.pointer), (taker.tensor.device_kind, taker.tensor.data))
            taker.give_back()
            with self.assertRaises(AttributeError):
                block.__cuda_array_interface__

    def test_a_copy_on_the_host_is_made_where_it_is_asked_for(self):
        with self.client.alloc(16, zeroed=True) as block:
            host = (ctypes.c_ubyte * 16)(*range(16))
            with self.runtime._use() as runtime:
                library.check(library.lib.weir_copy(runtime, block.pointer, host, 16, structures.weir_stream(0)))
            self.assertEqual(bytes(host), bytes(memoryview(block.tensor().to_host())))
            taker = Taker(block.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
            self.assertEqual((1, dlpack.COPIED), (taker.tensor.device_kind, taker.managed.flags))
            self.assertEqual(bytes(host), ctypes.string_at(taker.tensor.data, 16))
            taker.give_back()
            for wrong in ({"dl_device": (1, 0), "copy": False}, {"copy": True}, {"dl_device": (2, 1)}):
                with self.assertRaises(BufferError):
                    block.__dlpack__(**wrong)

    def test_a_free_waits_for_the_takers_stream(self):
        stream = Stream()
        block = self.client.alloc(MIB)
        taker = Taker(block.__dlpack__(stream=stream.native))
        stream.hold()
        taker.give_back()
        block.close()
        self.assertEqual((0, MIB), (self.client.stats().live, self.client.stats().pending))
        stream.let_go()
        self.runtime.drain()
        self.assertEqual(0, self.client.stats().pending)

    def test_without_a_stream_nothing_is_waited_for(self):
        stream = Stream()
        block = self.client.alloc(MIB)
        taker = Taker(block.__dlpack__(stream=-1))
        stream.hold()
        taker.give_back()
        block.close()
        self.assertEqual(0, self.client.stats().pending)
        stream.let_go()

    def test_a_stream_is_registered_once(self):
        stream = Stream()
        with self.client.alloc(256) as block:
            for _ in range(3):
                Taker(block.__dlpack__(stream=stream.native)).give_back()
            self.assertEqual(1, len(_streams._known))
            Taker(block.__dlpack__()).give_back()
            Taker(block.__dlpack__(stream=1)).give_back()
            Taker(block.__dlpack__(stream=2)).give_back()
            self.assertEqual([stream.native, 1, 2], [native for _, native, _ in _streams._known])
            with self.assertRaisesRegex(ValueError, "either of CUDA's default streams"):
                block.__dlpack__(stream=0)

    def test_the_cuda_array_interface(self):
        block = self.client.alloc(4096)
        whole = block.__cuda_array_interface__
        self.assertEqual(((4096,), "|u1", (block.pointer, False), 3), (whole["shape"], whole["typestr"], whole["data"], whole["version"]))
        for kind, letters in ((weir.Type.F16, "<f2"), (weir.Type.I64, "<i8"), (weir.Type.BF16, "<u2"), (weir.Type.BOOL, "|b1")):
            self.assertEqual(letters, block.tensor(kind, (2, 2)).__cuda_array_interface__["typestr"])
        tensor = block.tensor(weir.Type.F32, (2, 3), 64)
        taken = [tensor.__cuda_array_interface__, tensor.__cuda_array_interface__]
        self.assertEqual([((2, 3), (block.pointer + 64, False))] * 2, [(each["shape"], each["data"]) for each in taken])
        with self.assertRaisesRegex(BufferError, "1 arrays"):
            block.close()
        del tensor  # as the taker drops it
        block.close()


class Models(Bed):
    def setUp(self):
        super().setUp()
        if "onnx" not in weir.engines():
            missing("the plug-in onnx")
        try:
            self.model = weir.load(MLP, runtime=self.runtime)
        except (weir.NotFound, weir.Unsupported) as error:
            self.client.close()
            self.runtime.close()
            missing(error)
        self.idle = self.model.stats().live

    def tearDown(self):
        self.model.close()
        super().tearDown()

    def test_outputs_that_stay_on_the_device_are_tensors(self):
        outputs = self.model({"x": Giver([0.0] * 32, (2, 16))}, outputs="device")
        self.assertEqual({"y": (2, 17), "z": (2, 17), "best": (2,)}, {name: each.shape for name, each in outputs.items()})
        y = outputs["y"]
        self.assertEqual(("cuda:0", weir.Type.F32), (y.device, y.type))
        self.assertEqual((2, 17), getattr(y.to_host(), "shape"))
        taker = Taker(y.__dlpack__(stream=1))
        self.assertEqual(y.pointer, taker.tensor.data)
        del y, outputs
        self.assertGreater(self.model.stats().live, self.idle)
        with self.assertRaises(BufferError):
            self.model.close()
        taker.give_back()
        self.runtime.drain()
        self.assertEqual(self.idle, self.model.stats().live)

    def test_one_models_output_is_anothers_input_where_it_lies(self):
        with self.client.alloc(128) as block:
            x = block.tensor(weir.Type.F32, (2, 16))
            copies = driver.stub_count(b"cuMemcpyAsync")
            self.model({"x": x}, outputs="device")
            self.assertEqual(copies, driver.stub_count(b"cuMemcpyAsync"))
            self.assertEqual(({}, {}), (dlpack._lent, dlpack._untaken))

    def test_a_giver_is_told_the_stream_on_which_its_tensor_is_to_be_ready(self):
        with self.client.alloc(128) as block:
            giver = Giver([0.0], (2, 16), device=(2, 0), pointer=block.pointer)
            streams = driver.stub_count(b"streams")
            self.model({"x": giver}, outputs="device")
            [asked] = giver.asked
            self.assertEqual({"max_version", "stream"}, set(asked))
            self.assertGreater(asked["stream"], 2)
            self.assertEqual(1, giver.deleted)
            self.model({"x": giver}, outputs="device")
            self.assertEqual(1, len({each["stream"] for each in giver.asked}))  # given back, and taken again
            self.assertLessEqual(driver.stub_count(b"streams"), streams + 1)

    def test_what_is_not_contiguous_is_not_copied_there(self):
        with self.client.alloc(128) as block:
            giver = Giver([0.0], (2, 16), strides=(1, 2), device=(2, 0), pointer=block.pointer)
            with self.assertRaisesRegex(ValueError, "'x'.*make it contiguous"):
                self.model({"x": giver})
            self.assertEqual(1, giver.deleted)

    def test_a_tensor_of_another_device_is_refused(self):
        giver = Giver([0.0], (2, 16), device=(2, 1))
        with self.assertRaisesRegex(weir.Invalid, "'x'.*lies on cuda:1, and the model on cuda:0"):
            self.model({"x": giver})
        self.assertEqual([], giver.asked)


if __name__ == "__main__":
    unittest.main()
