"""As much of PyTorch as weir.torch needs to be imported, to be used, and to wait for devices, and tensors of ones."""

import ctypes
import types

from . import cuda

__version__ = "0"
_C = types.SimpleNamespace(_cuda_customAllocator=cuda.Allocator, _cuda_changeCurrentAllocator=cuda.make_current)


class Tensor:
    """Floats on the stub's device, whose memory the processor sees."""

    def __init__(self, count):
        self.count, self.allocator = count, cuda.current[-1]
        self.pointer = self.allocator.take(4 * count)
        ctypes.memmove(self.pointer, (ctypes.c_float * count)(*[1] * count), 4 * count)

    def sum(self):
        return sum((ctypes.c_float * self.count).from_address(self.pointer))

    def __del__(self):
        self.allocator.give(self.pointer, 4 * self.count)


def ones(count, device):
    if device != "cuda":
        raise AssertionError(f"the stand-in has tensors on cuda alone, and none on {device}")
    return Tensor(count)



class UntypedStorage:
    """Of memory that the test has; tells what was shared."""

    def __init__(self, pointer, device="cuda"):
        self._pointer, self.device = pointer, types.SimpleNamespace(type=device)

    def data_ptr(self):
        return self._pointer or 0

    def _share_cuda_(self):
        return "shared", self._pointer


__all__ = ["Tensor", "UntypedStorage", "cuda", "ones"]
