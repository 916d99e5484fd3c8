"""A pool of models: more than the device can hold, called by name (weir/pool.h)."""

from __future__ import annotations

import ctypes as c
import dataclasses
import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from ._c import pooling as p
from ._c import structures as s
from ._c.library import check, lib, text, to_bytes
from ._handle import Handle, once
from ._later import inside
from ._numbers import RANGES, SECOND, nanoseconds, whole
from .call import Call
from .errors import Busy, Invalid, NotFound
from .model import Model
from .names import Class, Status
from .outputs import Outputs
from .runtime import Runtime
from .sizes import parse_size
from .stream import Run
from .tensors import settings_array

_ids = itertools.count(1)


@dataclasses.dataclass(frozen=True)
class Variant:
    """Another way to have a model, that gives something up: settings that replace or join those of the model."""

    settings: Mapping[str, object]
    peak: int | str = 0  # bytes, or a text such as "2GiB"; 0: the engine is asked
    context: int = 0  # tokens, for people and refusals
    layers: int = -1  # on the device, for people
    gives: str = "context"  # the step that it is: "context" or "layers"


@dataclasses.dataclass(frozen=True)
class PoolEvent:
    """Something that happened in a pool."""

    kind: str  # "loading", "loaded", "failed", "suspended", "resumed", "unloaded", "refused", "decided", ...
    time: float  # seconds of the system's monotonic clock
    name: str  # "" where no model is meant
    version: str
    device: str
    bytes: int
    detail: str
    line: str  # of "decided": a line of the log of decisions


@dataclasses.dataclass(frozen=True)
class Receipt:
    """What has become of the memory of a model that was unloaded; bytes."""

    complete: bool  # all came back
    before: Mapping[Class, int]
    returned: int
    kept: int  # what its account still has
    elsewhere: int  # what others have more than when it was loaded
    holders: tuple[tuple[str, int], ...]  # who has it, the most bytes first
    drain: float  # seconds until its last lease had ended
    unload: float  # seconds that the unload took


@dataclasses.dataclass(frozen=True)
class PoolModel:
    """A model of a pool, as it is now. Sizes are bytes, times seconds."""

    name: str
    version: str
    device: str  # that it is on, or was last
    state: str  # "unloaded", "loading", "loaded", "suspending", "suspended", "resuming", "unloading", "failed"
    why: str  # of one that failed, or is not well
    current: bool  # it gets the requests of its name
    pinned: bool
    variant: int  # that it was loaded as last; 0: with all
    predicted_peak: int
    measured_peak: int  # 0: it was not loaded yet
    measured: Mapping[Class, int]
    taken: int  # of the device now
    promised: int  # of that, for requests that run
    running: int
    waiting: int
    expires: float | None  # until it is suspended or unloaded for lack of requests; None: not so
    load_time: float
    resume_time: float
    loads: int
    resumes: int
    suspends: int
    evictions: int
    failures: int
    can_suspend: bool
    progress: float  # of a load that is under way, from 0 to 1; else 0


@dataclasses.dataclass(frozen=True)
class PoolUsage:
    """What a pool has of a device, in bytes."""

    device: str
    ceiling: int  # what it may take now
    taken: int
    waiting: int  # requests of the pool, on all devices


class Lease(Model):
    """A model of a pool while the lease lasts: it is called as any `Model`, and stays where it is. Closing it, or leaving its `with`,
    gives it back; its streams and outputs end before."""

    _kind = "lease"

    def __init__(self, pool: Pool, name: str, pointer: int, request: p.weir_pool_request) -> None:
        self._runs: set[Run] = set()
        self._runtime = None
        self._kept: weakref.WeakValueDictionary[int, Outputs] = weakref.WeakValueDictionary()
        self._prepared: weakref.WeakValueDictionary[int, Call] = weakref.WeakValueDictionary()
        self._pool = pool
        self._model: int | None = None
        self._gone = False
        answer = p.weir_pool_answer()
        Handle.__init__(self, name)
        self._make(lib.weir_pool_acquire, pointer, c.byref(request), c.byref(answer), c.byref(self._out))
        self.waited = answer.waited / SECOND  # seconds
        self.version = text(lib.weir_lease_version(self._out))
        self._model = lib.weir_lease_model(self._out)
        self._place = self._where()
        self._learn()

    @property
    def _pointer(self) -> int | None:
        """The model's. Until that is known it is the lease's, so that it can be closed."""
        return None if self._gone else self._model or self._out.value

    @_pointer.setter
    def _pointer(self, pointer: int | None) -> None:
        self._gone = pointer is None

    def _end(self, pointer: int, told: list[Any]) -> None:
        once(told, lib.weir_lease_release, self._out.value)

    def suspend(self, **_options: Any) -> NoReturn:
        """Raises `Busy`: a pool suspends its models itself (`Pool.suspend`)."""
        raise Busy(f"{self._label} is leased: its pool suspends and resumes it")

    def resume(self, **_options: Any) -> NoReturn:
        """Raises `Busy`, for the same reason."""
        raise Busy(f"{self._label} is leased: its pool suspends and resumes it")


