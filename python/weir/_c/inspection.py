"""The structures and functions of weir/manifest.h, weir/select.h's choice and weir/trace.h, which not every program needs."""

from __future__ import annotations

import ctypes as c
import os
from functools import cache
from typing import Any

from .._numbers import declare
from .library import VERSION, lib
from .structures import CLASS_MOST, Enum, Sized, weir_block, weir_setting, weir_stream, weir_version_number

# ---- weir/manifest.h


class weir_requirements(c.Structure):
    _fields_ = [("preferred_provider", c.c_char_p), ("fallback_providers", c.c_void_p), ("fallback_count", c.c_size_t),
                ("min_memory", c.c_uint64), ("min_vram", c.c_uint64), ("guaranteed", c.c_uint64), ("maximum", c.c_uint64),
                ("min_cuda_version", weir_version_number), ("min_driver_version", weir_version_number),
                ("min_compute_capability", weir_version_number), ("device_ids", c.c_void_p), ("device_count", c.c_size_t),
                ("strategy", c.c_char_p), ("graph_optimization_level", c.c_char_p), ("cpu", Enum), ("min_coverage", c.c_double)]


class weir_manifest(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("path", c.c_char_p), ("framework", c.c_char_p), ("model_file", c.c_char_p),
                ("name", c.c_char_p), ("version", c.c_char_p), ("settings", c.POINTER(weir_setting)), ("setting_count", c.c_size_t),
                ("requirements", weir_requirements)]


class weir_manifest_problem(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("line", c.c_uint32), ("column", c.c_uint32), ("text", c.c_char_p)]


class weir_manifest_problems(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("path", c.c_char_p), ("problems", c.c_void_p), ("count", c.c_size_t), ("more", c.c_size_t)]


# ---- weir/select.h

class weir_candidate(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("engine", c.c_char_p), ("provider", c.c_char_p), ("device", c.c_char_p),
                ("runtime", c.c_char_p), ("library", c.c_char_p), ("version", c.c_char_p), ("verdict", Enum), ("reason", c.c_char_p),
                ("rank", c.c_int32), ("predicted", c.c_bool), ("bytes", c.c_uint64 * CLASS_MOST), ("exact", c.c_bool * CLASS_MOST),
                ("obtainable", c.c_uint64)]


class weir_choice(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("candidates", c.c_void_p), ("count", c.c_size_t), ("accepted", c.c_size_t),
                ("policy", c.c_char_p), ("rule", c.c_char_p)]


class weir_choice_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("engine", c.c_char_p), ("provider", c.c_char_p), ("device", c.c_char_p),
                ("policy", c.c_char_p), ("order", c.c_char_p), ("no_cpu", c.c_bool), ("hardware", c.c_void_p), ("obtainable", c.c_void_p),
                ("obtainable_count", c.c_size_t), ("settings", c.POINTER(weir_setting)), ("setting_count", c.c_size_t)]


# ---- weir/stats.h

class weir_gauge(c.Structure):
    _fields_ = [("current", c.c_uint64), ("peak", c.c_uint64), ("allocated", c.c_uint64), ("freed", c.c_uint64)]


class weir_memory_stats(Sized):
    _fields_ = [("struct_size", c.c_size_t), *((name, weir_gauge) for name in (
        "allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes", "inactive_split_bytes", "allocation", "segment",
        "active", "inactive_split")), ("num_alloc_retries", c.c_uint64), ("num_ooms", c.c_uint64)]


class weir_segment(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("number", c.c_uint32), ("spans", c.c_uint32), ("address", c.c_void_p), ("bytes", c.c_uint64)]


class weir_span(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("state", Enum), ("address", c.c_void_p), ("bytes", c.c_uint64), ("block", weir_block),
                ("charged", c.c_uint64), ("requested", c.c_uint64), ("client", c.c_void_p), ("client_name", c.c_char_p),
                ("tag", c.c_char_p), ("memory_class", Enum), ("stream", weir_stream)]


LayoutFunction = c.CFUNCTYPE(None, c.POINTER(weir_segment), c.POINTER(weir_span), c.c_void_p)


# ---- weir/trace.h

class weir_event(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("action", Enum), ("memory_class", Enum), ("order", c.c_uint64), ("nanoseconds", c.c_uint64),
                ("thread", c.c_uint64), ("pointer", c.c_void_p), ("bytes", c.c_uint64), ("charged", c.c_uint64),
                ("generation", c.c_uint64), ("stream", weir_stream), ("live", c.c_uint64), ("pending", c.c_uint64), ("held", c.c_uint64),
                ("client", c.c_char_p), ("tag", c.c_char_p), ("result", Enum), ("access", Enum), ("device", c.c_char_p),
                ("object", c.c_uint64), ("other", weir_stream)]


class weir_sink(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("user", c.c_void_p), ("write", c.c_void_p), ("flush", c.c_void_p), ("close", c.c_void_p),
                ("lost", c.c_void_p)]


class weir_trace_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("capacity", c.c_size_t), ("sinks", c.POINTER(weir_sink)), ("sink_count", c.c_size_t)]


class weir_trace_details(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("lost", c.c_uint64), ("failed", c.c_uint64)]


NAMES_CLASS, NAMES_ACTION, NAMES_VERDICT = 3, 7, 10

_status, _pointer, _to = c.c_int, c.c_void_p, c.POINTER
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "weir_name_of": (c.c_char_p, [Enum, c.c_int]),
    "weir_choice_create": (_status, [_pointer, _to(weir_choice_options), _to(_pointer)]),
    "weir_choice_destroy": (None, [_pointer]),
    "weir_trace_create": (_status, [_pointer, _to(weir_trace_options), _to(_pointer)]),
    "weir_trace_destroy": (None, [_pointer]),
    "weir_trace_read": (_status, [_pointer, _to(weir_event), c.c_size_t, _to(c.c_size_t)]),
    "weir_trace_flush": (_status, [_pointer]),
    "weir_trace_info": (_status, [_pointer, _to(weir_trace_details)]),
    "weir_sink_file": (_status, [c.c_char_p, Enum, _to(weir_sink)]),
}
MANIFEST_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "weir_manifest_read": (_status, [c.c_char_p, _pointer, _to(_pointer)]),
    "weir_manifest_destroy": (None, [_pointer]),
    "weir_manifest_check": (_status, [c.c_char_p, _pointer, _to(_pointer)]),
    "weir_manifest_problems_destroy": (None, [_pointer]),
}


declare(lib, FUNCTIONS)


@cache
def manifests() -> c.CDLL:
    """libweir-manifest, which lies where libweir does."""
    name = f"libweir-manifest.so.{VERSION}"
    folder = os.path.dirname(lib._name)
    try:
        found = c.CDLL(os.path.join(folder, name) if folder else name)
    except OSError as error:
        raise ImportError(f"manifests need {name}, beside libweir: {error}") from None
    declare(found, MANIFEST_FUNCTIONS)
    return found


def name_of(names: int, value: int) -> str:
    """The word for a value, as messages and the command's JSON have it."""
    return str(lib.weir_name_of(names, value).decode())
