"""Page-locked memory: CuPy's pool keeps what is freed by its size, a power of two."""

_everywhere = [None]


class PinnedMemory:
    def __init__(self, size, flags=0):
        raise NotImplementedError("the driver's")


class PinnedMemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr = mem, mem.ptr + offset


class _Pooled:
    def __init__(self, mem, pool):
        self.mem, self.pool, self.ptr = mem, pool, mem.ptr

    def __del__(self):
        self.pool.free_blocks.setdefault(self.mem.size, []).append(self.mem)


class PinnedMemoryPool:
    def __init__(self, allocator):
        self._allocator, self.free_blocks = allocator, {}

    def malloc(self, size):
        size = 1 << max(9, (size - 1).bit_length())
        free = self.free_blocks.get(size)
        return PinnedMemoryPointer(_Pooled(free.pop() if free else self._allocator(size).mem, self), 0)

    def free_all_blocks(self):
        self.free_blocks.clear()


def set_pinned_memory_allocator(allocator):
    _everywhere[0] = allocator


def alloc_pinned_memory(size):
    return _everywhere[0](size)
