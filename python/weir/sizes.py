"""The library's version, and sizes as text."""

from __future__ import annotations

import ctypes as c

from ._c.library import check, lib, text, to_bytes
from ._numbers import RANGES, whole
from .errors import Invalid


def version() -> str:
    """The version of the libweir that is running, such as "0.2.0"."""
    return text(lib.weir_version())


def parse_size(size: int | str) -> int:
    """Bytes: of a whole number as it is, of a text such as "512MiB", "1.5 GiB", "2g" or "4096" as the command reads it, in powers of
    1024. `Invalid` for less than none, 2**64 and more, and another text; TypeError for a fraction, a bool and whatever else."""
    if not isinstance(size, str):
        return whole(size, *RANGES[c.c_uint64], "a size")
    out = c.c_uint64()
    try:
        given = to_bytes(size.strip(), "a size")
    except ValueError:  # a character 0, or half of one: no text of libweir's
        raise Invalid(f"{size[:80]!r} is no size; write bytes or a number with a unit, such as 512MiB or 1.5g") from None
    check(lib.weir_size_parse(given, c.byref(out)))
    return out.value


def parse_budget(budget: int | str | None) -> int:
    """The same of a budget: None is 0, which libweir takes for "as it is, or the default"; nothing at all is `Invalid`."""
    size = 0 if budget is None else parse_size(budget)
    if size == 0 and budget is not None:
        raise Invalid("a budget of 0: it is at least 1 byte; None is the default")
    return size


def format_size(size: int) -> str:
    """Bytes as messages have them: "980 MiB", "1.5 GiB", "512 B"."""
    buffer = c.create_string_buffer(32)
    lib.weir_size_format(whole(size, *RANGES[c.c_uint64], "a size"), buffer, len(buffer))
    return text(buffer.value)