class Pool(Handle):
    """Models by name, loaded when they are asked for, suspended or unloaded for each other where there is no room for all.

    `devices` are names or runtimes (None: the host); models may be on them. `queue` requests may wait at once, each for at most
    `longest_wait` seconds; `passing`: for so many seconds requests for models that are here go before one that needs another one's
    place; `retry`: seconds until a model that could not be loaded is tried again; `host_bytes`: of the host for suspended models
    (None: as many as its budget has; 0: none is suspended). `threads` loads and unloads at once. `event` is told of each
    `PoolEvent`, one at a time, on a thread of the pool's; what it raises is printed, and ignored.

    `close` refuses what waits, and unloads all models: `Busy` while leases are out."""

    _kind = "pool"

    def __init__(self, devices: Iterable[str | Runtime] | None = None, *, queue: int = 0, longest_wait: float | None = None,
                 passing: float | None = None, retry: float | None = None, host_bytes: int | str | None = None, threads: int = 0,
                 event: Callable[[PoolEvent], object] | None = None) -> None:
        given, self._devices = list(devices) if devices is not None else [], []
        list_ = (p.weir_pool_device * len(given))()
        options = p.weir_pool_options(devices=list_, device_count=len(given), queue=queue, longest_wait=_time(longest_wait),
                                      passing=_limit(passing), retry=_limit(retry), threads=threads,
                                      host_bytes=0 if host_bytes is None else parse_size(host_bytes) or p.NONE)
        if event is not None:
            options.event = self._event = p.weir_pool_event_fn(_teller(event))
        super().__init__("of models")
        try:
            for place, one in zip(list_, given):
                if isinstance(one, Runtime):
                    place.runtime = one._lend()
                    self._devices.append(one)
                else:
                    place.device = to_bytes(one)
            self._make(lib.weir_pool_create, c.byref(options), c.byref(self._out))
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        while self._devices:
            self._devices.pop()._take_back()

    def _end(self, pointer: int, told: list[Any]) -> None:
        try:
            once(told, lib.weir_pool_destroy, pointer)
        finally:
            if told and told[0] != Status.BUSY:  # it is gone, also where the engine of a model has failed
                self._let_go()

    def add(self, path: str | os.PathLike[str], name: str | None = None, *, version: str | None = None, engine: str | None = None,
            device: str | None = None, devices: Iterable[str] = (), settings: Mapping[str, object] | None = None,
            variants: Iterable[Variant] = (), gives_up: Iterable[str] = (), peak: int | str = 0, guarantee: int | str = 0,
            maximum: int | str = 0, slots: int = 1, pinned: bool = False, stays: bool = False, first_run: bool = False,
            prepare: bool = False, load_now: bool = False, priority: int = 0, weight: int = 1, keep_alive: float | None = None,
            suspend_after: float | None = None, minimum_stay: float | None = None, evict_cost: float = 0) -> None:
        """Adds a model, or another `version` of one, which then takes its place without a gap. It is loaded when it is asked for, or
        `load_now`.

        `name` is what it is asked for by (None: the file's). `device` is its first device, `devices` others that it may be on.
        `variants` are ways to have it that take less, and `gives_up` the order of what is done where there is no room: some of
        "context", "layers", "suspend", "evict", "device", and "wait" at the end. `slots` leases may be out at once. Sizes are bytes,
        or texts such as "2GiB"; times are seconds: unloaded `keep_alive` and suspended `suspend_after` its last lease (None: never),
        no victim for `minimum_stay` after it came (None: 1), and `evict_cost` is added to the time that bringing it back takes.
        `prepare`: behind each load host memory for the first suspend is made ready.
        Errors: `Conflict`, `NotFound`, `Invalid`, `OutOfMemory`, and what its engine says of the file."""
        ways, chosen, others = list(variants), settings_array(settings or {}), [to_bytes(one) for one in devices]
        steps = [_step(step) for step in gives_up]
        arrays = [settings_array(way.settings) for way in ways]
        list_ = (p.weir_pool_variant * len(ways))(*(
            p.weir_pool_variant(settings=array, setting_count=len(array), peak=parse_size(way.peak), context=way.context,
                                layers=way.layers, gives=_step(way.gives)) for way, array in zip(ways, arrays)))
        spec = p.weir_pool_spec(
            name=to_bytes(name), version=to_bytes(version), path=to_bytes(path), engine=to_bytes(engine), device=to_bytes(device),
            settings=chosen, setting_count=len(chosen), variants=list_, variant_count=len(ways), peak=parse_size(peak),
            guaranteed=parse_size(guarantee), maximum=parse_size(maximum), slots=slots, pinned=pinned, stays=stays,
            first_run=first_run, load_now=load_now, priority=priority, weight=weight, keep_alive=_time(keep_alive),
            suspend_after=_time(suspend_after), minimum_stay=_limit(minimum_stay), evict_cost=nanoseconds(evict_cost),
            devices=(c.c_char_p * len(others))(*others), device_count=len(others), gives_up=(s.Enum * len(steps))(*steps),
            gives_up_count=len(steps), prepare=prepare)
        with self._use() as pointer:
            check(lib.weir_pool_add(pointer, c.byref(spec)))

    def acquire(self, name: str, *, size: int | str = 0, wait: float | None = None, priority: int = 0,
                request: int | None = None) -> Lease:
        """A lease of the model, which is loaded if it is not here. `size` are the bytes that the run will take beside the model: no
        other gets them while the lease lasts. It waits for at most `wait` seconds (None: the pool's longest wait; 0: not at all);
        `request` is a number for `cancel`. Errors: `OutOfMemory` (it can never fit), `Busy` (the queue is full, or not in time),
        `Cancelled`, `NotFound`, and what the load failed with."""
        raw = p.weir_pool_request(name=to_bytes(name), id=request or next(_ids) | 1 << 63, bytes=parse_size(size), wait=_limit(wait),
                                  priority=priority)
        with self._use() as pointer:
            return Lease(self, name, pointer, raw)

    def __call__(self, name: str, inputs: Mapping[str, Any] | str, **settings: object) -> dict[str, Any]:
        """Leases the model, runs it once as `Model.__call__` does, and gives it back."""
        with self.acquire(name) as lease:
            return lease(inputs, **settings)

    def cancel(self, request: int) -> bool:
        """Ends the waiting of requests with that number: they raise `Cancelled`, and a load that nobody else waits for is stopped.
        False: none waits."""
        number = whole(request, *RANGES[c.c_uint64], "the number of a request")
        with self._use() as pointer:
            try:
                check(lib.weir_pool_cancel(pointer, number))
            except NotFound:
                return False
        return True

    def load(self, name: str, wait: float | None = None) -> None:
        """Loads or resumes it, and waits for that for at most `wait` seconds (None: the pool's longest wait)."""
        self._by_hand(lib.weir_pool_load, name, wait)

    def suspend(self, name: str, wait: float | None = None) -> None:
        """Suspends it when its leases have ended; `Unsupported` where its engine cannot. `wait` as `load`."""
        self._by_hand(lib.weir_pool_suspend, name, wait)

    def unload(self, name: str, wait: float | None = None) -> Receipt:
        """Unloads it when its leases have ended. `wait` as `load`."""
        receipt = p.weir_pool_receipt()
        with self._use() as pointer:
            check(lib.weir_pool_unload(pointer, to_bytes(name), _time(wait), c.byref(receipt)))
        return _receipt(receipt)

    def remove(self, name: str, wait: float = 0) -> Receipt:
        """Takes it out of the pool: what waits for it is refused, leases are waited for up to `wait` seconds: `Busy` if some are still
        out, and it goes when they end."""
        receipt = p.weir_pool_receipt()
        with self._use() as pointer:
            check(lib.weir_pool_remove(pointer, to_bytes(name), nanoseconds(wait), c.byref(receipt)))
        return _receipt(receipt)

    def pin(self, name: str, pinned: bool = True) -> None:
        """Whether it stays whatever others want, from here on."""
        with self._use() as pointer:
            check(lib.weir_pool_pin(pointer, to_bytes(name), pinned))

    def _by_hand(self, call: Callable[..., int], name: str, wait: float | None) -> None:
        with self._use() as pointer:
            check(call(pointer, to_bytes(name), _time(wait)))

    def models(self) -> tuple[PoolModel, ...]:
        """All models in the order in which they were added, at one moment."""
        count, room = c.c_size_t(), 16
        with self._use() as pointer:
            while True:
                entries = (p.weir_pool_entry * room)()
                entries[0].struct_size = c.sizeof(p.weir_pool_entry)
                check(lib.weir_pool_list(pointer, entries, room, c.byref(count)))
                if count.value <= room:
                    return tuple(_model(one) for one in entries[:count.value])
                room = count.value + 8

    def usage(self) -> tuple[PoolUsage, ...]:
        """What it has of each of its devices."""
        found: list[PoolUsage] = []
        with self._use() as pointer:
            while True:
                raw = p.weir_pool_usage()
                try:
                    check(lib.weir_pool_usage_info(pointer, len(found), c.byref(raw)))
                except NotFound:
                    return tuple(found)
                found.append(PoolUsage(text(raw.device), raw.ceiling, raw.taken, raw.waiting))


