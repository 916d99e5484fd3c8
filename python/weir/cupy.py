"""CuPy over weir: every array of CuPy's is memory of a client, in one budget with all others of the process.

    import weir.cupy

    pool = weir.cupy.use(budget="20GiB")
    x = cupy.zeros(1 << 20)
    print(pool.used_bytes(), pool.total_bytes())

`use` comes before the first array; those that exist already stay CuPy's. Memory is allocated on CuPy's current stream. It is freed
in the order of that stream, as by CuPy's own pool, and behind what is on the stream that is current when the array goes."""

from __future__ import annotations

import atexit
import contextlib
import ctypes as c
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import cupy
from cupy.cuda import memory as _memory
from cupy_backends.cuda import stream as _stream

from . import errors
from ._c.library import check, lib, refusal_number, refusal_since
from ._c.seams import CurrentStream, address, seams, wseam_cupy_calls
from ._clients import Clients
from ._later import inside, later
from .names import Kind, Status
from .refusal import Refusal, refusal
from .runtime import Block, Client
from .sizes import parse_size

lib.weir_runtime_trim.restype, lib.weir_runtime_trim.argtypes = c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]


class OutOfMemoryError(_memory.OutOfMemoryError, errors.OutOfMemory):  # type: ignore[misc]
    """CuPy's error for this, with weir's words; `refusal` has the numbers."""

    def __init__(self, detail: str, refusal: Refusal | None = None) -> None:
        errors.OutOfMemory.__init__(self, detail, refusal)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.detail, self.refusal)


# ---- what the seam asks of CuPy and of the interpreter ----

_python = c.pythonapi
_python.PyCapsule_GetName.restype, _python.PyCapsule_GetName.argtypes = c.c_char_p, [c.py_object]
_python.PyCapsule_GetPointer.restype, _python.PyCapsule_GetPointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]


def _exported(name: str, signature: bytes) -> int:
    """The address of a C function that CuPy's own modules call; 0: this CuPy has it not, or another one of that name."""
    capsule = getattr(_stream, "__pyx_capi__", {}).get(name)
    if capsule is None or _python.PyCapsule_GetName(capsule) != signature:
        return 0
    return int(_python.PyCapsule_GetPointer(capsule, signature) or 0)


# Where CuPy does not export it: slower, and the same.
def _current_stream() -> int:
    with inside:
        return int(cupy.cuda.get_current_stream().ptr)


_ask = CurrentStream(_current_stream)
_calls = wseam_cupy_calls(
    current_stream=_exported("get_current_stream_ptr", b"intptr_t (void)") or address(_ask),
    stream_of=_exported("get_stream_ptr", b"intptr_t (int)"),
    leave=address(_python.PyEval_SaveThread), come_back=address(_python.PyEval_RestoreThread))
atexit.register(seams.wseam_cupy_end)


def _streams_end_in_weir() -> None:
    """CuPy destroys a stream when its last reference goes, and arrays may outlive it: weir has to be past it before."""
    destroy = getattr(cupy.cuda.Stream, "__del__", None)
    if destroy is None or getattr(destroy, "of_weir", False):
        return

    def end(stream: Any) -> None:
        seams.wseam_end_stream(getattr(stream, "ptr", None))
        destroy(stream)

    def __del__(stream: Any) -> None:
        if seams is None or sys.is_finalizing():
            destroy(stream)
        else:
            later(lambda: end(stream))

    __del__.of_weir = True  # type: ignore[attr-defined]
    cupy.cuda.Stream.__del__ = __del__


# ---- allocators ----

