"""Devices, streams, allocators."""

import contextlib
import ctypes as c

from cupy_backends.cuda import stream as _backend

from . import memory
from .memory import CFunctionAllocator, MemoryPointer, _local, alloc, set_allocator
from .pinned import PinnedMemory, PinnedMemoryPointer, PinnedMemoryPool, alloc_pinned_memory, set_pinned_memory_allocator


class Device:
    def __init__(self, number=None):
        self.id = _backend.state.device if number is None else number

    def use(self):
        _backend.state.device = self.id


class Stream:
    """The current one on this thread inside of `with`; it does not destroy the handle."""

    def __init__(self, handle=0):
        self.ptr = handle

    def __enter__(self):
        self._before, _backend.state.stream = _backend.state.stream, self.ptr
        return self

    def __exit__(self, *error):
        _backend.state.stream = self._before


def get_current_stream():
    return Stream(_backend.state.stream)


@contextlib.contextmanager
def using_allocator(allocator):
    before, _local.allocator = getattr(_local, "allocator", None), allocator
    try:
        yield
    finally:
        _local.allocator = before


__all__ = ["CFunctionAllocator", "Device", "MemoryPointer", "PinnedMemory", "PinnedMemoryPointer", "PinnedMemoryPool", "Stream", "alloc",
           "alloc_pinned_memory", "c", "get_current_stream", "memory", "set_allocator", "set_pinned_memory_allocator",
           "using_allocator"]
