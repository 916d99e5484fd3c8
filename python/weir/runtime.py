"""Runtimes, clients and blocks: a device's budget, accounts under it, and memory."""

from __future__ import annotations

import ctypes as c
import math
import os
import weakref

from ._c import structures as s
from ._c.library import check, lib, text, to_bytes
from . import _streams
from ._numbers import RANGES, nanoseconds, whole
from ._handle import Handle, once
from ._place import Place
from .errors import Invalid, Unsupported
from .names import Class, Kind, Scrub, Type
from .sizes import parse_budget, parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterable
    from typing import Any

    from .outside import Outside, Yielded
    from .residency import Preparation, Residency
    from .statistics import ClientStats, RuntimeStats
    from .tensor import Tensor
    from .trace import Trace

HOST_STREAM = s.weir_stream(0)
MOST_EXTENT = RANGES[c.c_int64][1]


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
        options = s.weir_runtime_options(budget=parse_budget(budget), resource=to_bytes(resource))
        self._own = own
        super().__init__(device)
        self._make(lib.weir_runtime_create if own else lib.weir_runtime_get, to_bytes(device), c.byref(options), c.byref(self._out))

    def _end(self, pointer: int, told: list[Any]) -> None:
        if self._own:
            count = c.c_size_t()
            check(lib.weir_snapshot(pointer, c.byref(s.weir_stats()), None, 0, c.byref(count)))
            if not count.value:  # else it stays, and they may be in use
                _streams.forget(pointer)
            once(told, lib.weir_runtime_destroy, pointer)

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

    def trace(self, file: str | os.PathLike[str] | None = None, *, format: str = "binary", capacity: int = 0) -> Trace:
        """Starts recording; see `Trace`."""
        from .trace import Trace
        return Trace(self, file, format=format, capacity=capacity)

    def drain(self) -> int:
        """Makes frees final; answers the bytes that were freed and are not final yet, 0 where all work was waited for."""
        left = c.c_uint64()
        with self._use() as pointer:
            check(lib.weir_runtime_drain(pointer, c.byref(left)))
        return left.value

    def watch_outside(self, reserve: int | str = 0, *, by_hand: bool = False) -> None:
        """Watches what other processes take of the device, or changes how: `reserve` bytes are kept free for them (0: a 32nd of the
        device), and filled up again by cached memory, then by idle clients (`Client.idle`), then by pressure callbacks. Meanwhile the
        budget is lower; it rises again when the others have gone.

        A thread looks, every 50 ms while nothing moves; with `by_hand` the program does, by `look_outside`. `SystemFailed`: there is
        no thread, or no host memory."""
        options = s.weir_outside_options(reserve=parse_size(reserve), by_hand=by_hand)
        with self._use() as pointer:
            check(lib.weir_outside_watch(pointer, c.byref(options)))

    def end_outside(self) -> None:
        """Ends that, and what `yield_` was asked for: the budget is again what the program has set."""
        with self._use() as pointer:
            check(lib.weir_outside_end(pointer))

    @property
    def outside(self) -> Outside:
        """What was seen last of other processes; this looks at nothing."""
        from .outside import outside
        raw = s.weir_outside()
        with self._use() as pointer:
            check(lib.weir_outside_info(pointer, c.byref(raw)))
        return outside(raw)

    def look_outside(self) -> Outside:
        """Looks once: gives back what the reserve lacks, and moves the budget. `Invalid` where the device is not watched, `Busy` inside a
        pressure callback, `DriverFailed`; these change nothing."""
        from .outside import outside
        raw = s.weir_outside()
        with self._use() as pointer:
            check(lib.weir_outside_look(pointer, c.byref(raw)))
        return outside(raw)

    def yield_(self, bytes: int | str, *, hold: float | None = None, wait: float | None = None) -> Yielded:
        """Makes so many bytes free on the device for another process, beside the reserve; what is free already counts. 0 takes an
        earlier call back.

        For `hold` seconds (None: 10), or until others have taken them, this process does not. `wait` are the seconds that the call
        waits for what leaves by other threads, such as a pool's models (None: 0.25). What cannot be given is no error: `lacks` of the
        answer. Errors change nothing: `Busy` inside a pressure callback, `DriverFailed`, `SystemFailed`."""
        from .outside import yielded
        options = s.weir_yield_options(bytes=parse_size(bytes), hold=_limit(hold, "a hold"), wait=_limit(wait, "a wait"))
        raw = s.weir_yielded()
        with self._use() as pointer:
            check(lib.weir_yield(pointer, c.byref(options), c.byref(raw)))
        return yielded(raw)

    def _repr_html_(self) -> str:
        from . import picture
        return picture.gone("runtime", self._label) if self.closed else picture.of_runtime(self._label, self.stats())

    def stats(self) -> RuntimeStats:
        """One consistent view of the runtime and of its clients."""
        from .statistics import client_stats, runtime_stats
        raw, count, room = s.weir_stats(), c.c_size_t(), 16
        with self._use() as pointer:
            while True:
                clients = (s.weir_client_stats * room)()
                clients[0].struct_size = c.sizeof(s.weir_client_stats)
                check(lib.weir_snapshot(pointer, c.byref(raw), clients, room, c.byref(count)))
                if count.value <= room:
                    return runtime_stats(raw, [client_stats(each) for each in clients[:count.value]])
                room = count.value + 16


