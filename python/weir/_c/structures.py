"""The structures of include/weir/*.h that the package uses, member by member. tests/python/test_layout.py compares them with
what a C compiler makes of the headers."""

from __future__ import annotations

import ctypes as c

from .._numbers import Ranged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_RANK = 16
KIND_MOST = 8
CLASS_MOST = 8
RUNG_MOST = 16
REFUSAL_HOLDERS = 4
STAYS = 8
BLOCK_WAITS = 16
ALLOC_ZEROED = 1
ALLOC_NO_WAIT = 2
UNKNOWN = 2**64 - 1  # WEIR_BYTES_UNKNOWN

Enum = c.c_int


class Sized(Ranged):
    """One that begins with `struct_size`, which is set as by WEIR_INIT."""

    def __init__(self, **members: Any) -> None:
        super().__init__(struct_size=c.sizeof(self), **members)


# ---- weir/base.h

class weir_option(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("environment", c.c_char_p), ("help", c.c_char_p),
                ("value", c.c_char * 256), ("source", Enum), ("rejected", c.c_bool)]


class weir_version_number(c.Structure):
    _fields_ = [("part", c.c_uint32 * 4), ("count", c.c_uint32)]


class weir_tensor(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("type", Enum), ("rank", c.c_uint32),
                ("shape", c.c_int64 * MAX_RANK), ("data", c.c_void_p), ("bytes", c.c_size_t), ("on_device", c.c_bool)]


# ---- weir/runtime.h, weir/client.h, weir/stream.h, weir/memory.h

class weir_runtime_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("budget", c.c_uint64), ("resource", c.c_char_p), ("streams", c.c_uint32),
                ("host", c.c_void_p)]


class weir_runtime_details(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("device", c.c_char_p), ("ordinal", c.c_int), ("features", c.c_uint32),
                ("native", c.c_void_p), ("budget", c.c_uint64), ("log", c.c_void_p), ("resource", c.c_char * 256)]


class weir_client_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("guaranteed", c.c_uint64), ("maximum", c.c_uint64),
                ("scrub", Enum)]


class weir_stream(c.Structure):
    _fields_ = [("id", c.c_uint64)]


class weir_block(c.Structure):
    _fields_ = [("pointer", c.c_void_p), ("generation", c.c_uint64)]


class weir_block_wait(c.Structure):
    _fields_ = [("stream", weir_stream), ("point", c.c_uint64)]


class weir_block_details(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("block", weir_block), ("offset", c.c_size_t), ("bytes", c.c_size_t),
                ("charged", c.c_size_t), ("client", c.c_void_p), ("runtime", c.c_void_p), ("memory_class", Enum), ("state", Enum),
                ("stream", weir_stream), ("tag", c.c_char * 48), ("kind", Enum), ("waits", c.c_uint32),
                ("wait", weir_block_wait * BLOCK_WAITS)]


class weir_request(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("bytes", c.c_size_t), ("alignment", c.c_size_t), ("stream", weir_stream),
                ("memory_class", Enum), ("tag", c.c_char_p), ("flags", c.c_uint32), ("reservation", c.c_void_p), ("kind", Enum),
                ("pool", c.c_void_p)]


class weir_refusal_holder(c.Structure):  # without a name of its own in C: a member of weir_refusal.holders
    _fields_ = [("client", c.c_char * 64), ("bytes", c.c_uint64)]


class weir_refusal(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("cause", Enum), ("client", c.c_char * 64), ("device", c.c_char * 32),
                ("memory_class", Enum), ("requested", c.c_uint64), ("current", c.c_uint64), ("remaining", c.c_uint64),
                ("limit", c.c_uint64), ("largest", c.c_uint64), ("needed", c.c_uint64),
                ("holders", weir_refusal_holder * REFUSAL_HOLDERS), ("number", c.c_uint64)]


# ---- weir/stats.h

class weir_stats(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("budget", c.c_uint64), ("live", c.c_uint64), ("pending", c.c_uint64),
                ("cached", c.c_uint64), ("spare", c.c_uint64), ("promised", c.c_uint64), ("held", c.c_uint64),
                ("peak", c.c_uint64), ("peak_held", c.c_uint64), ("guaranteed", c.c_uint64), ("allocations", c.c_uint64),
                ("frees", c.c_uint64), ("refusals", c.c_uint64), ("driver_calls", c.c_uint64), ("clients", c.c_uint32),
                ("failed_frees", c.c_uint64), ("ordered", c.c_uint64), ("created", c.c_uint64), ("moved", c.c_uint64),
                ("batches", c.c_uint64), ("thread_cached", c.c_uint64), ("hits", c.c_uint64), ("emptied", c.c_uint64),
                ("ladder", c.c_uint64 * RUNG_MOST), ("lent_clients", c.c_uint64), ("lent_streams", c.c_uint64),
                ("misses", c.c_uint64), ("lost_tags", c.c_uint64), ("away", c.c_uint64)]


