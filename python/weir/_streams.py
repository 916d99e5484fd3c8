"""Streams of other libraries that use weir's memory on a device: weir knows them from then on, so that a free waits for them."""

from __future__ import annotations

import ctypes as c
import threading

from ._c import structures as s
from ._c.library import check, lib
from .errors import Error

LEGACY, PER_THREAD = 1, 2  # CUDA's default streams, as DLPack numbers them and CUDA's headers do

_known: dict[tuple[int, int, int], s.weir_stream] = {}  # by runtime, stream, and thread of a per-thread one


def known(runtime: int, native: int) -> s.weir_stream:
    """The stream as weir calls it. The per-thread one is the calling thread's."""
    key = runtime, native, threading.get_ident() if native == PER_THREAD else 0
    found = _known.get(key)
    if found is not None:
        return found
    out = s.weir_stream()
    if native in (LEGACY, PER_THREAD):
        check(lib.weir_stream_default(runtime, native - LEGACY, c.byref(out)))
    else:
        check(lib.weir_stream_register(runtime, native, c.byref(out)))
    _known[key] = out
    return out


def forget(runtime: int) -> None:
    """Of a runtime that ends."""
    for key in [key for key in list(_known) if key[0] == runtime]:
        stream = _known.pop(key, None)
        if stream is not None:
            check(lib.weir_stream_unregister(stream))


def used(runtime: int, pointer: int, stream: s.weir_stream) -> None:
    """What stands on the stream now has used the block at the pointer: its free waits for that. Memory that is not weir's is left."""
    details = s.weir_block_details()
    try:
        check(lib.weir_block_info(pointer, c.byref(details)))
        check(lib.weir_use_record(runtime, details.block, stream))
    except Error:  # a resource without uses: the work itself is waited for
        lib.weir_stream_synchronize(stream)