def _time(seconds: float | None) -> int:
    """Nanoseconds; None is 0, which stands for what is usual, and a time of nothing the shortest one."""
    return 0 if seconds is None else nanoseconds(seconds) or 1


def _limit(seconds: float | None) -> int:
    """The same, of a limit for which 0 is none at all."""
    return 0 if seconds is None else nanoseconds(seconds) or p.NONE


def _step(word: str) -> int:
    if word not in p.STEPS:
        raise Invalid(f"{word!r} is no step of what may be given up: {', '.join(p.STEPS)}")
    return p.STEPS.index(word)


def _teller(event: Callable[[PoolEvent], object]) -> Callable[[Any, int | None], None]:
    def tell(raw: Any, _user: int | None) -> None:
        it = raw.contents
        with inside:
            kind = p.EVENTS[it.kind] if it.kind < len(p.EVENTS) else "?"
            event(PoolEvent(kind, it.time / SECOND, text(it.name), text(it.version), text(it.device), it.bytes, text(it.detail),
                            text(it.line)))
    return tell


def _receipt(raw: p.weir_pool_receipt) -> Receipt:
    return Receipt(raw.complete, {kind: int(raw.before[kind]) for kind in Class}, raw.returned, raw.kept, raw.elsewhere,
                   tuple((text(one.client), one.bytes) for one in raw.holder[:raw.holders]), raw.drain_ms / 1e3, raw.unload_ms / 1e3)


def _model(raw: p.weir_pool_entry) -> PoolModel:
    return PoolModel(text(raw.name), text(raw.version), text(raw.device), text(lib.weir_pool_state_name(raw.state)), text(raw.why),
                     raw.current, raw.pinned, raw.variant, raw.predicted_peak, raw.measured_peak,
                     {kind: int(raw.measured[kind]) for kind in Class}, raw.taken, raw.promised, raw.running, raw.waiting,
                     None if raw.expires == p.NONE else raw.expires / SECOND, raw.load_time / SECOND, raw.resume_time / SECOND,
                     raw.loads, raw.resumes, raw.suspends, raw.evictions, raw.failures, raw.can_suspend, raw.progress)


__all__ = ["Lease", "Pool", "PoolEvent", "PoolModel", "PoolUsage", "Receipt", "Variant"]
