"""As much of PyTorch as weir.torch needs to be imported, to be used, and to wait for devices."""

import types

from . import cuda

__version__ = "0"
_C = types.SimpleNamespace(_cuda_customAllocator=lambda alloc, free: cuda.Allocator(), _cuda_changeCurrentAllocator=lambda allocator: None)



class UntypedStorage:
    """Of memory that the test has; tells what was shared."""

    def __init__(self, pointer, device="cuda"):
        self._pointer, self.device = pointer, types.SimpleNamespace(type=device)

    def data_ptr(self):
        return self._pointer or 0

    def _share_cuda_(self):
        return "shared", self._pointer


__all__ = ["UntypedStorage", "cuda"]