class _Pinned(cupy.cuda.PinnedMemory):  # type: ignore[misc]
    """Page-locked memory of a client's, as CuPy's pool for such wants it."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.ptr, self.size = block.pointer, block.bytes

    def __del__(self) -> None:
        if not sys.is_finalizing():
            later(self.block.close)


class Pool:
    """CuPy's memory in weir, with the figures and names of `cupy.cuda.MemoryPool`, of the current device.

    `malloc` is an allocator as `cupy.cuda.set_allocator` and `using_allocator` take it, `malloc_pinned` one for
    `set_pinned_memory_allocator`."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        account = c.c_void_p()
        _streams_end_in_weir()
        check(seams.wseam_cupy_create(c.byref(_calls), c.byref(account)))
        self._account = account
        self._functions = cupy.cuda.CFunctionAllocator(account.value, address(seams.wseam_cupy_malloc),
                                                       address(seams.wseam_cupy_free), self)
        self._malloc = self._functions.malloc
        self._pinned = cupy.cuda.PinnedMemoryPool(self._malloc_pinned)
        self.malloc_pinned = self._pinned.malloc
        for ordinal, client in clients.opened().items():
            self._give(ordinal, client)

    def __repr__(self) -> str:
        return f"<weir.cupy.Pool of {list(self._clients.opened().values())}>"

    def _give(self, ordinal: int, client: Client) -> None:
        with client._use() as pointer:
            check(seams.wseam_cupy_give(self._account, ordinal, pointer))

    @property
    def client(self) -> Client:
        """The client of CuPy's current device; it is opened where there is none yet."""
        try:
            ordinal = cupy.cuda.Device().id
        except Exception:
            self._clients.of(0)  # where there is no driver, weir's error says what to do, and CuPy's does not
            raise
        client = self._clients.of(ordinal)
        self._give(ordinal, client)
        return client

    def malloc(self, size: int) -> Any:
        """So many bytes on the current device and stream, as a `cupy.cuda.MemoryPointer`. `OutOfMemoryError`."""
        found = self._malloc(size)
        return found if found.ptr or size == 0 else self._again(size)

    def _again(self, size: int) -> Any:
        """After an allocation that failed, first without what only the collector can free."""
        if seams.wseam_cupy_status() == Status.NOT_FOUND:
            self.client  # pylint: disable=pointless-statement
        elif seams.wseam_cupy_status() == Status.OUT_OF_MEMORY:
            gc.collect()
        else:
            check(seams.wseam_cupy_status())
        before = refusal_number()
        found = self._malloc(size)
        if found.ptr:
            return found
        told = refusal_since(before)
        try:
            check(seams.wseam_cupy_status())
        except errors.OutOfMemory as error:
            raise OutOfMemoryError(error.detail, refusal(told) if told is not None else None) from None
        raise AssertionError("an allocation failed without a status")

    def _malloc_pinned(self, size: int) -> Any:
        try:
            block = self.client.alloc(size, kind=Kind.PINNED)
        except errors.OutOfMemory:
            self._pinned.free_all_blocks()
            block = self.client.alloc(size, kind=Kind.PINNED)
        return cupy.cuda.PinnedMemoryPointer(_Pinned(block), 0)

    def used_bytes(self) -> int:
        """In arrays of this pool's, as charged."""
        return self.client.stats().live

    def free_bytes(self) -> int:
        """What the device's runtime holds and nobody uses: of all its clients."""
        return self.total_bytes() - self.client.runtime.stats().live

    def total_bytes(self) -> int:
        """What the device's runtime has of the driver: of all its clients."""
        return self.client.runtime.stats().held

    def free_all_blocks(self, stream: Any = None) -> None:  # pylint: disable=unused-argument
        """Gives what nobody uses back to the driver, whatever the stream."""
        seams.wseam_waiting()
        self._pinned.free_all_blocks()
        with self.client.runtime._use() as pointer:
            check(lib.weir_runtime_trim(pointer, None, None))

    def get_limit(self) -> int:
        """The most that arrays of this pool's may have; 0: the budget."""
        stats = self.client.stats()
        return 0 if stats.maximum >= self.client.runtime.budget else stats.maximum

    def set_limit(self, size: int | str | None = None, fraction: float | None = None) -> None:
        """The same, in bytes or as a fraction of the budget; 0: the budget."""
        if (size is None) == (fraction is None):
            raise ValueError("a size or a fraction")
        if fraction is not None and not 0 <= fraction <= 1:
            raise errors.Invalid(f"a limit is a fraction from 0 to 1 of the budget, not {fraction}")
        client = self.client
        limit = parse_size(size) if size is not None else int((fraction or 0) * client.runtime.budget)
        client.set_limits(maximum=limit, guarantee=client.stats().guaranteed)


_pools: weakref.WeakKeyDictionary[Client, Pool] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _pool_of(client: Client) -> Pool:
    with _lock:
        pool = _pools.get(client)
        if pool is None:
            pool = _pools[client] = Pool(Clients("cupy", [client]))
        return pool


def use(*clients: Client, budget: int | str | None = None, name: str = "cupy", maximum: int | str = 0, guarantee: int | str = 0,
        pinned: bool = True) -> Pool:
    """From now on CuPy allocates from weir, on all threads.

    Either from these clients, each for its device, or from clients called `name` that are opened when a device is first used:
    `budget` is of each device's runtime, for all its clients together (None: as it is, or the default), `maximum` and
    `guarantee` are this client's own. With `pinned` CuPy's page-locked memory comes from weir as well, in the host's budget.
    `Conflict` where a device has a runtime with another budget."""
    pool = Pool(Clients(name, clients, budget, maximum, guarantee))
    if not clients:
        pool.client  # pylint: disable=pointless-statement
    cupy.cuda.set_allocator(pool.malloc)
    if pinned:
        cupy.cuda.set_pinned_memory_allocator(pool.malloc_pinned)
    return pool


@contextlib.contextmanager
def using(client: Client) -> Iterator[Pool]:
    """Inside, the calling thread's arrays are this client's."""
    pool = _pool_of(client)
    with cupy.cuda.using_allocator(pool.malloc):
        yield pool