def _limit(seconds: float | None, what: str) -> int:
    """Nanoseconds. None: the library's own. Nothing is the shortest time."""
    return 0 if seconds is None else max(1, nanoseconds(seconds, what))


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
        self.runtime = runtime
        super().__init__(name)
        with runtime._use() as pointer:
            self._places = {kind: Place("host", pointer) for kind in Kind}
            self._places[Kind.DEVICE] = Place(runtime.device, pointer)
            self._make(lib.weir_client_create, pointer, c.byref(options), c.byref(self._out))

    def _end(self, pointer: int, told: list[Any]) -> None:
        once(told, lib.weir_client_destroy, pointer)

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
            raise Invalid("a block has at least one byte")
        request = s.weir_request(bytes=size, alignment=alignment, memory_class=memory_class, kind=kind, tag=to_bytes(tag),
                                 flags=(s.ALLOC_ZEROED if zeroed else 0) | (0 if wait else s.ALLOC_NO_WAIT))
        with self._use() as pointer:
            return Block(self, pointer, request, self._places.get(kind, self._places[Kind.DEVICE]))

    def suspend(self, *, stay: Iterable[Class] = (), drop: Iterable[Class] = (), unwritten: Iterable[Class] = (), verify: bool = False,
                keep_guarantee: bool = False, resume_on_alloc: bool = False, wait: float | None = None,
                folder: str | os.PathLike[str] | None = None, show: bool = False, graphs: bool = False) -> Residency:
        """Takes the device's memory from under its blocks, so that everybody else may have it, and keeps their contents elsewhere.

        The blocks stay, at their addresses. Until `resume` nothing may touch them, neither work on the device nor arrays and
        memoryviews of theirs: on the host an access ends the process. Waits for the client's work, at most `wait` seconds (None: as
        long as it takes); what others do with the memory is the caller's to wait for.

        Blocks of the classes `stay` stay; contents of the classes `drop` come back as zeros; the classes `unwritten` are promised not
        to be written since the last resume, so that the copies of then are still good; `verify` looks. `keep_guarantee`: else the
        guarantee is given up meanwhile. `resume_on_alloc`: an allocation for the client resumes it; else it is `Busy`.
        `show`: where the device can, copies are shown at the addresses of what is away, and the client is used on. `graphs`: memory of
        capture pools leaves too, and no graph that was captured there is replayed until the resume. `folder` takes
        the contents; None: page-locked memory of the host, and on the host's own runtime a file in $TMPDIR or /tmp. Errors change
        nothing: `Busy`, `Unsupported` for another resource than "budget(mapped)", `OutOfMemory` of the host's runtime,
        `SystemFailed`."""
        from .residency import residency, suspend_options
        options = suspend_options(stay, drop, unwritten, verify, keep_guarantee, resume_on_alloc, wait, folder, show, graphs)
        raw = s.weir_residency()
        with self._use() as pointer:
            check(lib.weir_client_suspend(pointer, c.byref(options), c.byref(raw)))
        return residency(raw)

    def resume(self) -> None:
        """Brings it all back to the same addresses; its contents are there when this returns. `OutOfMemory` and other failures leave it
        suspended with nothing lost. One that is not suspended: nothing happens."""
        with self._use() as pointer:
            check(lib.weir_client_resume(pointer, HOST_STREAM))

    def exchange(self, comes: Client, *, stay: Iterable[Class] = (), drop: Iterable[Class] = (), unwritten: Iterable[Class] = (),
                 verify: bool = False, keep_guarantee: bool = False, resume_on_alloc: bool = False, wait: float | None = None,
                 folder: str | os.PathLike[str] | None = None) -> Residency:
        """Suspends it, with the options of `suspend`, while the suspended client `comes` is resumed, under a budget that need not hold
        both: piece by piece the one's memory passes to the other. The contents of `comes` are there when this returns.

        All or nothing: an error leaves `comes` suspended, and this client as it was, but for contents of the classes `drop`; after a
        second failure this one is suspended too, with nothing lost, which `residency` tells. `Busy` also where `comes` is not
        suspended; `OutOfMemory` where it needs more than this client gives and others leave."""
        from .residency import residency, suspend_options
        options = suspend_options(stay, drop, unwritten, verify, keep_guarantee, resume_on_alloc, wait, folder, False)
        raw = s.weir_residency()
        with self._use() as pointer, comes._use() as other:
            check(lib.weir_client_exchange(pointer, c.byref(options), other, HOST_STREAM, c.byref(raw)))
        return residency(raw)

    def idle(self, *, stay: Iterable[Class] = (), drop: Iterable[Class] = (), unwritten: Iterable[Class] = (), verify: bool = False,
             keep_guarantee: bool = False, resume_on_alloc: bool = False, wait: float | None = None,
             folder: str | os.PathLike[str] | None = None, show: bool = False) -> None:
        """Offers it to other processes (`Runtime.watch_outside`, `Runtime.yield_`, `weir yield`): until `busy` it has no work on the
        device and gets none, nothing touches its memory, and it may be suspended at any moment, with the options of `suspend`.

        What is cheapest leaves first. A second call changes the options. Errors: `Invalid`, `SystemFailed`."""
        from .residency import suspend_options
        options = suspend_options(stay, drop, unwritten, verify, keep_guarantee, resume_on_alloc, wait, folder, show)
        with self._use() as pointer:
            check(lib.weir_client_idle(pointer, c.byref(options)))

    def busy(self) -> None:
        """Takes that back, waits for a suspend that is under way, and resumes it if it has left. On failure, such as `OutOfMemory`, the
        offer is taken back, and the client is suspended."""
        with self._use() as pointer:
            check(lib.weir_client_busy(pointer, HOST_STREAM))

    def suspended(self, **options: Any) -> contextlib.AbstractContextManager[Residency]:
        """`with client.suspended():` suspends it, with the options of `suspend`, and resumes it at the end."""
        from .residency import away
        return away(lambda: self.suspend(**options), self.resume)

    @property
    def residency(self) -> Residency:
        """What is away now, and what the last suspend did."""
        from .residency import residency
        raw = s.weir_residency()
        with self._use() as pointer:
            check(lib.weir_client_residency(pointer, c.byref(raw)))
        return residency(raw)

    def prepare(self, *, stay: Iterable[Class] = (), drop: Iterable[Class] = (), wait: bool = False) -> None:
        """Has page-locked memory of the host's made in the background, for the copies of all that the client has now, so that its next
        `suspend` need not wait for that; `stay` and `drop` as there. What the suspend has not needed is given back.

        The bytes count in the host's budget, and are taken from nobody: where the host is short, less is made, as `preparation` says.
        On the host's own runtime nothing is made. `wait`: returns when all is there. Errors: `Busy` while it is suspended, `Unsupported`,
        `SystemFailed`; with `wait` also what ended it early, as `OutOfMemory`."""
        from .residency import classes
        options = s.weir_prepare_options(stay=classes(stay), drop=classes(drop), wait=wait)
        with self._use() as pointer:
            check(lib.weir_client_prepare(pointer, c.byref(options)))

    def set_overflow(self, on: bool = True, room: int = 0) -> None:
        """Weights of the granule (2 MiB on CUDA) or more that find no room on the device, or would not leave `room` bytes
        of it, begin in memory of the host's, which is shown at their addresses; `resume` brings them."""
        with self._use() as pointer:
            check(lib.weir_client_set_overflow(pointer, on, room))

    @property
    def preparation(self) -> Preparation:
        """How far that is."""
        from .residency import preparation
        raw = s.weir_preparation()
        with self._use() as pointer:
            check(lib.weir_client_preparation(pointer, c.byref(raw)))
        return preparation(raw)

    def forget_copies(self) -> int:
        """Gives up the copies that no resume needs; answers their bytes."""
        with self._use() as pointer:
            return int(lib.weir_client_forget_copies(pointer))

    def _repr_html_(self) -> str:
        from . import picture
        if self.closed:
            return picture.gone("client", self.name)
        return picture.of_client("client", self.name, self.stats(), self.runtime.budget)

    def stats(self) -> ClientStats:
        """This client's line of `Runtime.stats`."""
        from .statistics import client_stats
        raw = s.weir_client_stats()
        with self._use() as pointer:
            check(lib.weir_client_info(pointer, c.byref(raw)))
        return client_stats(raw)


