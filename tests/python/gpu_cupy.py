"""weir.cupy with CuPy on a GPU; and with Numba beside it, where that is here."""

import gc
import importlib.util
import threading
import unittest

from gpu import MIB, main, needed

needed("cupy")

import cupy  # noqa: E402 pylint: disable=wrong-import-position
import weir  # noqa: E402 pylint: disable=wrong-import-position
import weir.cupy  # noqa: E402 pylint: disable=wrong-import-position

pool = weir.cupy.use(budget="512MiB")


def busy(array, rounds=200):
    """Work that takes the device a while, on the current stream."""
    for _ in range(rounds):
        cupy.add(array, 1, out=array)


class CuPy(unittest.TestCase):
    def setUp(self):
        gc.collect()
        cupy.cuda.Device().synchronize()
        self.before = pool.used_bytes()

    def tearDown(self):
        gc.collect()
        self.assertEqual(self.before, pool.used_bytes())

    def test_it_asks_in_c(self):
        self.assertNotEqual(0, weir.cupy._exported("get_current_stream_ptr", b"intptr_t (void)"))

    def test_results_are_right_and_memory_is_counted(self):
        x = cupy.arange(MIB, dtype=cupy.float32)
        self.assertEqual(4 * MIB, pool.used_bytes() - self.before)
        self.assertEqual(float((x * 2).sum(dtype=cupy.float64)), float(MIB) * (MIB - 1))
        a = cupy.random.default_rng(1).random((256, 256))
        self.assertTrue(bool(cupy.allclose(a @ cupy.linalg.inv(a), cupy.eye(256), atol=1e-6)))
        self.assertTrue((cupy.asnumpy(cupy.sort(x[::-1])) == cupy.asnumpy(x)).all())

    def test_streams_do_not_write_to_one_anothers_memory(self):
        streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
        for turn in range(50):
            for number, stream in enumerate(streams):
                with stream:
                    x = cupy.full(MIB, number, dtype=cupy.int32)
                    busy(x, 10)
                    y = x.copy()
                    del x
                    self.assertTrue(bool((y == number + 10).all()), f"turn {turn}")
        self.assertGreaterEqual(weir.cupy.seams.wseam_streams(), 4)

    def test_an_array_that_outlives_its_stream(self):
        kept = []
        for number in range(40):
            with cupy.cuda.Stream(non_blocking=True) as stream:
                x = cupy.full(MIB, number, dtype=cupy.int32)
                busy(x, 20)
                kept.append(x.sum())
                del x
                stream.synchronize()
        self.assertEqual([(number + 20) * MIB for number in range(40)], [int(each) for each in kept])

    def test_memory_that_is_freed_on_another_stream_is_waited_for(self):
        one, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        with one:
            x = cupy.zeros(8 * MIB, dtype=cupy.int32)
            one.synchronize()
            with other:
                busy(x)
                total = x.copy()
                del x
            clobber = cupy.full(8 * MIB, 7, dtype=cupy.int32)
        one.synchronize()
        other.synchronize()
        self.assertTrue(bool((total == 200).all()))
        del clobber

    def test_threads_have_clients_of_their_own(self):
        clients = [weir.Runtime("cuda:0").client(f"thread {number}", maximum="64MiB") for number in range(4)]
        errors = []

        def work(client):
            try:
                with weir.cupy.using(client):
                    x = cupy.ones(2 * MIB, dtype=cupy.float32)
                    assert float(x.sum()) == 2 * MIB
                    assert client.stats().live >= 8 * MIB
                    try:
                        cupy.empty(32 * MIB, dtype=cupy.float32)
                        raise AssertionError("it was not refused")
                    except weir.OutOfMemory as error:
                        assert error.refusal.cause == weir.Cause.MAXIMUM
            except BaseException as error:  # pylint: disable=broad-except
                errors.append(error)
        threads = [threading.Thread(target=work, args=[client]) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([], errors)
        for client in clients:
            client.close()

    def test_a_refusal_has_words_and_nothing_is_lost(self):
        with self.assertRaisesRegex(cupy.cuda.memory.OutOfMemoryError, r"^cupy asked for 1 GiB \(activations\) on cuda:0") as told:
            cupy.empty(1 << 30, dtype=cupy.uint8)
        self.assertIsInstance(told.exception, weir.OutOfMemory)
        self.assertEqual(7.0, float(cupy.full(1, 7.0)[0]))

    def test_a_graph_is_captured_and_launched(self):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            x = cupy.zeros(MIB, dtype=cupy.int32)
            cupy.add(x + 1, -1, out=x)  # compiles, which no capture allows
            stream.synchronize()
            stream.begin_capture()
            y = x + 1
            cupy.add(y, 1, out=x)
            graph = stream.end_capture()
            for _ in range(3):
                graph.launch(stream=stream)
            stream.synchronize()
            self.assertTrue(bool((x == 6).all()))
        del y
        self.assertEqual(0, weir.cupy.seams.wseam_waiting())

    def test_an_array_outlives_its_stream(self):
        for _ in range(20):
            stream = cupy.cuda.Stream(non_blocking=True)
            with stream:
                x = cupy.zeros(MIB, dtype=cupy.int32)
                busy(x)
            del stream
            self.assertEqual(200, int(x[0]))
            del x

    def test_page_locked_memory(self):
        import numpy  # pylint: disable=import-outside-toplevel
        host = weir.Runtime("host")
        memory = cupy.cuda.alloc_pinned_memory(MIB)
        self.assertGreaterEqual(host.stats().live, MIB)
        array = numpy.frombuffer(memory, dtype=numpy.uint8, count=MIB)
        array[:] = 5
        self.assertTrue(bool((cupy.asarray(array) == 5).all()))
        del array, memory

    @unittest.skipUnless(importlib.util.find_spec("numba"), "not here: numba")
    def test_numba_beside_it_in_one_budget(self):
        import weir.numba  # pylint: disable=import-outside-toplevel
        from numba import cuda  # pylint: disable=import-outside-toplevel
        weir.numba.use()
        x = cuda.to_device(cupy.asnumpy(cupy.arange(MIB, dtype=cupy.float32)))
        y = cupy.asarray(x)  # the same memory
        self.assertEqual(y.data.ptr, x.__cuda_array_interface__["data"][0])
        self.assertEqual(float(y.sum(dtype=cupy.float64)), MIB * (MIB - 1) / 2)
        clients = {client.name: client.live for client in weir.Runtime("cuda:0").stats().clients}
        self.assertEqual(4 * MIB, clients["numba"])
        with self.assertRaises(weir.OutOfMemory) as told:
            cuda.device_array(600 * MIB, dtype="u1")
        self.assertIn("numba asked for 600 MiB", str(told.exception))
        del x, y


if __name__ == "__main__":
    main()
