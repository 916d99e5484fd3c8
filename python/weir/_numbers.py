"""Numbers on their way into libweir, whose types have a range: what does not fit is refused, and never cut."""

from __future__ import annotations

import ctypes as c
import operator

from .errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SECOND = 10**9
MOST_SECONDS = 9 * 10**9  # 285 years; in nanoseconds, and added to a clock, less than 2**64

# By the type that takes it.
RANGES: dict[Any, tuple[int, int]] = {}
_kind: Any
for _kind in (c.c_int8, c.c_int16, c.c_int32, c.c_int64, c.c_int, c.c_long, c.c_longlong, c.c_ssize_t):
    RANGES[_kind] = (-(1 << 8 * c.sizeof(_kind) - 1), (1 << 8 * c.sizeof(_kind) - 1) - 1)
for _kind in (c.c_uint8, c.c_uint16, c.c_uint32, c.c_uint64, c.c_uint, c.c_ulong, c.c_ulonglong, c.c_size_t):
    RANGES[_kind] = (0, (1 << 8 * c.sizeof(_kind)) - 1)


def shown(number: Any) -> str:
    """As messages have it. Python itself writes no number of thousands of digits."""
    return str(number) if not isinstance(number, int) or abs(number) < 1 << 128 else f"a whole number of {number.bit_length()} bits"


def whole(value: Any, least: int, most: int, what: str) -> int:
    """A whole number as Python's int, of NumPy as well. TypeError for a bool, a fraction or a text, `Invalid` for one out of range."""
    if isinstance(value, bool):
        raise TypeError(f"{what} is a whole number, not {value}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is a whole number, not {value!r}") from None
    if not least <= number <= most:
        raise Invalid(f"{what} is a number from {least} to {most}, not {shown(number)}")
    return number


def nanoseconds(seconds: Any, what: str = "a time") -> int:
    """Of seconds, at least 1 of what is more than nothing. TypeError for what is no number, `Invalid` for NaN, and for one below 0 or
    above 285 years."""
    kind = type(seconds)
    if isinstance(seconds, (bool, str)) or not (hasattr(kind, "__float__") or hasattr(kind, "__index__")):
        raise TypeError(f"{what} is a number of seconds, not {seconds!r}")
    try:
        fits = bool(0 <= seconds <= MOST_SECONDS)
    except (ArithmeticError, ValueError):  # a Decimal's NaN; an array
        fits = False
    if not fits:
        raise Invalid(f"{what} is a number of seconds from 0 to {MOST_SECONDS}, not {shown(seconds)}")
    return max(1, int(seconds * SECOND)) if seconds else 0


class Parameter:
    """A parameter of a C function: ctypes itself drops the upper bits of what is too large."""

    def __init__(self, kind: Any) -> None:
        self._kind, (self._least, self._most) = kind, RANGES[kind]

    def from_param(self, value: Any) -> Any:
        return value if isinstance(value, self._kind) else self._kind(whole(value, self._least, self._most, "a number for libweir"))


_parameters = {kind: Parameter(kind) for kind in RANGES}


def declare(library: c.CDLL, functions: dict[str, tuple[Any, list[Any]]]) -> None:
    """Tells ctypes what each function answers, and takes."""
    for name, (answer, arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = answer, [_parameters.get(kind, kind) for kind in arguments]


class Ranged(c.Structure):
    """A structure whose members of whole numbers take no other than fit."""

    _ranges: dict[str, tuple[int, int]] = {}

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls._ranges = {field[0]: RANGES[field[1]] for field in cls.__dict__.get("_fields_", ()) if field[1] in RANGES}

    def __setattr__(self, name: str, value: Any) -> None:
        found = self._ranges.get(name)
        super().__setattr__(name, value if found is None else whole(value, *found, name))