class Block(Handle):
    """Memory of a client, from `Client.alloc`; `close` frees it, at once.

    Others take its bytes without a copy by DLPack, as `Tensor` says; `tensor` gives them a type and a shape. `close` is BufferError
    while what took it, or NumPy arrays or slices made from `memory`, are alive; the memoryview itself is released."""

    _kind = "block"

    def __init__(self, client: Client, account: int, request: s.weir_request, place: Place) -> None:
        self.client = client
        self.bytes: int = request.bytes  # as asked for
        self._block = s.weir_block()
        self._place = place
        self._view: weakref.ref[memoryview] | None = None
        self._array: weakref.ref[Any] | None = None
        super().__init__(f"of {request.bytes} bytes of {client.name}")
        self._make(lib.weir_alloc_with, account, c.byref(request), c.byref(self._block))

    @property
    def _pointer(self) -> int | None:
        return self._block.pointer or None

    @_pointer.setter
    def _pointer(self, pointer: int | None) -> None:
        self._block.pointer = pointer

    @property
    def pointer(self) -> int:
        """Its address, in the device's memory. `Closed` when it was freed."""
        with self._use() as pointer:
            return pointer

    @property
    def memory(self) -> memoryview:
        """Its bytes, to read and to write. `Unsupported` for memory that the processor cannot address."""
        with self._use() as pointer:
            if self._place.device != "host":
                raise Unsupported(f"the {self._kind} {self._label} is the device's memory, which the processor cannot address")
            while True:
                seen = self._view
                view = seen() if seen is not None else None
                if view is not None:
                    return view
                array: Any = self._array() if self._array is not None else None
                if array is None:
                    array = (c.c_ubyte * self.bytes).from_address(pointer)
                    array.block = self  # what is made of it keeps the block
                view = memoryview(array).cast("B")
                of_array, of_view = weakref.ref(array), weakref.ref(view)
                with self._lock:
                    first = self._view is seen  # else another thread has made them meanwhile
                    if first:
                        self._array = of_array
                        self._view = of_view
                if first:
                    return view

    def tensor(self, type: Type = Type.U8, shape: tuple[int, ...] | None = None, offset: int = 0) -> Tensor:
        """Its bytes from `offset` on as a tensor; without a shape as many elements as there are. ValueError for one that does not fit,
        or an offset that is no multiple of the element's size."""
        from .tensor import Tensor, element_bytes
        width, offset = element_bytes(type), whole(offset, 0, self.bytes, "an offset into a block, in bytes,")
        extents = ((self.bytes - offset) // width,) if shape is None else tuple(whole(each, 0, MOST_EXTENT, "an extent") for each in shape)
        if offset % width or offset + math.prod(extents) * width > self.bytes:
            raise ValueError(f"{list(extents)} of {type.name.lower()} from byte {offset} on is no tensor in {self.bytes} bytes")
        with self._use() as pointer:
            return Tensor(self, self._place, pointer + offset, type, extents)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._place.dlpack

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        return self.tensor().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Of its bytes. Nothing tells when a taker of this has done: the block has to stay open until then. That of `tensor()` tells."""
        from .tensor import Tensor
        return Tensor(self, self._place, self.pointer, Type.U8, (self.bytes,)).cuda_array(lent=False)

    def close(self) -> None:
        view = self._view() if self._view is not None and not self.closed else None
        if view is not None:
            view.release()  # BufferError while an array is made of it
            self._view = view = None
        if self._array is not None and self._array() is not None:
            raise BufferError(f"slices of the memory of the {self._kind} {self._label} are alive")
        super().close()

    def _end(self, pointer: int, told: list[Any]) -> None:
        with self.client._use() as client:
            once(told, lib.weir_free_block, client, s.weir_block(pointer, self._block.generation), HOST_STREAM)
