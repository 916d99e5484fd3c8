"""Numbers and nested lists as NumPy arrays of the type that an input has: rounded as the type rounds, and refused where a whole number
would become another one."""

from __future__ import annotations

import importlib
from typing import Any

from ._numbers import shown
from .errors import Invalid
from .names import Type

# How ml_dtypes calls what NumPy has not, and the format of their bits.
EXTENDED = {Type.BF16: ("bfloat16", "H"), Type.F8E4M3FN: ("float8_e4m3fn", "B"), Type.F8E4M3FNUZ: ("float8_e4m3fnuz", "B"),
            Type.F8E5M2: ("float8_e5m2", "B"), Type.F8E5M2FNUZ: ("float8_e5m2fnuz", "B")}
BY_NAME = {name: kind for kind, (name, _) in EXTENDED.items()}


def of_numbers(np: Any, value: Any, wanted: Type, letter: str) -> Any:
    """An array of that type, whose format in memory is the letter; of the types that NumPy has not it has the bits. TypeError for what
    are no such numbers, as fractions for whole ones; `Invalid` for whole ones that the type has not."""
    found = np.asarray(value)
    if not found.size:
        return np.zeros(found.shape, letter)
    if wanted in EXTENDED:
        return _extended(np, found, wanted)
    target = np.dtype(letter)
    return _numbers(np, found, wanted).astype(target) if target.kind == "f" else _whole(np, value, found, wanted, target)


def _unfit(found: Any, wanted: Type) -> TypeError:
    return TypeError(f"what is {found.dtype.name} is no {wanted.name.lower()}: give such numbers, or an array of that type")


def _numbers(np: Any, found: Any, wanted: Type) -> Any:
    """As an array that NumPy converts to real ones."""
    kind = found.dtype.kind
    if kind in "biuf":
        return found
    if found.dtype.name in BY_NAME:
        return found.astype(np.float32)
    if kind == "O" and all(isinstance(each, (int, float)) for each in found.flat):  # whole numbers of more than 64 bits
        return found.astype(np.float64)
    raise _unfit(found, wanted)


def _whole(np: Any, value: Any, found: Any, wanted: Type, target: Any) -> Any:
    if found.dtype.kind not in "biu":  # a fraction, or whole numbers that NumPy has no type for together
        found = np.asarray(value, dtype=object)
        if not all(isinstance(each, (int, np.integer, np.bool_)) for each in found.flat):
            raise _unfit(np.asarray(value), wanted)
    least, most = (0, 1) if target.kind == "b" else (np.iinfo(target).min, np.iinfo(target).max)
    for each in (int(found.min()), int(found.max())):
        if not least <= each <= most:
            raise Invalid(f"{shown(each)} is no {wanted.name.lower()}, which are from {least} to {most}")
    return found.astype(target)


def _extended(np: Any, found: Any, wanted: Type) -> Any:
    name, letter = EXTENDED[wanted]
    if found.dtype.name == name:
        return found.view(letter)
    found = _numbers(np, found, wanted)
    try:
        return found.astype(getattr(importlib.import_module("ml_dtypes"), name)).view(letter)
    except (ImportError, AttributeError):
        if wanted == Type.BF16:
            return _brain(np, found)
    raise TypeError(f"numbers become {wanted.name.lower()} where the package ml_dtypes is installed (pip install ml_dtypes): else give their "
                    "bits, as an array of uint8")


def _brain(np: Any, found: Any) -> Any:
    """The bits of bfloat16: those of the nearest float32, rounded to the nearest, to the even one where two are as near."""
    bits = np.atleast_1d(found.astype(np.float32)).view(np.uint32)
    nan = (bits & 0x7fffffff) > 0x7f800000
    rounded = np.where(nan, bits | 0x400000, bits + (0x7fff + ((bits >> 16) & 1))) >> 16
    return rounded.astype(np.uint16).reshape(found.shape)
