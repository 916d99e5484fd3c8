"""Runtimes, clients and blocks: a device's budget, accounts under it, and memory."""

from __future__ import annotations

import ctypes as c
import weakref
from typing import Any

from ._c import structures as s
from ._c.library import check, lib, text, to_bytes
from ._handle import Handle
from .errors import Unsupported
from .machine import parse_size
from .names import Class, Kind, Scrub
from .statistics import ClientStats, RuntimeStats, client_stats, runtime_stats

HOST_STREAM = s.weir_stream(0)


class Runtime(Handle):
    """A device with its budget.

    `device` is "host", "cuda" or "cuda:1". `budget` is in bytes, or a text such as "2GiB": the most that all clients together
    may hold; None: the option `budget`, else what is free less the larger of 10 % and 512 MiB. `resource` is a stack such as
    "guard(direct)"; None: the option `resource`, else "cache".

    There is one runtime of a device in a process, which engines share: this finds it or makes it, and `close` only ends this
    object's use of it. Another budget or resource than it has is `Conflict`. With `own` it is a runtime beside that one with a
    budget of its own, and `close` ends it: `Busy` while a client is open. Other errors: `Invalid`, `NotFound`, `DriverFailed`."""

    _kind = "runtime"

    def __init__(self, device: str = "host", budget: int | str | None = None, resource: str | None = None, *, own: bool = False) -> None:
        options = s.weir_runtime_options(budget=0 if budget is None else parse_size(budget), resource=to_bytes(resource))
        out = c.c_void_p()
        make = lib.weir_runtime_create if own else lib.weir_runtime_get
        check(make(to_bytes(device), c.byref(options), c.byref(out)))
        self._own = own
        super().__init__(out.value or 0, device)

    def _end(self, pointer: int) -> None:
        if self._own:
            check(lib.weir_runtime_destroy(pointer))

    def __del__(self) -> None:
        if getattr(self, "_own", False):
            super().__del__()

    def _details(self) -> s.weir_runtime_details:
        details = s.weir_runtime_details()
        with self._use() as pointer:
            check(lib.weir_runtime_info(pointer, c.byref(details)))
        return details

    @property
    def device(self) -> str:
        """The device's name, such as "cuda:0"."""
        return text(self._details().device)

    @property
    def resource(self) -> str:
        """The stack that serves the clients, such as "budget(mapped)"."""
        return text(self._details().resource)

    @property
    def budget(self) -> int:
        """Bytes that all clients together may hold. It can be set: cached memory is given up as far as needed, and
        `OutOfMemory` leaves the old budget where clients have more than the new one."""
        return int(self._details().budget)

    @budget.setter
    def budget(self, budget: int | str) -> None:
        with self._use() as pointer:
            check(lib.weir_runtime_set_budget(pointer, parse_size(budget)))

    def client(self, name: str, *, maximum: int | str = 0, guarantee: int | str = 0, scrub: Scrub = Scrub.NEVER) -> Client:
        """Opens an account; see `Client`."""
        return Client(self, name, maximum=maximum, guarantee=guarantee, scrub=scrub)

    def drain(self) -> int:
        """Makes frees final; answers the bytes that were freed and are not final yet, 0 where all work was waited for."""
        left = c.c_uint64()
        with self._use() as pointer:
            check(lib.weir_runtime_drain(pointer, c.byref(left)))
        return left.value

    def stats(self) -> RuntimeStats:
        """One consistent view of the runtime and of its clients."""
        raw, count, room = s.weir_stats(), c.c_size_t(), 16
        with self._use() as pointer:
            while True:
                clients = (s.weir_client_stats * room)()
                clients[0].struct_size = c.sizeof(s.weir_client_stats)
                check(lib.weir_snapshot(pointer, c.byref(raw), clients, room, c.byref(count)))
                if count.value <= room:
                    return runtime_stats(raw, [client_stats(each) for each in clients[:count.value]])
                room = count.value + 16


