"""Stands for PyTorch where bench/torch_programs.py is tested: the calls that choose an allocator and ask it, and a program whose
steps have 16 blocks of 1 MiB and free every other one. PyTorch's own allocator holds 1.25 of what is live, and 1.0625 with
expandable segments."""

import os
import sys
import types

MIB = 1 << 20
BLOCKS = 16
TOTAL = 1 << 30

__version__ = "0.0"
version = types.SimpleNamespace(cuda="0.0")


class OutOfMemoryError(RuntimeError):
    pass


class Own:
    """PyTorch's own allocator."""

    def __init__(self):
        self.expandable = "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
        self.cap, self.live, self.peak, self.allocations = TOTAL, 0, 0, 0

    def held(self, live):
        return live * 17 // 16 if self.expandable else live * 5 // 4

    def allocate(self, size):
        if self.held(self.live + size) > self.cap:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate\nand more lines")
        self.live += size
        self.peak = max(self.peak, self.live)
        self.allocations += 1
        return self.allocations

    def free(self, _, size):
        self.live -= size

    def stats(self):
        return {"requested_bytes.all.peak": self.peak, "allocated_bytes.all.peak": self.peak,
                "allocated_bytes.all.current": self.live, "reserved_bytes.all.peak": self.held(self.peak),
                "reserved_bytes.all.current": self.held(self.peak), "allocation.all.allocated": self.allocations,
                "num_device_alloc": 3, "num_device_free": 1, "num_alloc_retries": 0}


chosen = Own()


def limit(fraction):
    chosen.cap = int(fraction * TOTAL)


cuda = types.SimpleNamespace(
    is_available=lambda: os.environ.get("FAKE_GPU") != "none", init=lambda: None, get_device_name=lambda: "fake",
    mem_get_info=lambda: (TOTAL, TOTAL), set_per_process_memory_fraction=limit, memory_stats=lambda: chosen.stats(),
    memory_snapshot=lambda: [{"is_expandable": chosen.expandable}])


class Program:
    """Answers a number a step. FAKE_WRONG=weir:0.5 adds that to those that come through weir; it may be nan."""

    def __init__(self, name):
        self.kept, self.name, self.steps = [], name, 0
        allocator, _, more = os.environ.get("FAKE_WRONG", ":0").partition(":")
        self.more = float(more) if allocator == ("weir" if type(chosen) is not Own else "expandable" if chosen.expandable else "torch") else 0

    def step(self):
        if self.name == os.environ.get("FAKE_BROKEN"):
            raise RuntimeError("this program is broken")
        while len(self.kept) < BLOCKS:
            self.kept.append(chosen.allocate(MIB))
        for pointer in self.kept[1::2]:
            chosen.free(pointer, MIB)
        del self.kept[1::2]
        self.steps += 1
        return self.steps + (self.more if self.steps > 2 else 0.0)


def ones(count, device):
    if os.environ.get("FAKE_BROKEN") == "ones":
        return types.SimpleNamespace(sum=lambda: 7)
    if device == "cuda":
        chosen.allocate(4 * count)
    return types.SimpleNamespace(sum=lambda: count)


models = types.ModuleType("torch_models")
models.begin = lambda name, device, small, seed: Program(name)
sys.modules["torch_models"] = models
