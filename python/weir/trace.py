"""Traces: what happens on a runtime, event by event, read by the program or written to a file."""

from __future__ import annotations

import ctypes as c
import dataclasses
import os

from ._c import inspection as i
from ._c.library import check, lib, text, to_bytes
from ._handle import Handle, once
from .names import Class, Status
from .runtime import Runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMATS = {"binary": 0, "csv": 1}
BATCH = 1024


@dataclasses.dataclass(frozen=True)
class Event:
    """One event; include/weir/trace.h says what each action means."""

    action: str  # "allocate", "deallocate", "reap", "refuse", ...
    memory_class: Class
    order: int  # strictly increasing from 1; a gap is what was lost
    nanoseconds: int  # monotonic clock
    thread: int
    pointer: int
    bytes: int  # as requested
    charged: int
    generation: int
    stream: int
    live: int  # the runtime's, after this event
    pending: int
    held: int
    client: str
    tag: str
    result: Status | int  # what the call answered
    access: int  # of a use: 1 read, 2 write
    device: str
    object: int
    other: int


class Trace(Handle):
    """A trace of a runtime, which records until it is closed. Without a file `read` takes the events; at most `capacity` of them wait,
    and those beyond are `lost`. What is live at its start comes first.

    `file` is written as `format` says: "binary", for `weir simulate --trace` and `weir replay`, or "csv", RMM's columns. `Busy` where
    the runtime has a trace already."""

    _kind = "trace"

    def __init__(self, runtime: Runtime, file: str | os.PathLike[str] | None = None, *, format: str = "binary", capacity: int = 0) -> None:
        if format not in FORMATS:
            raise ValueError(f"{format!r} is no format of traces: {', '.join(FORMATS)}")
        sink = i.weir_sink()
        options = i.weir_trace_options(capacity=capacity)
        self.runtime = runtime
        super().__init__(f"of {runtime._label}")
        with runtime._use() as pointer:
            if file is not None:
                check(lib.weir_sink_file(to_bytes(file), FORMATS[format], c.byref(sink)))
                options.sinks, options.sink_count = c.pointer(sink), 1
            told: list[Any] = []
            try:
                once(told, lib.weir_trace_create, pointer, c.byref(options), c.byref(self._out))
                check(told[0])
            except BaseException:
                if self._pointer is not None:
                    self.close()
                elif sink.close:
                    c.CFUNCTYPE(c.c_int, c.c_void_p)(sink.close)(sink.user)
                raise

    def _end(self, pointer: int, told: list[Any]) -> None:
        once(told, lib.weir_trace_destroy, pointer)

    def read(self) -> list[Event]:
        """The events since the last look, oldest first. `Conflict` for a trace with a file. One thread reads."""
        raw, count, events = (i.weir_event * BATCH)(), c.c_size_t(BATCH), []
        raw[0].struct_size = c.sizeof(i.weir_event)
        with self._use() as pointer:
            while count.value == BATCH:
                check(lib.weir_trace_read(pointer, raw, BATCH, c.byref(count)))
                events += [_event(each) for each in raw[:count.value]]
        return events

    def flush(self) -> None:
        """What happened so far is in the file then."""
        with self._use() as pointer:
            check(lib.weir_trace_flush(pointer))

    @property
    def lost(self) -> int:
        """Events that nobody read in time."""
        details = i.weir_trace_details()
        with self._use() as pointer:
            check(lib.weir_trace_info(pointer, c.byref(details)))
        return int(details.lost)


def _event(raw: i.weir_event) -> Event:
    known = raw.result in set(Status)
    return Event(i.name_of(i.NAMES_ACTION, raw.action), Class(raw.memory_class), raw.order, raw.nanoseconds, raw.thread, raw.pointer or 0,
                 raw.bytes, raw.charged, raw.generation, raw.stream.id, raw.live, raw.pending, raw.held, text(raw.client), text(raw.tag),
                 Status(raw.result) if known else raw.result, raw.access, text(raw.device), raw.object, raw.other.id)
