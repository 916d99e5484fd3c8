"""libweir-seams, through which other frameworks allocate: where it is and its functions (src/seams/seams.h). It is opened by the
modules for those frameworks alone."""

from __future__ import annotations

import ctypes as c
import os
from typing import Any

from .._numbers import declare
from .inspection import weir_gauge
from .library import PACKAGE, VERSION, lib, open_first, refusable

SONAME = f"libweir-seams.so.{VERSION}"

CurrentStream = c.CFUNCTYPE(c.c_ssize_t)


class wseam_cupy_calls(c.Structure):
    _fields_ = [("current_stream", c.c_void_p), ("stream_of", c.c_void_p), ("leave", c.c_void_p), ("come_back", c.c_void_p)]


class wseam_torch_counts(c.Structure):
    _fields_ = [("allocation", weir_gauge), ("allocated_bytes", weir_gauge), ("requested_bytes", weir_gauge),
                ("retries", c.c_uint64), ("failures", c.c_uint64), ("emptied", c.c_uint64)]


class wseam_torch_interpreter(c.Structure):
    _fields_ = [(name, c.c_void_p) for name in ("ready", "enter", "leave", "thread", "first", "outer", "code", "place", "drop")]


class wseam_torch_history(c.Structure):
    _fields_ = [("python", wseam_torch_interpreter), ("context", c.c_int), ("clear", c.c_bool), ("native", c.c_bool),
                ("skipped", c.c_uint32), ("entries", c.c_uint64)]


class wseam_torch_frame(c.Structure):
    _fields_ = [("code", c.c_void_p), ("place", c.c_int64)]


class wseam_torch_frames(c.Structure):
    _fields_ = [("count", c.c_size_t), ("frames", c.POINTER(wseam_torch_frame))]


class wseam_torch_event(c.Structure):
    _fields_ = [("action", c.c_uint32), ("device", c.c_int32), ("address", c.c_uint64), ("bytes", c.c_uint64), ("native", c.c_uint64),
                ("pool", c.c_uint64 * 2), ("microseconds", c.c_uint64), ("stack", c.c_void_p)]


TorchOpen = c.CFUNCTYPE(None, c.c_int)
TorchTraced = c.CFUNCTYPE(None, c.c_void_p, c.c_bool)
TorchObserver = c.CFUNCTYPE(None, c.c_int, c.c_uint64, c.c_uint64, c.c_uint64)


def candidates() -> list[str]:
    """The files that are tried: beside libweir, then where the dynamic linker looks."""
    folders = [os.path.dirname(lib._name)] if "/" in lib._name else []
    beside = [os.path.join(folder, SONAME) for folder in (*folders, PACKAGE, os.path.join(PACKAGE, "lib"))]
    return [*filter(os.path.exists, beside), SONAME]


seams = open_first(candidates(), "wseam_version", f"{SONAME} beside libweir")

_status, _text, _pointer, _to = c.c_int, c.c_char_p, c.c_void_p, c.POINTER

FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "wseam_streams": (c.c_size_t, []),
    "wseam_waiting": (c.c_size_t, []),
    "wseam_end_stream": (None, [_pointer]),
    "wseam_forget": (_status, [_pointer]),
    "wseam_alloc": (_status, [_pointer, c.c_size_t, c.c_size_t, _pointer, _to(_pointer)]),
    "wseam_free_on": (None, [_pointer, _pointer, _pointer]),
    "wseam_alloc_for_all": (_status, [_pointer, c.c_size_t, _to(_pointer)]),
    "wseam_free_behind": (None, [_pointer, _pointer]),
    "wseam_cupy_create": (_status, [_to(wseam_cupy_calls), _to(_pointer)]),
    "wseam_cupy_give": (_status, [_pointer, c.c_int, _pointer]),
    "wseam_cupy_status": (_status, []),
    "wseam_cupy_end": (None, []),
    "wseam_torch_begin": (_status, [TorchOpen]),
    "wseam_torch_give": (_status, [c.c_int, _pointer]),
    "wseam_torch_throws": (c.c_bool, []),
    "wseam_torch_complete": (c.c_int, []),
    "wseam_torch_empty_cache": (None, []),
    "wseam_torch_set_caching": (None, [c.c_bool]),
    "wseam_torch_trace": (None, [TorchTraced]),
    "wseam_torch_keep_pool": (_status, [c.c_int, c.c_uint64, c.c_uint64]),
    "wseam_torch_release_pool": (None, [c.c_int, c.c_uint64, c.c_uint64]),
    "wseam_torch_pool_users": (c.c_uint, [c.c_int, c.c_uint64, c.c_uint64]),
    "wseam_torch_pool_blocks": (c.c_size_t, [c.c_int, c.c_uint64, c.c_uint64, _to(_pointer), c.c_size_t]),
    "wseam_torch_pool_of": (c.c_int, [c.c_void_p, _to(c.c_uint64)]),
    "wseam_torch_count": (None, [c.c_int, _to(wseam_torch_counts)]),
    "wseam_torch_reset": (None, [c.c_int, c.c_uint32]),
    "wseam_torch_history_begin": (None, [_to(wseam_torch_history)]),
    "wseam_torch_history_end": (None, []),
    "wseam_torch_history_on": (c.c_bool, []),
    "wseam_torch_history_read": (c.c_size_t, [c.c_int, _to(wseam_torch_event), c.c_size_t]),
    "wseam_torch_history_of": (c.c_bool, [_pointer, _to(wseam_torch_event)]),
    "wseam_torch_history_done": (None, [_to(wseam_torch_event), c.c_size_t]),
    "wseam_torch_history_snapshot": (None, [c.c_int, c.c_uint64]),
    "wseam_torch_stack_frames": (_to(wseam_torch_frames), [_pointer]),
    "wseam_torch_observe": (None, [TorchObserver]),
    "wseam_torch_shareable": (_status, [_pointer, c.c_bool]),
    "wseam_torch_place": (_status, [_pointer, _to(c.c_int)]),
    "wseam_torch_leave_place": (_status, [c.c_int]),
    "wseam_torch_place_functions": (_status, [c.c_int, _to(_pointer), _to(_pointer)]),
}
declare(seams, FUNCTIONS)
refusable(seams, "wseam_alloc", "wseam_alloc_for_all")


def address(function: Any) -> int:
    """Where a C function is."""
    return int(c.cast(function, c.c_void_p).value or 0)
