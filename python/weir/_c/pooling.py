"""The structures and functions of weir/pool.h and weir/predict.h, which not every program needs."""

from __future__ import annotations

import ctypes as c
from typing import Any

from .._numbers import declare
from .inspection import weir_manifest
from .library import lib, refusable
from .structures import CLASS_MOST, Enum, Sized, weir_setting

NONE = 2**64 - 1  # WEIR_POOL_NONE
HOLDERS = 8
EVENTS = ("decided", "loading", "loaded", "failed", "suspended", "resumed", "unloaded", "removed", "unhealthy", "refused", "stopped",
          "promised")
STEPS = ("context", "layers", "suspend", "evict", "device", "wait")

# ---- weir/pool.h


class weir_pool_device(c.Structure):
    _fields_ = [("device", c.c_char_p), ("runtime", c.c_void_p)]


class weir_pool_event(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("kind", Enum), ("time", c.c_uint64), ("name", c.c_char_p), ("version", c.c_char_p),
                ("device", c.c_char_p), ("bytes", c.c_uint64), ("detail", c.c_char_p), ("line", c.c_char_p)]


weir_pool_event_fn = c.CFUNCTYPE(None, c.POINTER(weir_pool_event), c.c_void_p)


class weir_pool_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("devices", c.POINTER(weir_pool_device)), ("device_count", c.c_size_t),
                ("queue", c.c_uint64), ("queue_bytes", c.c_uint64), ("longest_wait", c.c_uint64), ("passing", c.c_uint64),
                ("retry", c.c_uint64), ("host_bytes", c.c_uint64), ("threads", c.c_uint32), ("event", weir_pool_event_fn),
                ("user", c.c_void_p)]


class weir_pool_variant(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("settings", c.POINTER(weir_setting)), ("setting_count", c.c_size_t),
                ("peak", c.c_uint64), ("context", c.c_uint32), ("layers", c.c_int32), ("gives", Enum)]


class weir_pool_spec(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("version", c.c_char_p), ("path", c.c_char_p),
                ("manifest", c.POINTER(weir_manifest)), ("engine", c.c_char_p), ("device", c.c_char_p),
                ("settings", c.POINTER(weir_setting)), ("setting_count", c.c_size_t), ("variants", c.POINTER(weir_pool_variant)),
                ("variant_count", c.c_size_t), ("shrink_first", c.c_bool), ("peak", c.c_uint64), ("guaranteed", c.c_uint64),
                ("maximum", c.c_uint64), ("slots", c.c_uint32), ("pinned", c.c_bool), ("stays", c.c_bool), ("first_run", c.c_bool),
                ("load_now", c.c_bool), ("priority", c.c_int32), ("weight", c.c_uint32), ("keep_alive", c.c_uint64),
                ("suspend_after", c.c_uint64), ("minimum_stay", c.c_uint64), ("evict_cost", c.c_uint64),
                ("devices", c.POINTER(c.c_char_p)), ("device_count", c.c_size_t), ("gives_up", c.POINTER(Enum)),
                ("gives_up_count", c.c_size_t), ("prepare", c.c_bool)]


class weir_pool_holder(c.Structure):
    _fields_ = [("client", c.c_char * 64), ("bytes", c.c_uint64), ("own", c.c_bool)]


class weir_pool_receipt(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("complete", c.c_bool), ("before", c.c_uint64 * CLASS_MOST),
                ("before_total", c.c_uint64), ("returned", c.c_uint64), ("kept", c.c_uint64), ("elsewhere", c.c_uint64),
                ("holders", c.c_uint32), ("holder", weir_pool_holder * HOLDERS), ("drain_ms", c.c_double), ("unload_ms", c.c_double)]


class weir_pool_request(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("id", c.c_uint64), ("bytes", c.c_uint64), ("wait", c.c_uint64),
                ("priority", c.c_int32)]


class weir_pool_answer(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("cause", Enum), ("position", c.c_uint32), ("expected", c.c_uint64),
                ("waited", c.c_uint64), ("need", c.c_uint64), ("limit", c.c_uint64), ("fits", c.c_uint64), ("context", c.c_uint32),
                ("retry_after", c.c_uint64)]


