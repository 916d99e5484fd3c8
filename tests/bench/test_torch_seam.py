#!/usr/bin/env python3
"""bench/torch_seam.c, called as PyTorch calls it: over the stub of CUDA's driver, and by scripts/gpu-torch over a real
one. WEIR_TEST_SEAM names it. Each test is a process of its own, as a process has one runtime for a device."""

import os
import subprocess
import sys
import textwrap
import unittest

BEGIN = """
import ctypes, json, threading
seam = ctypes.CDLL({seam!r})
seam.torch_seam_alloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
seam.torch_seam_alloc.restype = ctypes.c_void_p
seam.torch_seam_free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
seam.torch_seam_statistics.restype = ctypes.c_char_p
MIB = 1 << 20

def alloc(bytes, stream=None, device=0):
    return seam.torch_seam_alloc(bytes, device, stream)

def free(pointer, bytes, stream=None, device=0):
    seam.torch_seam_free(pointer, bytes, device, stream)

def now(*names):
    every = json.loads(seam.torch_seam_statistics(0))
    return tuple(every[name] for name in names)

def call(name, *words):
    "One of the driver's functions."
    driver, found, flags, status = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64(0), ctypes.c_int()
    is_(driver.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), 12000, flags, ctypes.byref(status)), 0)
    assert ctypes.CFUNCTYPE(ctypes.c_int, *map(type, words))(found.value)(*words) == 0, name

def make_stream():
    context, stream = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", ctypes.c_uint(0))
    call("cuDevicePrimaryCtxRetain", ctypes.pointer(context), ctypes.c_int(0))
    call("cuCtxSetCurrent", context)
    call("cuStreamCreate", ctypes.pointer(stream), ctypes.c_uint(1))
    return stream.value

def is_(got, wanted):
    assert got == wanted, f"{{got}}, not {{wanted}}"
"""


class Seam(unittest.TestCase):
    def run_lines(self, lines, status=0, **environment):
        """Answers what was told on stderr."""
        text = BEGIN.format(seam=os.environ["WEIR_TEST_SEAM"]) + textwrap.dedent(lines)
        done = subprocess.run([sys.executable, "-B", "-c", text], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "WEIR_BUDGET": "64MiB", **environment})
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def test_a_freed_block_serves_the_next_allocation_of_its_stream(self):
        told = self.run_lines("""
            is_(seam.torch_seam_statistics(0), None)
            a = alloc(3 * MIB)
            is_(now("live", "allocations", "frees", "budget"), (3 * MIB, 1, 0, 64 * MIB))
            free(a, 3 * MIB)
            is_(now("live", "allocations", "frees"), (0, 1, 1))
            calls = now("driver_calls")
            is_(alloc(3 * MIB), a)
            is_(now("driver_calls", "peak_live", "peak_requested"), (*calls, 3 * MIB, 3 * MIB))
            assert now("held")[0] >= 3 * MIB and now("peak_held") == now("held")
        """)
        self.assertEqual(told, "")

    def test_streams_and_threads_share_one_client(self):
        told = self.run_lines("""
            other = make_stream()
            blocks = [(alloc(MIB, stream), stream) for stream in (None, other, None, other)]
            is_(len({pointer for pointer, _ in blocks}), 4)
            is_(now("live", "allocations"), (4 * MIB, 4))
            def free_all():
                for pointer, stream in blocks:
                    free(pointer, MIB, stream)
                again = alloc(MIB, other)
                free(again, MIB, other)
            thread = threading.Thread(target=free_all)
            thread.start()
            thread.join()
            is_(now("live", "allocations", "frees", "refusals"), (0, 5, 5, 0))
        """)
        self.assertEqual(told, "")

    def test_an_empty_tensor_has_no_block(self):
        told = self.run_lines("""
            is_(alloc(0), None)
            free(None, 0)
            is_(now("live", "allocations", "frees"), (0, 0, 0))
        """)
        self.assertEqual(told, "")

    def test_a_refusal_is_told_in_words_and_answered_with_null(self):
        told = self.run_lines("""
            is_(alloc(65 * MIB), None)
            is_(now("live", "refusals"), (0, 1))
            assert alloc(MIB)
        """)
        self.assertIn("torch_seam: an allocation: torch asked for 65 MiB (activations) on cuda:0", told)
        self.assertEqual(told.count("\n"), 1)

    def test_a_refusal_ends_the_process_where_that_was_asked_for(self):
        told = self.run_lines("""
            seam.torch_seam_end_when_refused(3)
            assert alloc(MIB)
            alloc(65 * MIB)
            print("it went on")
        """, status=3)
        self.assertIn("torch asked for 65 MiB", told)

    def test_a_device_that_is_not_there_is_named(self):
        told = self.run_lines("""
            assert alloc(MIB)
            is_(alloc(MIB, device=63), None)
            is_(alloc(MIB, device=64), None)
            is_(alloc(MIB, device=-1), None)
            is_(seam.torch_seam_statistics(63), None)
            is_(seam.torch_seam_statistics(64), None)
        """)
        self.assertEqual([line.split(":", 2)[1] for line in told.splitlines()], [" cuda", " device 64", " device -1"])
        self.assertIn("there is no cuda:63", told)

    def test_what_cannot_be_freed_is_told(self):
        told = self.run_lines("""
            a = alloc(MIB)
            free(a + 256, MIB)
            is_(now("live", "frees"), (MIB, 0))
        """)
        self.assertIn("torch_seam: a free: ", told)

    def test_a_stream_that_weir_does_not_take_is_told(self):
        told = self.run_lines("""
            assert alloc(MIB)
            is_(alloc(MIB, stream=2), None)  # CUDA's per-thread stream
            assert alloc(MIB)
        """)
        self.assertIn("torch_seam: a stream: ", told)


if __name__ == "__main__":
    if "WEIR_TEST_SEAM" not in os.environ:
        print("WEIR_TEST_SEAM does not name libtorch-seam.so")
        sys.exit(77)
    unittest.main()
