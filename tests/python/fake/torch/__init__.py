"""As much of PyTorch as weir.torch needs to be imported, and to wait for devices."""

from . import cuda

__all__ = ["cuda"]
