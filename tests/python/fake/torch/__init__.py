"""As much of PyTorch as weir.torch needs to be imported, to be used, and to wait for devices."""

import types

from . import cuda

__version__ = "0"
_C = types.SimpleNamespace(_cuda_customAllocator=lambda alloc, free: cuda.Allocator(), _cuda_changeCurrentAllocator=lambda allocator: None)

__all__ = ["cuda"]
