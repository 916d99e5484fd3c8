"""A tensor in memory of weir's, where it lies: a part of a block, or an output that its engine has not copied.

Other libraries take it without a copy: by DLPack (`numpy.from_dlpack(tensor)`, and torch's, CuPy's, JAX's), on a CUDA device also by
`__cuda_array_interface__` (`cupy.asarray`, Numba). What took it keeps it: the block, or the outputs, cannot be closed until then."""

from __future__ import annotations

import ctypes as c
import math
from typing import Any

from . import _streams
from ._c import dlpack
from ._c import structures as s
from ._c.library import check, lib
from ._handle import Handle
from ._later import later
from ._numbers import RANGES, whole
from ._place import Place
from .names import Type
from .tensors import FORMATS, array_of

HOST = (dlpack.CPU, 0)


def element_bytes(kind: Type) -> int:
    if kind not in dlpack.CODES:
        raise ValueError(f"{kind!r} is no tensor's type")
    return dlpack.CODES[kind][1] // 8


class Tensor:
    """A dense tensor in row-major order. It is good until what it is of is closed."""

    def __init__(self, owner: Handle, place: Place, pointer: int, kind: Type, shape: tuple[int, ...]) -> None:
        self.type = kind
        self.shape = shape
        self.bytes = math.prod(shape) * element_bytes(kind)
        self._owner, self._place, self._pointer, self._shown = owner, place, pointer, False

    @property
    def device(self) -> str:
        """Whose memory it is in: "host", or a device such as "cuda:0"."""
        return self._place.device

    @property
    def pointer(self) -> int:
        """Its address, in the device's memory. `Closed` when what it is of was closed."""
        with self._owner._use():
            return self._pointer

    def to_host(self) -> Any:
        """A copy in Python's own memory: a NumPy array, or without NumPy a memoryview of its shape."""
        return array_of(self._copy(), self.type, self.shape)

    def _copy(self) -> bytearray:
        data = bytearray(self.bytes)
        with self._owner._use():
            if self.bytes:
                to = (c.c_ubyte * self.bytes).from_buffer(data)
                check(lib.weir_copy(self._place.runtime, to, self._pointer, self.bytes, s.weir_stream(0)))
        return data

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._place.dlpack

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A capsule of the memory itself, or of a copy on the host where `copy` or `dl_device` asks for that.

        `stream` is the taker's on a CUDA device, as the array API has it: weir's free waits for what is on it when the taker has
        given the memory back. The memory is ready at once: nothing waits now. BufferError for what cannot be had."""
        here = self._place.dlpack
        wanted = here if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        kind = dlpack.Versioned if max_version is not None and max_version[0] >= dlpack.VERSION[0] else dlpack.Managed
        if wanted != here or copy:
            if wanted != HOST or copy is False:
                raise BufferError(f"a tensor on {self.device} is handed out there without a copy, or copied to the host")
            return self._hand_out_copy(kind)
        if here == HOST and stream is not None:
            raise ValueError("memory of the host's has no stream")
        return self._hand_out(kind, here, stream)

    def _hand_out_copy(self, kind: type[dlpack.Managed] | type[dlpack.Versioned]) -> Any:
        data = (c.c_ubyte * (self.bytes or 1)).from_buffer(self._copy() or bytearray(1))

        def release(kept: object = data) -> None:
            pass
        return dlpack.hand_out(kind, HOST, self.type, self.shape, c.addressof(data), dlpack.COPIED, release)

    def _hand_out(self, kind: type[dlpack.Managed] | type[dlpack.Versioned], here: tuple[int, int], stream: int | None) -> Any:
        owner, runtime, pointer = self._owner, self._place.runtime, self._pointer
        on = None if here == HOST or stream == -1 else _streams.known(runtime, _native(stream))
        owner._lend()

        def release() -> None:
            try:
                if on is not None:
                    _streams.used(runtime, pointer, on)
            finally:
                owner._take_back()
        try:
            return dlpack.hand_out(kind, here, self.type, self.shape, pointer, 0, release)
        except BaseException:
            owner._take_back()
            raise

    def cuda_array(self, lent: bool) -> dict[str, Any]:
        """What `__cuda_array_interface__` answers; with `lent` it counts as handed out until this object is gone."""
        if self.device.partition(":")[0] != "cuda":
            raise AttributeError(f"memory on {self.device} has no __cuda_array_interface__")
        if lent and not self._shown:
            self._owner._lend()
            self._shown = True
        return {"shape": self.shape, "typestr": typestr(self.type), "data": (self.pointer, False), "version": 3, "strides": None,
                "stream": None}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """As Numba defines it, version 3. A taker keeps this object, which counts as handed out until it is gone."""
        return self.cuda_array(lent=True)

    def __del__(self) -> None:
        if getattr(self, "_shown", False):
            later(self._owner._take_back)

    def __repr__(self) -> str:
        return f"<weir.Tensor {self.type.name.lower()} {list(self.shape)} on {self.device}>"


def _native(stream: int | None) -> int:
    if stream == 0:
        raise ValueError("the stream 0 can be either of CUDA's default streams: 1 is the legacy one, 2 the thread's")
    return _streams.LEGACY if stream is None else whole(stream, 1, RANGES[c.c_size_t][1], "a stream")


def typestr(kind: Type) -> str:
    """The type as NumPy writes it; of types that NumPy has not that of their bits."""
    letter = FORMATS[kind]
    if letter == "?":
        return "|b1"
    size = element_bytes(kind)
    return f"{'|' if size == 1 else '<'}{'f' if letter in 'efd' else 'i' if letter in 'bhiq' else 'u'}{size}"