class Client(Handle):
    """The account of one engine or model on one runtime.

    `name` is how reports and refusals call it, at most 63 bytes. `maximum` is the most it may have live, pending and promised;
    0: the budget. `guarantee` are bytes that are never lent to another client. Both are bytes or texts such as "512MiB".
    `OutOfMemory` when the guarantees and what others have live would exceed the budget; `Invalid` for a guarantee above the
    maximum or an empty name. `close` is `Busy` while it has blocks."""

    _kind = "client"

    def __init__(self, runtime: Runtime, name: str, *, maximum: int | str = 0, guarantee: int | str = 0,
                 scrub: Scrub = Scrub.NEVER) -> None:
        options = s.weir_client_options(name=to_bytes(name), maximum=parse_size(maximum), guaranteed=parse_size(guarantee), scrub=scrub)
        out = c.c_void_p()
        with runtime._use() as pointer:
            check(lib.weir_client_create(pointer, c.byref(options), c.byref(out)))
        self.runtime = runtime
        self._on_host = runtime.device == "host"
        super().__init__(out.value or 0, name)

    def _end(self, pointer: int) -> None:
        check(lib.weir_client_destroy(pointer))

    @property
    def name(self) -> str:
        return self._label

    def set_limits(self, *, maximum: int | str, guarantee: int | str) -> None:
        """Changes the limits while in use, in bytes; `OutOfMemory` with the numbers where they do not fit, and nothing changes."""
        with self._use() as pointer:
            check(lib.weir_client_set_limits(pointer, parse_size(guarantee), parse_size(maximum)))

    def alloc(self, bytes: int | str, *, memory_class: Class = Class.OTHER, kind: Kind = Kind.DEVICE, alignment: int = 0,
              tag: str | None = None, zeroed: bool = False, wait: bool = True) -> Block:
        """Allocates a block of so many bytes, ready when this returns.

        `alignment` is a power of two up to 2 MiB; 0 is 256. With `wait` pending frees are waited for, up to the option `wait`,
        before it is refused. Errors: `OutOfMemory`, whose `refusal` has the numbers, `Invalid`, `Unsupported` for a kind that the
        device has not, `DriverFailed`."""
        size = parse_size(bytes)
        if size == 0:
            raise ValueError("a block has at least one byte")
        request = s.weir_request(bytes=size, alignment=alignment, memory_class=memory_class, kind=kind, tag=to_bytes(tag),
                                 flags=(s.ALLOC_ZEROED if zeroed else 0) | (0 if wait else s.ALLOC_NO_WAIT))
        out = s.weir_block()
        with self._use() as pointer:
            check(lib.weir_alloc_with(pointer, c.byref(request), c.byref(out)))
        return Block(self, out, size, self._on_host or kind != Kind.DEVICE)

    def stats(self) -> ClientStats:
        """This client's line of `Runtime.stats`."""
        raw = s.weir_client_stats()
        with self._use() as pointer:
            check(lib.weir_client_info(pointer, c.byref(raw)))
        return client_stats(raw)


class Block(Handle):
    """Memory of a client, from `Client.alloc`; `close` frees it, at once.

    `close` is BufferError while NumPy arrays or slices made from `memory` are alive; the memoryview itself is released."""

    _kind = "block"

    def __init__(self, client: Client, block: s.weir_block, size: int, addressable: bool) -> None:
        self.client = client
        self.bytes = size  # as asked for
        self._block = block
        self._addressable = addressable
        self._view: weakref.ref[memoryview] | None = None
        self._array: weakref.ref[Any] | None = None
        super().__init__(block.pointer, f"of {size} bytes of {client.name}")

    @property
    def pointer(self) -> int:
        """Its address, in the device's memory. `Closed` when it was freed."""
        with self._use() as pointer:
            return pointer

    @property
    def memory(self) -> memoryview:
        """Its bytes, to read and to write. `Unsupported` for memory that the processor cannot address."""
        with self._use() as pointer:
            if not self._addressable:
                raise Unsupported(f"the {self._kind} {self._label} is the device's memory, which the processor cannot address")
            with self._lock:
                view = self._view() if self._view is not None else None
                if view is None:
                    array: Any = self._array() if self._array is not None else None
                    if array is None:
                        array = (c.c_ubyte * self.bytes).from_address(pointer)
                        array.block = self  # what is made of it keeps the block
                        self._array = weakref.ref(array)
                    view = memoryview(array).cast("B")
                    self._view = weakref.ref(view)
                return view

    def close(self) -> None:
        view = self._view() if self._view is not None and not self.closed else None
        if view is not None:
            view.release()  # BufferError while an array is made of it
            self._view = view = None
        if self._array is not None and self._array() is not None:
            raise BufferError(f"slices of the memory of the {self._kind} {self._label} are alive")
        super().close()

    def _end(self, pointer: int) -> None:
        with self.client._use() as client:
            check(lib.weir_free_block(client, self._block, HOST_STREAM))
