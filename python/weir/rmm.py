"""RMM over weir: a memory resource of RMM's whose memory is a client's, in one budget with all others of the process.

    import weir.rmm

    weir.rmm.use(budget="20GiB")           # for all that asks RMM on the current device: cuDF, cuML
    resource = weir.rmm.resource(client)   # for what takes a resource

Each allocation goes through Python. C++ programs have weir/rmm.hpp, which does not."""

from __future__ import annotations

import ctypes as c
from typing import Any

import rmm
import rmm.mr

from ._c.library import check
from ._c.seams import seams
from ._clients import Clients, ordinal_of
from ._later import inside
from .errors import OutOfMemory
from .runtime import Client

_ALIGNMENT = 256  # RMM promises that


class Resource(rmm.mr.CallbackMemoryResource):  # type: ignore[misc]
    """A memory resource of RMM's over a client of a CUDA device; `Invalid` for another one's.

    It is for any thread. Sizes are in bytes, and memory is aligned to 256. It is allocated and freed in the order of the stream that
    RMM names; a free on a stream that is being captured is done when the capture has ended. RMM keeps the resource as long as memory
    of it lives, and the client cannot be closed before. RMM's error for a refusal is `MemoryError`, with weir's words behind RMM's
    own; `refused` is the last one, of whatever thread, or None."""

    def __init__(self, client: Client) -> None:
        ordinal_of(client)
        self.client = client
        self.refused: OutOfMemory | None = None
        super().__init__(self._allocate, self._deallocate)

    def _allocate(self, size: int, stream: Any) -> int:
        out = c.c_void_p()
        try:
            with self.client._use() as pointer:
                check(seams.wseam_alloc(pointer, size, _ALIGNMENT, stream.__cuda_stream__()[1], c.byref(out)))
        except OutOfMemory as error:
            self.refused = error
            raise
        return out.value or 0

    def _deallocate(self, address: int, size: int, stream: Any) -> None:  # pylint: disable=unused-argument
        if seams is None or inside is None or self.client._pointer is None:
            return  # the interpreter has ended, and all memory goes with the process; RMM would take an exception for somebody else's
        with inside:
            seams.wseam_free_on(self.client._pointer, address, stream.__cuda_stream__()[1])


def resource(client: Client) -> Resource:
    """A memory resource over that client, for `rmm.mr.set_per_device_resource`, RMM's adaptors and whatever takes one. Memory of another
    device than the client's is not to be asked of it."""
    return Resource(client)


def use(client: Client | None = None, *, budget: int | str | None = None, name: str = "rmm", maximum: int | str = 0,
        guarantee: int | str = 0) -> Resource:
    """From now on RMM allocates from weir on a device, on all threads: the client's, or the first one, where a client called `name` is
    opened. What RMM has allocated before stays its own, and `rmm.reinitialize` takes this back.

    `budget` is of the device's runtime, for all its clients together, in bytes or as a text such as "20GiB" (None: as it is, else the
    first that was said for a framework, else the default); `maximum` and `guarantee` are this client's own. `Conflict` where the
    device has a runtime with another budget, `Invalid` for limits beside a client that has its own."""
    clients = Clients(name, [client] if client is not None else [], budget, maximum, guarantee)
    found = Resource(client if client is not None else clients.of(0))
    rmm.mr.set_per_device_resource(ordinal_of(found.client), found)
    return found
