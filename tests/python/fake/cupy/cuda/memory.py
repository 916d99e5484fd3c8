"""Memory of the device, with the interpreter's lock held in calls of C functions, as CuPy's own code holds it."""

import ctypes as c
import threading

from cupy_backends.cuda import stream as _backend

_MALLOC = c.PYFUNCTYPE(c.c_void_p, c.c_void_p, c.c_size_t, c.c_int)
_FREE = c.PYFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_int)
_local = threading.local()
_everywhere = [None]


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        super().__init__(f"Out of memory allocating {size} bytes (allocated so far: {total} bytes, limit set to: {limit} bytes).")


class _Memory:
    """CFunctionAllocatorMemory."""

    def __init__(self, size, param, malloc, free, device):
        self._param, self._free, self.device_id, self.size = param, free, device, size
        self.ptr = (_MALLOC(malloc)(param, size, device) or 0) if size else 0

    def __del__(self):
        if self.ptr:
            _FREE(self._free)(self._param, self.ptr, self.device_id)


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr = mem, mem.ptr + offset


class CFunctionAllocator:
    def __init__(self, param, malloc_func, free_func, owner):
        self._words, self._owner = (param, malloc_func, free_func), owner

    def malloc(self, size):
        return MemoryPointer(_Memory(size, *self._words, _backend.state.device), 0)


def set_allocator(allocator):
    _everywhere[0] = allocator


def alloc(size):
    return (getattr(_local, "allocator", None) or _everywhere[0])(size)
