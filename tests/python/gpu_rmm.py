"""weir.rmm with RMM on a GPU."""

import unittest

from gpu import MIB, main, needed

needed("rmm")

import rmm  # noqa: E402 pylint: disable=wrong-import-position
import weir  # noqa: E402 pylint: disable=wrong-import-position
import weir.rmm  # noqa: E402 pylint: disable=wrong-import-position

resource = weir.rmm.use(budget="512MiB")


class RMM(unittest.TestCase):
    def test_buffers_hold_what_is_written(self):
        data = bytes(range(256)) * 4096
        buffer = rmm.DeviceBuffer.to_device(data)
        self.assertEqual(MIB, resource.client.stats().live)
        self.assertEqual(data, buffer.tobytes())
        del buffer
        self.assertEqual(0, resource.client.stats().live)

    def test_buffers_on_streams(self):
        from rmm.pylibrmm.stream import Stream  # pylint: disable=import-outside-toplevel
        streams = [Stream() for _ in range(4)]
        for turn in range(30):
            for number, stream in enumerate(streams):
                data = bytes([turn + number]) * MIB
                buffer = rmm.DeviceBuffer.to_device(data, stream=stream)
                self.assertEqual(data, buffer.tobytes(stream=stream))
        del buffer
        self.assertEqual(0, resource.client.stats().live)

    def test_a_refusal_has_words(self):
        with self.assertRaisesRegex(MemoryError, r"rmm asked for 1 GiB \(activations\) on cuda:0"):
            rmm.DeviceBuffer(size=1 << 30)
        self.assertEqual(1 << 30, resource.refused.refusal.requested)


if __name__ == "__main__":
    main()
