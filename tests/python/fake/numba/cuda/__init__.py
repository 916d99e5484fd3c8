"""What numba.cuda has of it."""

from .cudadrv.driver import HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer, PinnedMemory, driver, set_memory_manager

__all__ = ["HostOnlyCUDAMemoryManager", "MemoryInfo", "MemoryPointer", "PinnedMemory", "driver", "set_memory_manager"]
