"""libweir itself: where it is, its functions, and the one place that turns a failed status into an exception."""

from __future__ import annotations

import ctypes as c
import os
import threading

from .._numbers import declare
from ..errors import BY_STATUS, Error, OutOfMemory
from ..names import Status
from . import structures as s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

VERSION = "0.2"  # before 1.0 every minor version may change the interface
SONAME = f"libweir.so.{VERSION}"
PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def candidates() -> list[str]:
    """The files that are tried, the first first: WEIR_LIBRARY alone where it is set."""
    named = os.environ.get("WEIR_LIBRARY")
    if named:
        return [named]
    beside = [os.path.join(PACKAGE, folder, name) for folder in ("", "lib") for name in (SONAME, "libweir.so")]
    return [*filter(os.path.exists, beside), SONAME]


def open_first(names: list[str], version_function: str, needed: str) -> c.CDLL:
    """The first of these files that can be opened and is of this version. ImportError with what is `needed`, and why not."""
    troubles = []
    for name in names:
        try:
            found = c.CDLL(name)
            told = getattr(found, version_function)
            told.restype = c.c_char_p
            version = told().decode()
        except (OSError, AttributeError) as error:
            troubles.append(str(error))
            continue
        if version.split(".")[:2] == VERSION.split("."):
            return found
        troubles.append(f"{name} is version {version}")
    raise ImportError(f"weir needs {needed} ({'; '.join(troubles)})")


lib = open_first(candidates(), "weir_version",
                 f"{SONAME}: WEIR_LIBRARY can name it, or it lies beside the package or where the dynamic linker looks")

_status, _text, _pointer, _to = c.c_int, c.c_char_p, c.c_void_p, c.POINTER

# What each function answers, and takes.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "weir_version": (_text, []),
    "weir_detail": (_text, []),
    "weir_option_info": (_status, [_text, c.c_size_t, _to(s.weir_option)]),
    "weir_option_set": (_status, [_text, _text]),
    "weir_size_parse": (_status, [_text, _to(c.c_uint64)]),
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
    "weir_block_info": (_status, [_pointer, _to(s.weir_block_details)]),
    "weir_copy": (_status, [_pointer, _pointer, _pointer, c.c_size_t, s.weir_stream]),
    "weir_stream_acquire": (_status, [_pointer, _to(s.weir_stream)]),
    "weir_stream_release": (_status, [s.weir_stream]),
    "weir_stream_register": (_status, [_pointer, _pointer, _to(s.weir_stream)]),
    "weir_stream_default": (_status, [_pointer, c.c_int, _to(s.weir_stream)]),
    "weir_stream_unregister": (_status, [s.weir_stream]),
    "weir_stream_synchronize": (_status, [s.weir_stream]),
    "weir_stream_native": (_pointer, [s.weir_stream]),
    "weir_use_record": (_status, [_pointer, s.weir_block, s.weir_stream]),
    "weir_client_runtime": (_pointer, [_pointer]),
    "weir_refusal_last": (_status, [_to(s.weir_refusal)]),
    "weir_snapshot": (_status, [_pointer, _to(s.weir_stats), _to(s.weir_client_stats), c.c_size_t, _to(c.c_size_t)]),
    "weir_client_info": (_status, [_pointer, _to(s.weir_client_stats)]),
    "weir_client_suspend": (_status, [_pointer, _to(s.weir_suspend_options), _to(s.weir_residency)]),
    "weir_client_resume": (_status, [_pointer, s.weir_stream]),
    "weir_client_exchange": (_status, [_pointer, _to(s.weir_suspend_options), _pointer, s.weir_stream, _to(s.weir_residency)]),
    "weir_client_residency": (_status, [_pointer, _to(s.weir_residency)]),
    "weir_client_forget_copies": (c.c_uint64, [_pointer]),
    "weir_client_set_overflow": (_status, [_pointer, c.c_bool, c.c_uint64]),
    "weir_client_idle": (_status, [_pointer, _to(s.weir_suspend_options)]),
    "weir_client_busy": (_status, [_pointer, s.weir_stream]),
    "weir_outside_watch": (_status, [_pointer, _to(s.weir_outside_options)]),
    "weir_outside_end": (_status, [_pointer]),
    "weir_outside_info": (_status, [_pointer, _to(s.weir_outside)]),
    "weir_outside_look": (_status, [_pointer, _to(s.weir_outside)]),
    "weir_yield": (_status, [_pointer, _to(s.weir_yield_options), _to(s.weir_yielded)]),
    "weir_client_prepare": (_status, [_pointer, _to(s.weir_prepare_options)]),
    "weir_client_preparation": (_status, [_pointer, _to(s.weir_preparation)]),
    "weir_engine_name_at": (_text, [c.c_size_t]),
    "weir_model_create": (_status, [_text, _to(s.weir_model_options), _to(_pointer)]),
    "weir_model_destroy": (_status, [_pointer]),
    "weir_model_infer": (_status, [_pointer, _to(s.weir_inference), _to(s.weir_outputs)]),
    "weir_model_release_outputs": (None, [_pointer, _to(s.weir_outputs)]),
    "weir_model_cancel": (_status, [_pointer, c.c_uint64]),
    "weir_model_warm_up": (_status, [_pointer]),
    "weir_model_metrics": (_status, [_pointer, _to(s.weir_engine_metrics)]),
    "weir_model_info": (_status, [_pointer, _to(s.weir_model_details)]),
    "weir_model_suspend": (_status, [_pointer, _to(s.weir_model_suspend_options), _to(s.weir_residency)]),
    "weir_model_resume": (_status, [_pointer, s.weir_stream]),
    "weir_model_resume_behind": (_status, [_pointer]),
    "weir_model_exchange": (_status, [_pointer, _to(s.weir_model_suspend_options), _pointer, s.weir_stream, _to(s.weir_residency)]),
    "weir_model_residency": (_status, [_pointer, _to(s.weir_model_presence)]),
    "weir_model_client": (_pointer, [_pointer]),
    "weir_model_call_create": (_status, [_pointer, _to(s.weir_inference), _to(s.weir_model_call_options), _to(_pointer)]),
    "weir_model_call_run": (_status, [_pointer, _to(s.weir_model_call_results)]),
    "weir_model_call_destroy": (_status, [_pointer]),
    "weir_hardware_create": (_status, [_to(s.weir_hardware_options), _to(_pointer)]),
    "weir_hardware_destroy": (None, [_pointer]),
}
declare(lib, FUNCTIONS)



