"""The history of PyTorch's allocations, after `weir.torch.use`: what `torch.cuda.memory._record_memory_history` asks for, the traces in
snapshots, and observers of refusals. Events are kept in C (src/seams/torch_history.c); this module makes PyTorch's words of them."""

from __future__ import annotations

import atexit
import contextlib
import ctypes as c
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from . import errors
from ._c.seams import (TorchObserver, address, seams, wseam_torch_event, wseam_torch_frame, wseam_torch_history,
                       wseam_torch_interpreter)
from ._later import ignored

Observer = Callable[[int, int, int, int], object]

ACTIONS = ("alloc", "free_requested", "free_completed", "oom", "snapshot")  # WSEAM_TORCH_ALLOC and those after it
SEGMENTS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")  # PyTorch's other ones, which weir has not
CONTEXTS = (None, "state", "alloc", "all")  # WSEAM_TORCH_OF_NOTHING and those after it
MOST = 2**64 - 1
_by_offset = hasattr(c.pythonapi, "PyFrame_GetLasti")  # from Python 3.11 on: the line is looked up when it is asked for


def _interpreter() -> wseam_torch_interpreter:
    names = ("Py_IsInitialized", "PyGILState_Ensure", "PyGILState_Release", "PyThreadState_Get", "PyThreadState_GetFrame",
             "PyFrame_GetBack", "PyFrame_GetCode", "PyFrame_GetLasti" if _by_offset else "PyFrame_GetLineNumber", "Py_DecRef")
    return wseam_torch_interpreter(*(address(getattr(c.pythonapi, name)) for name in names))


class _Symbol(c.Structure):
    _fields_ = [("file", c.c_char_p), ("base", c.c_void_p), ("name", c.c_char_p), ("address", c.c_void_p)]


_dladdr = c.CDLL(None).dladdr
_dladdr.argtypes = [c.c_void_p, c.POINTER(_Symbol)]


def _symbol(address_: int) -> tuple[str, str]:
    """The function that has this address and its file, as far as the dynamic symbols tell: "??" where they do not."""
    found = _Symbol()
    if not _dladdr(address_, c.byref(found)):
        return "??", "??"
    return _demangled(found.name) if found.name else "??", (found.file or b"??").decode(errors="replace")


def _demangled(name: bytes) -> str:
    """Of a name of C++ what a program has written; other names as they are."""
    if name.startswith(b"_Z"):
        with contextlib.suppress(OSError, AttributeError):
            demangle = c.CDLL("libstdc++.so.6").__cxa_demangle
            demangle.restype, demangle.argtypes = c.c_void_p, [c.c_char_p, c.c_void_p, c.c_void_p, c.POINTER(c.c_int)]
            status = c.c_int(1)
            text = demangle(name, None, None, c.byref(status))
            if text:
                whole = c.string_at(text)
                _free(text)
                return whole.decode(errors="replace")
    return name.decode(errors="replace")


_free = c.CDLL(None).free
_free.argtypes, _free.restype = [c.c_void_p], None
_own_file = _symbol(address(seams.wseam_torch_alloc))[1]
_interpreters_file = _symbol(address(c.pythonapi.Py_IsInitialized))[1]
_line_of = c.PYFUNCTYPE(c.c_int, c.py_object, c.c_int)(address(c.pythonapi.PyCode_Addr2Line))


