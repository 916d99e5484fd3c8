"""Numba over weir: device arrays and page-locked ones are memory of a client, in one budget with all others of the process.

    import weir.numba

    weir.numba.use(budget="20GiB")

before Numba uses a device, or NUMBA_CUDA_MEMORY_MANAGER=weir.numba in the environment of a program as it is. Numba does not say on
which stream memory is used. What is allocated any stream may use at once, and what is freed serves others when all that was put on
streams of the device until then is done, whoever has made them."""

from __future__ import annotations

import contextlib
import ctypes as c
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from numba import cuda
from numba.cuda.cudadrv import driver as _driver

from . import errors
from ._c import structures as s
from ._c.library import check, lib
from ._c.seams import seams
from ._clients import Clients
from ._later import later
from .names import Kind
from .refusal import Refusal
from .runtime import Client

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
_clients = Clients("numba")


class OutOfMemoryError(_driver.CudaAPIError, errors.OutOfMemory):  # type: ignore[misc]
    """Numba's error for this, with weir's words; `refusal` has the numbers."""

    def __init__(self, detail: str, refusal: Refusal | None = None) -> None:
        errors.OutOfMemory.__init__(self, detail, refusal)
        self.code, self.msg = _OUT_OF_MEMORY, detail

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.detail, self.refusal)


class MemoryManager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Numba's plug-in, version 1 of its interface: one for each context. Memory that Numba pins itself (`cuda.pinned`), and managed
    memory, are the driver's own."""

    def __init__(self, *args: Any, **members: Any) -> None:
        super().__init__(*args, **members)
        self._blocks: dict[int, Client] = {}  # by address
        self._deferring = 0
        self._deferred: list[int] = []

    @property
    def interface_version(self) -> int:
        return 1

    def initialize(self) -> None:
        """Nothing: the client is opened with the first allocation."""

    @property
    def client(self) -> Client:
        """The client of this context's device."""
        return _clients.of(int(self.context.device.id))

    def _attempt(self, allocate: Callable[[int, Any], int]) -> int:
        """Calls it with the client and a place for the address; once more without what still waits to be freed."""
        out = c.c_void_p()
        with self.client._use() as pointer:
            for last in (False, True):
                try:
                    check(allocate(pointer, out))
                    break
                except errors.OutOfMemory as error:
                    if last:
                        raise OutOfMemoryError(error.detail, error.refusal) from None
                    self.deallocations.clear()
                    seams.wseam_waiting()
        address = out.value or 0
        if address:
            self._blocks[address] = self.client
        return address

    def _finalizer(self, address: int) -> Callable[[], None]:
        manager = weakref.ref(self)

        def finalize() -> None:
            found = manager()
            if found is not None:
                later(lambda: found._free(address))
        return finalize

    def _free(self, address: int) -> None:
        if self._deferring:
            self._deferred.append(address)
            return
        client = self._blocks.pop(address, None)  # None: `reset` has freed it
        if client is not None and client._pointer is not None:
            seams.wseam_free_behind(client._pointer, address)

    def memalloc(self, size: int) -> Any:
        """Memory of the device."""
        address = self._attempt(lambda client, out: int(seams.wseam_alloc_for_all(client, size, c.byref(out))))
        return cuda.MemoryPointer(weakref.proxy(self.context), c.c_void_p(address), size, finalizer=self._finalizer(address))

    def memhostalloc(self, size: int, mapped: bool = False, portable: bool = False, wc: bool = False) -> Any:
        """Page-locked memory of the host's, in the host's budget. What is to be mapped or write-combined is the driver's own."""
        if mapped or wc:
            return super().memhostalloc(size, mapped, portable, wc)
        block = s.weir_block()

        def allocate(client: int, out: Any) -> int:
            request = s.weir_request(bytes=size, kind=Kind.PINNED)
            status = int(lib.weir_alloc_with(client, c.byref(request), c.byref(block)))
            out.value = block.pointer
            return status

        address = self._attempt(allocate)
        return cuda.PinnedMemory(weakref.proxy(self.context), address, size, finalizer=self._finalizer(address))

    def get_memory_info(self) -> Any:
        """Of the budget."""
        stats = self.client.runtime.stats()
        return cuda.MemoryInfo(free=max(0, stats.budget - stats.live - stats.pending - stats.promised), total=stats.budget)

    def get_ipc_handle(self, memory: Any) -> Any:
        raise errors.Unsupported("weir's memory has no handle for other processes: allocate what is to be shared with Numba's own "
                                 "memory manager")

    def reset(self) -> None:
        super().reset()
        self._deferred.clear()
        for address in list(self._blocks):
            self._free(address)

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        with super().defer_cleanup():
            self._deferring += 1
            try:
                yield
            finally:
                self._deferring -= 1
                while self._deferred and not self._deferring:
                    self._free(self._deferred.pop())


_numba_memory_manager = MemoryManager  # NUMBA_CUDA_MEMORY_MANAGER=weir.numba


def _has_context() -> bool:
    devices = getattr(_driver.driver, "devices", {})
    return any(getattr(device, "primary_context", None) is not None for device in devices.values())


def use(*clients: Client, budget: int | str | None = None, name: str = "numba", maximum: int | str = 0, guarantee: int | str = 0) -> None:
    """From now on Numba allocates from weir.

    Either from these clients, each for its device, or from clients called `name` that are opened with the first allocation on a
    device: `budget` is of each device's runtime, for all its clients together (None: as it is, or the default), `maximum` and
    `guarantee` are this client's own. `Busy` when Numba uses a device already: it asks only once."""
    global _clients
    if _has_context():
        raise errors.Busy("Numba uses a device already, with the memory manager that it had then: call weir.numba.use before")
    _clients = Clients(name, clients, budget, maximum, guarantee)
    cuda.set_memory_manager(MemoryManager)


def clients() -> dict[int, Client]:
    """Numba's clients, by device: those that there are."""
    return _clients.opened()