class weir_client_stats(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("client", c.c_void_p), ("name", c.c_char * 64), ("guaranteed", c.c_uint64),
                ("maximum", c.c_uint64), ("live", c.c_uint64), ("pending", c.c_uint64), ("promised", c.c_uint64),
                ("live_class", c.c_uint64 * CLASS_MOST), ("peak", c.c_uint64), ("peak_class", c.c_uint64 * CLASS_MOST),
                ("blocks", c.c_uint64), ("allocations", c.c_uint64), ("frees", c.c_uint64), ("refusals", c.c_uint64),
                ("outside", c.c_uint64), ("outside_method", c.c_char * 128), ("thread_cached", c.c_uint64),
                ("hits", c.c_uint64), ("misses", c.c_uint64), ("runtime", c.c_void_p), ("away", c.c_uint64), ("residency", Enum), ("predicted", c.c_uint64)]


# ---- weir/residency.h

class weir_suspend_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("stay", c.c_uint32), ("drop", c.c_uint32), ("unwritten", c.c_uint32),
                ("verify", c.c_bool), ("keep_guarantee", c.c_bool), ("resume_on_alloc", c.c_bool), ("wait", c.c_uint64),
                ("folder", c.c_char_p), ("show", c.c_bool), ("graphs", c.c_bool)]


class weir_residency_stay(c.Structure):  # without a name of its own in C: a member of weir_residency.stay
    _fields_ = [("pointer", c.c_void_p), ("bytes", c.c_uint64), ("why", Enum), ("tag", c.c_char * 48)]


class weir_residency(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("state", Enum), ("away", c.c_uint64), ("released", c.c_uint64),
                ("copied", c.c_uint64), ("trusted", c.c_uint64), ("dropped", c.c_uint64), ("differed", c.c_uint64),
                ("stored", c.c_uint64), ("stayed", c.c_uint64), ("stays", c.c_uint32), ("stay", weir_residency_stay * STAYS),
                ("shown", c.c_uint64), ("outside", c.c_uint64), ("outside_method", c.c_char * 128), ("graphs", c.c_uint64)]


class weir_prepare_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("stay", c.c_uint32), ("drop", c.c_uint32), ("wait", c.c_bool)]


class weir_preparation(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("ready", c.c_uint64), ("coming", c.c_uint64), ("status", Enum),
                ("why", c.c_char * 160)]


# ---- weir/outside.h

class weir_outside_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("reserve", c.c_uint64), ("by_hand", c.c_bool)]


class weir_outside(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("watched", c.c_bool), ("total", c.c_uint64), ("available", c.c_uint64),
                ("others", c.c_uint64), ("reserve", c.c_uint64), ("asked", c.c_uint64), ("budget", c.c_uint64),
                ("allowed", c.c_uint64), ("lacks", c.c_uint64), ("looks", c.c_uint64), ("shorts", c.c_uint64),
                ("given", c.c_uint64), ("suspends", c.c_uint64), ("rises", c.c_uint64)]


class weir_yield_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("bytes", c.c_uint64), ("hold", c.c_uint64), ("wait", c.c_uint64)]


class weir_yielded(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("available", c.c_uint64), ("given", c.c_uint64), ("trimmed", c.c_uint64),
                ("suspended", c.c_uint64), ("called", c.c_uint64), ("clients", c.c_uint64), ("lacks", c.c_uint64),
                ("held", c.c_uint64), ("live", c.c_uint64), ("pending", c.c_uint64), ("unused", c.c_uint64),
                ("guaranteed", c.c_uint64), ("why", c.c_char * 256)]


# ---- weir/engine.h, weir/model.h

class weir_setting(c.Structure):
    _fields_ = [("key", c.c_char_p), ("value", c.c_char_p)]


class weir_port(c.Structure):
    _fields_ = [("name", c.c_char_p), ("type", Enum), ("rank", c.c_uint32), ("shape", c.c_int64 * MAX_RANK),
                ("optional", c.c_bool)]


class weir_provider_share(c.Structure):
    _fields_ = [("provider", c.c_char_p), ("parts", c.c_uint64), ("of", c.c_uint64)]


