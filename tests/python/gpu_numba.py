"""weir.numba with Numba on a GPU."""

import gc
import unittest

from gpu import MIB, main, needed

needed("numba", "numpy")

import numpy  # noqa: E402 pylint: disable=wrong-import-position
from numba import cuda  # noqa: E402 pylint: disable=wrong-import-position
import weir  # noqa: E402 pylint: disable=wrong-import-position
import weir.numba  # noqa: E402 pylint: disable=wrong-import-position

weir.numba.use(budget="512MiB")


def client():
    return weir.numba.clients()[0]


class Numba(unittest.TestCase):
    def test_arrays_go_there_and_back(self):
        x = numpy.arange(MIB, dtype=numpy.float32)
        d = cuda.to_device(x)
        self.assertEqual(4 * MIB, client().stats().live)
        self.assertTrue((d.copy_to_host() == x).all())
        del d
        gc.collect()
        self.assertEqual(0, client().stats().live)

    def test_a_kernel_on_streams(self):
        @cuda.jit("void(int32[:], int32)")
        def add(values, number):
            i = cuda.grid(1)
            if i < values.size:
                values[i] += number

        streams = [cuda.stream() for _ in range(4)]
        for turn in range(30):
            arrays = [cuda.to_device(numpy.full(MIB, turn, dtype=numpy.int32), stream=stream) for stream in streams]
            for number, (array, stream) in enumerate(zip(arrays, streams)):
                add[MIB // 256, 256, stream](array, number)
            found = [array.copy_to_host(stream=stream) for array, stream in zip(arrays, streams)]
            del arrays, array  # what is queued still has them
            cuda.synchronize()
            for number, values in enumerate(found):
                self.assertTrue((values == turn + number).all())

    def test_a_refusal_has_words(self):
        with self.assertRaises(weir.OutOfMemory) as told:
            cuda.device_array(1 << 30, dtype=numpy.uint8)
        self.assertIn("numba asked for 1 GiB (activations) on cuda:0", str(told.exception))
        self.assertIsInstance(told.exception, cuda.cudadrv.driver.CudaAPIError)

    def test_the_figures_are_of_the_budget(self):
        d = cuda.device_array(MIB, dtype=numpy.uint8)
        free, total = cuda.current_context().get_memory_info()
        self.assertEqual((512 * MIB, 511 * MIB), (total, free))
        del d

    def test_page_locked_memory(self):
        host = weir.Runtime("host")
        before = host.stats().live
        array = cuda.pinned_array(MIB, dtype=numpy.uint8)
        array[:] = 3
        self.assertEqual(MIB, host.stats().live - before)
        self.assertTrue((cuda.to_device(array).copy_to_host() == 3).all())
        mapped = cuda.mapped_array(1000, dtype=numpy.uint8)  # the driver's own
        mapped[:] = 4
        del array, mapped

    def test_handles_for_other_processes_are_refused(self):
        with self.assertRaises(weir.Unsupported):
            cuda.device_array(1000, dtype=numpy.uint8).get_ipc_handle()


if __name__ == "__main__":
    main()