class weir_pool_entry(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char * 64), ("version", c.c_char * 64), ("device", c.c_char * 32),
                ("state", Enum), ("why", c.c_char * 256), ("current", c.c_bool), ("pinned", c.c_bool), ("variant", c.c_uint32),
                ("predicted_peak", c.c_uint64), ("predicted", c.c_uint64 * CLASS_MOST), ("measured_peak", c.c_uint64),
                ("measured", c.c_uint64 * CLASS_MOST), ("taken", c.c_uint64), ("promised", c.c_uint64), ("running", c.c_uint32),
                ("waiting", c.c_uint32), ("expires", c.c_uint64), ("load_time", c.c_uint64), ("resume_time", c.c_uint64),
                ("loads", c.c_uint64), ("resumes", c.c_uint64), ("suspends", c.c_uint64), ("evictions", c.c_uint64),
                ("failures", c.c_uint64), ("can_suspend", c.c_bool), ("progress", c.c_double)]


class weir_pool_usage(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("device", c.c_char * 32), ("ceiling", c.c_uint64), ("taken", c.c_uint64),
                ("waiting", c.c_uint32)]


# ---- weir/predict.h

class weir_predict_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("engine", c.c_char_p), ("provider", c.c_char_p), ("device", c.c_char_p),
                ("settings", c.POINTER(weir_setting)), ("setting_count", c.c_size_t), ("manifest", c.POINTER(weir_manifest)),
                ("candidate", c.c_void_p), ("quick", c.c_bool), ("cold", c.c_bool), ("loaded_only", c.c_bool)]


class weir_prediction(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("engine", c.c_char * 32), ("provider", c.c_char * 32), ("device", c.c_char * 32),
                ("version", c.c_char * 64), ("resident", c.c_uint64 * CLASS_MOST), ("peak", c.c_uint64 * CLASS_MOST),
                ("resident_total", c.c_uint64), ("peak_total", c.c_uint64), ("source", Enum * CLASS_MOST),
                ("exact", c.c_bool * CLASS_MOST), ("host", c.c_uint64 * CLASS_MOST), ("host_total", c.c_uint64),
                ("context", c.c_uint64), ("sequences", c.c_uint32), ("layers", c.c_uint32), ("layers_on_device", c.c_uint32),
                ("loads", c.c_uint64), ("least", c.c_uint64 * CLASS_MOST), ("least_total", c.c_uint64)]


class weir_fit_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("most_context", c.c_uint64), ("least_context", c.c_uint64), ("layers", c.c_bool)]


class weir_fit(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("fits", c.c_bool), ("context", c.c_uint64), ("layers", c.c_int64),
                ("prediction", weir_prediction)]


_to, _pointer, _text = c.POINTER, c.c_void_p, c.c_char_p
STATUS_FUNCTIONS: dict[str, list[Any]] = {
    "weir_pool_create": [_to(weir_pool_options), _to(_pointer)],
    "weir_pool_destroy": [_pointer],
    "weir_pool_add": [_pointer, _to(weir_pool_spec)],
    "weir_pool_remove": [_pointer, _text, c.c_uint64, _to(weir_pool_receipt)],
    "weir_pool_load": [_pointer, _text, c.c_uint64],
    "weir_pool_suspend": [_pointer, _text, c.c_uint64],
    "weir_pool_unload": [_pointer, _text, c.c_uint64, _to(weir_pool_receipt)],
    "weir_pool_pin": [_pointer, _text, c.c_bool],
    "weir_pool_acquire": [_pointer, _to(weir_pool_request), _to(weir_pool_answer), _to(_pointer)],
    "weir_pool_cancel": [_pointer, c.c_uint64],
    "weir_pool_list": [_pointer, _to(weir_pool_entry), c.c_size_t, _to(c.c_size_t)],
    "weir_pool_usage_info": [_pointer, c.c_size_t, _to(weir_pool_usage)],
    "weir_predict": [_text, _to(weir_predict_options), _to(weir_prediction)],
    "weir_predict_fit": [_text, _to(weir_predict_options), c.c_uint64, _to(weir_fit_options), _to(weir_fit)],
}
declare(lib, {name: (c.c_int, arguments) for name, arguments in STATUS_FUNCTIONS.items()})
refusable(lib, "weir_pool_load", "weir_pool_acquire")
declare(lib, {
    "weir_lease_model": (_pointer, [_pointer]),
    "weir_lease_version": (_text, [_pointer]),
    "weir_lease_release": (None, [_pointer]),
    "weir_pool_state_name": (_text, [c.c_int]),
    "weir_pool_cause_name": (_text, [c.c_int]),
})
