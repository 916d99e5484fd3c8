"""libweir itself: where it is, its functions, and the one place that turns a failed status into an exception."""

from __future__ import annotations

import ctypes as c
import os
from pathlib import Path
from typing import Any

from ..errors import BY_STATUS, Error, Holder, OutOfMemory, Refusal
from ..names import Cause, Class, Status
from . import structures as s

VERSION = "0.2"  # before 1.0 every minor version may change the interface
SONAME = f"libweir.so.{VERSION}"
PACKAGE = Path(__file__).resolve().parent.parent


def candidates() -> list[str]:
    """The files that are tried, the first first: WEIR_LIBRARY alone where it is set."""
    named = os.environ.get("WEIR_LIBRARY")
    if named:
        return [named]
    beside = [folder / name for folder in (PACKAGE, PACKAGE / "lib") for name in (SONAME, "libweir.so")]
    return [*(str(path) for path in beside if path.exists()), SONAME]


def open_library() -> c.CDLL:
    troubles = []
    for name in candidates():
        try:
            found = c.CDLL(name)
            found.weir_version.restype = c.c_char_p
            version = found.weir_version().decode()
        except (OSError, AttributeError) as error:
            troubles.append(str(error))
            continue
        if version.split(".")[:2] == VERSION.split("."):
            return found
        troubles.append(f"{name} is version {version}")
    raise ImportError(f"weir needs {SONAME}: WEIR_LIBRARY can name it, or it lies beside the package or where the dynamic linker "
                      f"looks ({'; '.join(troubles)})")


lib = open_library()

_status, _text, _pointer, _to = c.c_int, c.c_char_p, c.c_void_p, c.POINTER

# What each function answers, and takes.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "weir_version": (_text, []),
    "weir_detail": (_text, []),
    "weir_option_info": (_status, [_text, c.c_size_t, _to(s.weir_option)]),
    "weir_option_set": (_status, [_text, _text]),
    "weir_size_format": (_pointer, [c.c_uint64, _pointer, c.c_size_t]),
    "weir_runtime_get": (_status, [_text, _to(s.weir_runtime_options), _to(_pointer)]),
    "weir_runtime_create": (_status, [_text, _to(s.weir_runtime_options), _to(_pointer)]),
    "weir_runtime_destroy": (_status, [_pointer]),
    "weir_runtime_info": (_status, [_pointer, _to(s.weir_runtime_details)]),
    "weir_runtime_set_budget": (_status, [_pointer, c.c_uint64]),
    "weir_runtime_drain": (_status, [_pointer, _to(c.c_uint64)]),
    "weir_client_create": (_status, [_pointer, _to(s.weir_client_options), _to(_pointer)]),
    "weir_client_destroy": (_status, [_pointer]),
    "weir_client_set_limits": (_status, [_pointer, c.c_uint64, c.c_uint64]),
    "weir_alloc_with": (_status, [_pointer, _to(s.weir_request), _to(s.weir_block)]),
    "weir_free_block": (_status, [_pointer, s.weir_block, s.weir_stream]),
    "weir_refusal_last": (_status, [_to(s.weir_refusal)]),
    "weir_snapshot": (_status, [_pointer, _to(s.weir_stats), _to(s.weir_client_stats), c.c_size_t, _to(c.c_size_t)]),
    "weir_client_info": (_status, [_pointer, _to(s.weir_client_stats)]),
    "weir_engine_name_at": (_text, [c.c_size_t]),
    "weir_model_create": (_status, [_text, _to(s.weir_model_options), _to(_pointer)]),
    "weir_model_destroy": (_status, [_pointer]),
    "weir_model_infer": (_status, [_pointer, _to(s.weir_inference), _to(s.weir_outputs)]),
    "weir_model_release_outputs": (None, [_pointer, _to(s.weir_outputs)]),
    "weir_model_cancel": (_status, [_pointer, c.c_uint64]),
    "weir_model_warm_up": (_status, [_pointer]),
    "weir_model_metrics": (_status, [_pointer, _to(s.weir_engine_metrics)]),
    "weir_model_info": (_status, [_pointer, _to(s.weir_model_details)]),
    "weir_model_client": (_pointer, [_pointer]),
    "weir_hardware_create": (_status, [_to(s.weir_hardware_options), _to(_pointer)]),
    "weir_hardware_destroy": (None, [_pointer]),
}
for _name, (_answer, _arguments) in FUNCTIONS.items():
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes = _answer, _arguments


def text(value: bytes | None) -> str:
    """A text of libweir's as str; NULL is ""."""
    return (value or b"").decode("utf-8", "replace")


def to_bytes(value: str | os.PathLike[str] | None, what: str = "a text") -> bytes | None:
    """A text for libweir; None is NULL."""
    if value is None:
        return None
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise ValueError(f"{what} must not have a character 0 in it: {value!r}")
    return encoded


def last_refusal(detail: str) -> Refusal | None:
    """The numbers of the calling thread's last refusal, if it is the one that `detail` is about."""
    raw = s.weir_refusal()
    if lib.weir_refusal_last(c.byref(raw)) != Status.OK or raw.cause == Cause.NONE or f"{text(raw.client)} asked for " not in detail:
        return None
    holders = []
    for holder in raw.holders:
        if not holder.client:
            break
        holders.append(Holder(text(holder.client), holder.bytes))
    return Refusal(Cause(raw.cause), text(raw.client), text(raw.device), Class(raw.memory_class), raw.requested, raw.current,
                   raw.remaining, raw.limit, raw.largest, None if raw.needed == s.UNKNOWN else raw.needed, tuple(holders))


def check(status: int) -> None:
    """Raises what a failed status is in Python, with the calling thread's detail text; called right after the call that failed."""
    if status == Status.OK:
        return
    detail = text(lib.weir_detail())
    if status == Status.OUT_OF_MEMORY:
        raise OutOfMemory(detail, last_refusal(detail))
    try:
        kind = BY_STATUS[Status(status)]
    except ValueError:  # of a later libweir
        raise Error(f"status {status}: {detail}") from None
    raise kind(detail)
