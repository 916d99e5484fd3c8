"""DLPack's structures and capsules, as dlpack.h has them (github.com/dmlc/dlpack, version 1.0), and who keeps what is handed out.

What is handed out stays until its deleter is called, by whichever thread. A capsule that nobody takes has no deleter called:
it is found when nobody but this module holds it, at the next look (`sweep`). A destructor of the capsule's own would have to be
Python's code, and it runs while an exception may be on its way, which that would lose."""

from __future__ import annotations

import atexit
import ctypes as c
import sys
from collections.abc import Callable
from typing import Any

from .._later import later
from ..names import Type

CPU, CUDA, CUDA_HOST = 1, 2, 3  # kinds of devices; the last is pinned memory
ADDRESSABLE = (CPU, CUDA_HOST)  # by the processor, with no stream to wait for
COPIED = 2  # of the flags
VERSION = (1, 0)

# Code and bits of each type.
CODES = {Type.I8: (0, 8), Type.I16: (0, 16), Type.I32: (0, 32), Type.I64: (0, 64), Type.U8: (1, 8), Type.U16: (1, 16), Type.U32: (1, 32),
         Type.U64: (1, 64), Type.F16: (2, 16), Type.F32: (2, 32), Type.F64: (2, 64), Type.BF16: (4, 16), Type.BOOL: (6, 8),
         Type.F8E4M3FN: (10, 8), Type.F8E4M3FNUZ: (11, 8), Type.F8E5M2: (12, 8), Type.F8E5M2FNUZ: (13, 8)}
TYPES = {code: kind for kind, code in CODES.items()}


class DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_kind", c.c_int32), ("device", c.c_int32), ("rank", c.c_int32), ("code", c.c_uint8),
                ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)),
                ("offset", c.c_uint64)]


class Managed(c.Structure):
    _fields_ = [("tensor", DLTensor), ("context", c.c_void_p), ("deleter", c.c_void_p)]


class Versioned(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("context", c.c_void_p), ("deleter", c.c_void_p), ("flags", c.c_uint64),
                ("tensor", DLTensor)]


# Texts that a capsule points to.
NAMES: dict[type[Managed] | type[Versioned], tuple[bytes, bytes]] = {Managed: (b"dltensor", b"used_dltensor"),
                                                                    Versioned: (b"dltensor_versioned", b"used_dltensor_versioned")}
DELETER = c.CFUNCTYPE(None, c.c_void_p)


def _function(name: str, answer: Any, *arguments: Any) -> Any:
    return c.PYFUNCTYPE(answer, *arguments)((name, c.pythonapi))


_new = _function("PyCapsule_New", c.py_object, c.c_void_p, c.c_char_p, c.c_void_p)
_is = _function("PyCapsule_IsValid", c.c_int, c.py_object, c.c_char_p)
_pointer = _function("PyCapsule_GetPointer", c.c_void_p, c.py_object, c.c_char_p)
_rename = _function("PyCapsule_SetName", c.c_int, c.py_object, c.c_char_p)
_keep = _function("Py_IncRef", None, c.py_object)


# ---- handing out -------------------------------------------------------------

class Lent:
    """What one capsule points to, and what is done when it is given back."""

    def __init__(self, managed: Managed | Versioned, parts: Any, release: Callable[[], None]) -> None:
        self.managed, self.parts, self.release = managed, parts, release


_lent: dict[int, Lent] = {}
_untaken: dict[int, Any] = {}  # their capsules, until a look finds that they were taken


def _give_back(address: int | None) -> None:
    one = _lent.pop(address or 0, None)
    _untaken.pop(address or 0, None)
    if one is not None:
        later(one.release)


_deleter = DELETER(_give_back)
_deleter_address = c.cast(_deleter, c.c_void_p).value


def hand_out(kind: type[Managed] | type[Versioned], device: tuple[int, int], dtype: Type, shape: tuple[int, ...], data: int,
             flags: int, release: Callable[[], None]) -> Any:
    """A capsule of a dense tensor; `release` is called once, when its taker gives it back, or nobody took it."""
    sweep()
    rank = len(shape)
    extents, strides, step = (c.c_int64 * (rank or 1))(*shape), (c.c_int64 * (rank or 1))(), 1
    for i in reversed(range(rank)):
        strides[i] = step
        step *= shape[i] or 1
    managed = kind()
    code, bits = CODES[dtype]
    managed.tensor = DLTensor(data, device[0], device[1], rank, code, bits, 1, c.cast(extents, c.POINTER(c.c_int64)),
                              c.cast(strides, c.POINTER(c.c_int64)), 0)
    managed.deleter = _deleter_address
    if isinstance(managed, Versioned):
        managed.major, managed.minor, managed.flags = *VERSION, flags
    address = c.addressof(managed)
    capsule = _new(address, NAMES[kind][0], None)
    _lent[address], _untaken[address] = Lent(managed, (extents, strides), release), capsule
    return capsule


def sweep() -> None:
    """Gives back what nobody has taken out of its capsule, or can any more."""
    for address in list(_untaken):
        capsule = _untaken.pop(address, None)
        if capsule is None or not any(_is(capsule, name) for name, _ in NAMES.values()):
            continue  # another thread looks at it, or it was taken: the deleter comes
        if sys.getrefcount(capsule) > 2:  # `capsule`, and the argument
            _untaken[address] = capsule
        else:
            _give_back(address)


@atexit.register
def _forget() -> None:
    """At the end of the program: takers that give back after Python's end find no deleter, and the structures stay."""
    for one in _lent.values():
        one.managed.deleter = None
        _keep(one)


for _name in (*NAMES[Managed], *NAMES[Versioned]):
    _keep(_name)


# ---- taking ------------------------------------------------------------------

class Taken:
    """What another library handed out, until `close`."""

    def __init__(self, capsule: Any) -> None:
        for kind, (name, used) in NAMES.items():
            if _is(capsule, name):
                break
        else:
            raise BufferError("it has no capsule 'dltensor' or 'dltensor_versioned' that was not taken before")
        self._address: int = _pointer(capsule, name)
        self._managed = kind.from_address(self._address)
        _rename(capsule, used)
        if isinstance(self._managed, Versioned) and self._managed.major != VERSION[0]:
            version = f"{self._managed.major}.{self._managed.minor}"
            self.close()
            raise BufferError(f"its capsule is of DLPack {version}; 1 is known")
        self.tensor: DLTensor = self._managed.tensor

    def close(self) -> None:
        address, self._address = self._address, 0
        deleter = self._managed.deleter if address else None
        if deleter:
            DELETER(deleter)(address)
