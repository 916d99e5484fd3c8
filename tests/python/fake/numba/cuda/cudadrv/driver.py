"""Memory managers, and the pointers that own what they gave."""

import contextlib
import weakref
from collections import namedtuple

MemoryInfo = namedtuple("MemoryInfo", "free,total")


class CudaAPIError(Exception):
    def __init__(self, code, msg):
        super().__init__(code, msg)
        self.code, self.msg = code, msg

    def __str__(self):
        return f"[{self.code}] {self.msg}"


class _Pending:
    cleared = 0

    def clear(self):
        self.cleared += 1


class HostOnlyCUDAMemoryManager:
    def __init__(self, *args, **kwargs):
        self.context = kwargs.pop("context")
        self.allocations, self.deallocations = {}, _Pending()

    def memhostalloc(self, size, mapped=False, portable=False, wc=False):
        return ("the driver's", size, mapped, wc)

    def reset(self):
        self.allocations.clear()
        self.deallocations.clear()

    @contextlib.contextmanager
    def defer_cleanup(self):
        yield


class _Owner:
    def __init__(self, context, pointer, size, owner=None, finalizer=None):
        self.context, self.pointer, self.size, self.owner = context, pointer, size, owner
        self._finalizer = weakref.finalize(self, finalizer)

    def free(self):
        self._finalizer()


class MemoryPointer(_Owner):
    @property
    def device_pointer(self):
        return self.pointer.value


class PinnedMemory(_Owner):
    @property
    def host_pointer(self):
        return self.pointer


class _Driver:
    devices = {}


driver = _Driver()
_memory_manager = None


def set_memory_manager(manager):
    global _memory_manager
    assert manager(context=None).interface_version == 1
    _memory_manager = manager