class weir_model_details(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("engine", c.c_char_p), ("version", c.c_char_p), ("provider", c.c_char_p),
                ("architecture", c.c_char_p), ("inputs", c.POINTER(weir_port)), ("input_count", c.c_size_t),
                ("outputs", c.POINTER(weir_port)), ("output_count", c.c_size_t), ("generates", c.c_bool),
                ("remarks", c.c_char_p), ("shares", c.POINTER(weir_provider_share)), ("share_count", c.c_size_t)]


class weir_piece(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("text", c.c_void_p), ("bytes", c.c_size_t), ("token", c.c_int32),
                ("index", c.c_uint64)]


weir_piece_fn = c.CFUNCTYPE(c.c_bool, c.POINTER(weir_piece), c.c_void_p)
weir_progress_fn = c.CFUNCTYPE(None, c.c_double, c.c_void_p)


class weir_inference(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("id", c.c_uint64), ("inputs", c.POINTER(weir_tensor)), ("input_count", c.c_size_t),
                ("settings", c.POINTER(weir_setting)), ("setting_count", c.c_size_t), ("stream", weir_stream),
                ("piece", weir_piece_fn), ("piece_user", c.c_void_p)]


class weir_outputs(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("tensors", c.c_void_p), ("count", c.c_size_t), ("engine_data", c.c_void_p),
                ("instance", c.c_void_p), ("together", c.c_uint64)]


weir_model_call_room_fn = c.CFUNCTYPE(c.c_void_p, c.c_size_t, c.c_size_t, c.c_void_p)


class weir_model_call_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("room", weir_model_call_room_fn), ("user", c.c_void_p)]


class weir_model_call_results(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("tensors", c.c_void_p), ("count", c.c_size_t), ("layout", c.c_uint64)]


class weir_engine_metrics(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("runs", c.c_uint64), ("failures", c.c_uint64), ("cancelled", c.c_uint64),
                ("tokens_in", c.c_uint64), ("tokens_out", c.c_uint64), ("busy_seconds", c.c_double), ("sessions", c.c_uint64),
                ("sessions_failed", c.c_uint64)]


class weir_model_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("engine", c.c_char_p), ("device", c.c_char_p),
                ("runtime", c.c_void_p), ("guaranteed", c.c_uint64), ("maximum", c.c_uint64),
                ("settings", c.POINTER(weir_setting)), ("setting_count", c.c_size_t), ("progress", weir_progress_fn),
                ("progress_user", c.c_void_p), ("stops", c.c_void_p), ("client", c.c_void_p), ("prepare", c.c_bool), ("residency", c.c_int)]


class weir_model_suspend_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("refuse_runs", c.c_bool), ("at_once", c.c_bool), ("wait", c.c_uint64),
                ("stay", c.c_uint32), ("drop", c.c_uint32), ("unwritten", c.c_uint32), ("verify", c.c_bool),
                ("keep_guarantee", c.c_bool), ("folder", c.c_char_p), ("show", c.c_bool), ("step", c.c_uint64)]


class weir_model_presence(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("state", Enum), ("away", c.c_uint64), ("suspends", c.c_uint64),
                ("resumes", c.c_uint64), ("resumes_by_runs", c.c_uint64), ("returned", c.c_uint64),
                ("suspended_at", c.c_uint64), ("resumed_at", c.c_uint64), ("suspend_ms", c.c_double), ("resume_ms", c.c_double),
                ("shown", c.c_uint64), ("coming", c.c_bool), ("stopped", Enum)]


# ---- weir/select.h

class weir_hardware_device(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("kind", Enum), ("key", c.c_char * 64), ("parent", c.c_char * 64),
                ("pci", c.c_char * 20), ("name", c.c_char * 128), ("runtime", c.c_char * 16), ("ordinal", c.c_int32),
                ("total", c.c_uint64), ("free", c.c_uint64), ("shares_host", c.c_bool), ("discrete", c.c_bool),
                ("units", c.c_uint32), ("capability", weir_version_number), ("driver", weir_version_number),
                ("driver_runtime", weir_version_number), ("usable", c.c_bool), ("remark", c.c_char * 256)]


class weir_hardware(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("devices", c.c_void_p), ("device_count", c.c_size_t), ("remarks", c.c_char_p),
                ("seconds", c.c_double)]


class weir_hardware_options(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("sysroot", c.c_char_p), ("visible", c.c_char_p), ("limit_ms", c.c_uint32),
                ("anew", c.c_bool)]