class Reading:
    """What the history has, for one snapshot: `with`. Stacks that were read stay until its end, and are told as PyTorch tells them: from
    the innermost frame outward a list of `name`, `filename` and `line`, which all that have the stack share."""

    def __init__(self) -> None:
        self._stacks: dict[int, list[dict[str, Any]]] = {}
        self._frames: dict[tuple[int, int], dict[str, Any]] = {}
        self._kept: list[tuple[Any, int]] = []
        self.on = bool(seams.wseam_torch_history_on())

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        for events, count in self._kept:
            seams.wseam_torch_history_done(events, count)

    def trace(self, device: int, pool: tuple[int, int] | None = None) -> list[dict[str, Any]]:
        """Events of a device, the oldest one first; of one pool where that is given."""
        events, count = (wseam_torch_event * 0)(), seams.wseam_torch_history_read(device, None, 0) if self.on else 0
        while count > len(events):  # it may have grown meanwhile
            events = (wseam_torch_event * (count + count // 8 + 16))()
            count = seams.wseam_torch_history_read(device, events, len(events))
        self._kept.append((events, count))
        return [self._entry(events[at]) for at in range(count) if pool is None or tuple(events[at].pool) == pool]

    def frames_of(self, pointer: int) -> list[dict[str, Any]]:
        """Where the block that begins there was allocated; empty where that is not known."""
        event = (wseam_torch_event * 1)()
        if not self.on or not seams.wseam_torch_history_of(pointer, event):
            return []
        self._kept.append((event, 1))
        return self._told(event[0])

    def _entry(self, event: wseam_torch_event) -> dict[str, Any]:
        action = ACTIONS[event.action]
        return {"action": action, "device_free" if action == "oom" else "addr": event.address, "size": event.bytes,
                "stream": event.native, "time_us": event.microseconds, "pool_id": tuple(event.pool), "frames": self._told(event)}

    def _told(self, event: wseam_torch_event) -> list[dict[str, Any]]:
        if not event.stack:
            return []
        found = self._stacks.get(event.stack)
        if found is None:
            told = seams.wseam_torch_stack_frames(event.stack).contents
            found = self._stacks[event.stack] = self._merged([self._frame(frame) for frame in told.frames[:told.count]])
        return found

    @staticmethod
    def _merged(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Frames of C and C++ without weir's own, and those of Python where the interpreter runs them: its frames stand for these."""
        python = [frame for frame in frames if frame["line"]]
        native = [frame for frame in frames if not frame["line"] and frame["filename"] != _own_file]
        inside = next((at for at, frame in enumerate(native) if frame["filename"] == _interpreters_file), len(native))
        return native[:inside] + python + [frame for frame in native[inside:] if frame["filename"] != _interpreters_file]

    def _frame(self, frame: wseam_torch_frame) -> dict[str, Any]:
        key = frame.code, frame.place
        found = self._frames.get(key)
        if found is None and not frame.code:
            name, file = _symbol(frame.place)
            found = self._frames[key] = {"name": name, "filename": file, "line": 0}
        elif found is None:
            code = c.cast(frame.code, c.py_object).value
            line = _line_of(code, frame.place) if _by_offset else frame.place
            found = self._frames[key] = {"name": code.co_name, "filename": code.co_filename, "line": line}
        return found


class History:
    """Turns the history on and off, and has the observers; one for the process. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._observers: list[Observer] = []
        self._called = TorchObserver(self._refused)
        self._ends = False

    # ---- recording ----

    def record(self, enabled: str | None = "all", context: str | None = "all", stacks: str = "all", max_entries: int = sys.maxsize,
               clear_history: bool = False, _compile_context: bool = False, _annotations: bool = False,
               skip_actions: Iterable[str] = (), *_: Any) -> None:
        """`torch._C._cuda_record_memory_history`. `max_entries` are events of each device. `Invalid` for what PyTorch has no meaning for.
        None ends the history and forgets all of it. With `stacks="all"` frames of C and C++ are there, too, without lines."""
        for what, value, known in (("enabled", enabled, (None, "state", "all")), ("context", context, CONTEXTS),
                                   ("stacks", stacks, ("python", "all"))):
            if value not in known:
                raise errors.Invalid(f"{what} is {value!r}: expected {', '.join(map(repr, known))}")
        skipped = list(skip_actions)
        for action in skipped:
            if action not in ACTIONS + SEGMENTS:
                raise errors.Invalid(f"skip_actions has {action!r}: expected {', '.join(map(repr, ACTIONS + SEGMENTS))}")
        self._end_with_the_interpreter()
        if enabled is None:
            seams.wseam_torch_history_end()
            return
        entries, whose = min(max(1, max_entries), MOST), CONTEXTS.index(context)
        if enabled == "state":  # no events, nor frames for them
            entries, whose = 0, min(whose, CONTEXTS.index("state"))
        options = wseam_torch_history(_interpreter(), whose, bool(clear_history), stacks == "all",
                                      sum(1 << at for at, action in enumerate(ACTIONS) if action in skipped), entries)
        seams.wseam_torch_history_begin(c.byref(options))

    def record_as_before(self, enabled: bool, record_context: bool = True, max_entries: int = 1, record_trace_context: bool = False,
                         cpp: bool = False, clear_history: bool = False, *more: Any) -> None:
        """`torch._C._cuda_record_memory_history_legacy`: what `_record_memory_history(True)` asks for."""
        context = "alloc" if record_trace_context else "state" if record_context else None
        self.record("all" if enabled else None, context, "all" if cpp else "python", max_entries, clear_history, *more)

    def _end_with_the_interpreter(self) -> None:
        """No thread may ask an interpreter for frames that is going away."""
        with self._lock:
            if not self._ends:
                self._ends = True
                atexit.register(self._end)

    @staticmethod
    def _end() -> None:
        seams.wseam_torch_history_end()
        seams.wseam_torch_observe(TorchObserver())

    # ---- observers ----

    def observe(self, observer: Observer) -> None:
        """`torch._C._cuda_attach_out_of_memory_observer`: from now on it is called at each refusal, on the thread that has asked and
        before the error, with the device, the bytes that were asked for, the budget, and the bytes that weir's limits leave to
        PyTorch. What it raises is printed, as of a finaliser, and the error stays weir's."""
        if not callable(observer):
            raise TypeError(f"an observer is called: {observer!r} cannot be")
        self._end_with_the_interpreter()
        with self._lock:
            self._observers = [*self._observers, observer]
        seams.wseam_torch_observe(self._called)

    def _refused(self, device: int, size: int, total: int, left: int) -> None:
        for observer in self._observers:
            try:
                observer(device, size, total, left)
            except Exception as error:
                ignored(error)
