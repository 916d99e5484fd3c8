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
    _fields_ = [("allocation", weir_gauge * 3), ("allocated_bytes", weir_gauge * 3), ("requested_bytes", weir_gauge * 3),
                ("retries", c.c_uint64), ("failures", c.c_uint64)]


TorchOpen = c.CFUNCTYPE(None, c.c_int)


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
    "wseam_torch_pool_blocks": (c.c_size_t, [c.c_int, c.c_uint64, c.c_uint64, _to(_pointer), c.c_size_t]),
    "wseam_torch_pool_of": (c.c_int, [c.c_void_p, _to(c.c_uint64)]),
    "wseam_torch_count": (None, [c.c_int, _to(wseam_torch_counts)]),
    "wseam_torch_reset": (None, [c.c_int, c.c_uint32]),
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
