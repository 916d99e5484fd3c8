"""What tests of libweir-seams say to CUDA's driver: the stub's, or on a machine with a GPU a real one."""

import ctypes as c
import threading

from weir import Client, Runtime
from weir._c import library, structures
from weir._c.seams import seams

MIB = 1 << 20
LEGACY, PER_THREAD = None, 2
NON_BLOCKING = 1
RELAXED = 2  # captures in which any call may be made
driver = c.CDLL("libcuda.so.1")
check = library.check


def call(name, *words):
    """One of the driver's functions, which has to succeed."""
    found, status = c.c_void_p(), c.c_int()
    assert driver.cuGetProcAddress_v2(name.encode(), c.byref(found), 12000, c.c_uint64(0), c.byref(status)) == 0, name
    result = c.CFUNCTYPE(c.c_int, *map(type, words))(found.value)(*words)
    assert result == 0, f"{name} answered {result}"


def begin(device=0):
    """The device's context is current on this thread."""
    context = c.c_void_p()
    call("cuInit", c.c_uint(0))
    call("cuDevicePrimaryCtxRetain", c.pointer(context), c.c_int(device))
    call("cuCtxSetCurrent", context)


def make_stream():
    stream = c.c_void_p()
    call("cuStreamCreate", c.pointer(stream), c.c_uint(NON_BLOCKING))
    return stream.value


def destroy_stream(stream):
    call("cuStreamDestroy", c.c_void_p(stream))


def synchronize(stream):
    call("cuStreamSynchronize", c.c_void_p(stream))


def begin_capture(stream):
    call("cuStreamBeginCapture", c.c_void_p(stream), c.c_int(RELAXED))


def end_capture(stream):
    """Fails where a call has broken the capture."""
    graph = c.c_void_p()
    call("cuStreamEndCapture", c.c_void_p(stream), c.pointer(graph))


def stub(what):
    """How many of these the stub has."""
    driver.stub_count.restype = c.c_uint64
    return driver.stub_count(what.encode())


class Work:
    """Work on a stream that goes on until it is ended. For `with`."""

    def __init__(self, stream):
        self._goes_on, self._handle = threading.Event(), c.c_void_p(stream)
        self._function = c.CFUNCTYPE(None, c.c_void_p)(lambda user: self._goes_on.wait(60) and None)
        call("cuLaunchHostFunc", self._handle, self._function, c.c_void_p())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._goes_on.set()


def alloc(client, size, stream):
    out = c.c_void_p()
    check(seams.wseam_alloc(client._pointer, size, 0, stream, c.byref(out)))
    return out.value


def free(client, pointer, stream):
    seams.wseam_free_on(client._pointer, pointer, stream)


def alloc_for_all(client, size):
    out = c.c_void_p()
    check(seams.wseam_alloc_for_all(client._pointer, size, c.byref(out)))
    return out.value


def of_account(client):
    """(live, allocations, frees)"""
    stats = client.stats()
    return stats.live, stats.allocations, stats.frees


__all__ = ["Client", "LEGACY", "MIB", "PER_THREAD", "Runtime", "Work", "alloc", "alloc_for_all", "begin", "begin_capture", "c", "call",
           "check", "destroy_stream", "driver", "end_capture", "free", "library", "make_stream", "of_account", "seams", "structures",
           "stub", "synchronize", "threading"]