class _Thread(threading.local):
    """What the calling thread knows of its refusals."""

    def __init__(self) -> None:
        self.last = s.weir_refusal()
        self.place = c.byref(self.last)
        self.told: s.weir_refusal | None = None  # by the last function of `refusable` that failed


_thread = _Thread()


def refusal_number() -> int:
    """Of the calling thread's last refusal; 0: it had none."""
    lib.weir_refusal_last(_thread.place)
    return int(_thread.last.number)


def refusal_since(number: int) -> s.weir_refusal | None:
    """The calling thread's last refusal, if it came after the refusal of this number."""
    return _thread.last if refusal_number() != number else None


def refusable(library: c.CDLL, *names: str) -> None:
    """Has `check` tell of these functions by which refusal a call of theirs failed."""
    def telling(function: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            before = refusal_number()
            status = function(*arguments)
            if status == Status.OUT_OF_MEMORY:
                _thread.told = refusal_since(before)
            return status
        vars(call).update(argtypes=function.argtypes, restype=function.restype)
        return call
    for name in names:
        setattr(library, name, telling(getattr(library, name)))


refusable(lib, "weir_runtime_set_budget", "weir_client_create", "weir_client_set_limits", "weir_client_resume", "weir_alloc_with",
          "weir_client_exchange", "weir_model_create", "weir_model_infer", "weir_model_warm_up", "weir_model_resume",
          "weir_model_resume_behind", "weir_model_exchange", "weir_client_busy",
          "weir_model_call_create", "weir_model_call_run")


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


def check(status: int) -> None:
    """Raises what a failed status is in Python, with the calling thread's detail text; called right after the call that failed."""
    if status == Status.OK:
        return
    detail = text(lib.weir_detail())
    if status == Status.OUT_OF_MEMORY:
        from ..refusal import refusal
        told, _thread.told = _thread.told, None
        raise OutOfMemory(detail, refusal(told) if told is not None else None)
    try:
        kind = BY_STATUS[Status(status)]
    except ValueError:  # of a later libweir
        raise Error(f"status {status}: {detail}") from None
    raise kind(detail)
