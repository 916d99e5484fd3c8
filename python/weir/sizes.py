"""The library's version, and sizes as text."""

from __future__ import annotations

import ctypes as c

from ._c.library import lib, text

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def version() -> str:
    """The version of the libweir that is running, such as "0.2.0"."""
    return text(lib.weir_version())


def parse_size(size: int | str) -> int:
    """Bytes: of a number as it is, of a text such as "512MiB", "1.5 GiB" or "4096". ValueError for anything else."""
    if isinstance(size, int):
        if size < 0:
            raise ValueError(f"{size} is less than no bytes")
        return size
    import re
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])iB|B)?\s*", size)
    if not found:
        raise ValueError(f"{size!r} is no size: write bytes as a number, or a text such as '512MiB' or '1.5 GiB'")
    return int(float(found[1]) * UNITS[found[2] or ""]) if "." in found[1] else int(found[1]) * UNITS[found[2] or ""]


def format_size(size: int) -> str:
    """Bytes as messages have them: "980 MiB", "1.5 GiB", "512 B"."""
    buffer = c.create_string_buffer(32)
    lib.weir_size_format(size, buffer, len(buffer))
    return text(buffer.value)
