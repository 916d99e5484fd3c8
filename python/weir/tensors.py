"""What goes into a model and comes out of it, in Python's terms.

In: a str is UTF-8 text; bytes are text where the model takes text, else bytes; what has `__dlpack__` (an array of NumPy's, CuPy's,
PyTorch's) or a buffer (an array.array, a memoryview) is a tensor of its shape; numbers and nested lists become a NumPy array of the type
that the input has: real ones are rounded to the nearest (for float8 by the package ml_dtypes), and fractions and what is out of range are
no whole numbers. An array of ml_dtypes' is one of its type. Tensors are read where they lie. Copied is what cannot be: of the host's
memory what is not contiguous in row-major order, and read-only buffers of what has no `__dlpack__`. On a device that is refused.

Out: text is a str; a tensor is a NumPy array of its own, or without NumPy a memoryview of its shape. bfloat16 and the float8 types,
which NumPy has not, are arrays of their bits: uint16 and uint8. Without NumPy so is float16."""

from __future__ import annotations

import ctypes as c
import importlib
import math
import numbers
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ._c import dlpack
from ._c import structures as s
from ._c.library import check, lib, text, to_bytes
from ._convert import BY_NAME, of_numbers
from .errors import Invalid
from .names import Type

FORMATS = {Type.F32: "f", Type.F64: "d", Type.F16: "e", Type.BF16: "H", Type.I8: "b", Type.I16: "h", Type.I32: "i", Type.I64: "q",
           Type.U8: "B", Type.U16: "H", Type.U32: "I", Type.U64: "Q", Type.BOOL: "?", Type.F8E4M3FN: "B", Type.F8E4M3FNUZ: "B",
           Type.F8E5M2: "B", Type.F8E5M2FNUZ: "B"}
BITS = {Type.BF16: "H", Type.F8E4M3FN: "B", Type.F8E4M3FNUZ: "B", Type.F8E5M2: "B", Type.F8E5M2FNUZ: "B"}
TYPES = {"f": Type.F32, "d": Type.F64, "e": Type.F16, "b": Type.I8, "h": Type.I16, "i": Type.I32, "l": Type.I64, "q": Type.I64,
         "B": Type.U8, "H": Type.U16, "I": Type.U32, "L": Type.U64, "Q": Type.U64, "?": Type.BOOL}


def numpy() -> Any:
    """The module, or None where it is not installed."""
    try:
        return importlib.import_module("numpy")
    except ImportError:
        return None


def setting_text(value: object) -> str:
    """A setting's value as engines take it: True is "on", a list of texts has one a line."""
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return "\n".join(setting_text(each) for each in value)
    if isinstance(value, numbers.Real):  # NumPy's are, too
        return str(int(value) if isinstance(value, numbers.Integral) else float(value))
    raise TypeError(f"a setting is a text, a number, a bool or a list of texts, not {type(value).__name__}")


def settings_array(settings: Mapping[str, object]) -> Any:
    """The array of weir_setting; it keeps its texts."""
    array = (s.weir_setting * len(settings))()
    for each, (key, value) in zip(array, settings.items()):
        each.key, each.value = to_bytes(key, "a setting"), to_bytes(setting_text(value), f"the setting {key}")
    return array


class Given:
    """One input: a dense tensor at an address, which is good until `close`."""

    def __init__(self, kind: Type, shape: tuple[int, ...], kept: Any, address: int, size: int, on_device: bool = False) -> None:
        if len(shape) > s.MAX_RANK:
            raise ValueError(f"it has {len(shape)} dimensions; at most {s.MAX_RANK} are taken")
        self.kind, self.shape, self.kept, self.address, self.size, self.on_device = kind, shape, kept, address, size, on_device

    def close(self) -> None:
        if isinstance(self.kept, dlpack.Taken):
            self.kept.close()


def _copied(data: Any, kind: Type, shape: tuple[int, ...]) -> Given:
    size = memoryview(data).nbytes
    array = (c.c_ubyte * size).from_buffer_copy(data)
    return Given(kind, shape, array, c.addressof(array), size)


def _of_buffer(value: Any, wanted: Type) -> Given:
    view = memoryview(value)
    letter = view.format.lstrip("@=<")
    if letter not in TYPES or (letter in "lL" and view.itemsize != 8):
        raise TypeError(f"it has elements of the format '{view.format}', which weir has no type for")
    kind = wanted if BITS.get(wanted) == letter else TYPES[letter]
    shape = tuple(view.shape or ())
    if not view.c_contiguous:
        return _copied(view.tobytes(), kind, shape)
    if view.readonly:
        return _copied(view, kind, shape)
    array = (c.c_ubyte * view.nbytes).from_buffer(view)
    return Given(kind, shape, array, c.addressof(array), view.nbytes)


# ---- DLPack ------------------------------------------------------------------

def _dense(shape: tuple[int, ...], strides: Iterable[int]) -> bool:
    step = 1
    for extent, stride in reversed(list(zip(shape, strides))):
        if extent != 1 and stride != step:
            return math.prod(shape) == 0
        step *= extent
    return True


def _gather(address: int, width: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    """The elements in row-major order, of memory of the host's."""
    if not shape:
        return c.string_at(address, width)
    return b"".join(_gather(address + i * strides[0] * width, width, shape[1:], strides[1:]) for i in range(shape[0]))


def _of_taken(taken: dlpack.Taken, value: Any, wanted: Type, on_device: bool) -> Given:
    tensor = taken.tensor
    kind = dlpack.TYPES.get((tensor.code, tensor.bits), Type.NONE) if tensor.lanes == 1 else Type.NONE
    if kind == Type.NONE:
        raise TypeError(f"it has elements of DLPack's type {tensor.code} with {tensor.bits} bits and {tensor.lanes} lanes, which weir "
                        "has no type for")
    shape = tuple(tensor.shape[:tensor.rank])
    width = tensor.bits // 8
    size, address = math.prod(shape) * width, (tensor.data or 0) + tensor.offset
    if BITS.get(wanted) == FORMATS[kind]:
        kind = wanted
    if not tensor.strides or _dense(shape, tensor.strides[:tensor.rank]):
        return Given(kind, shape, taken, address, size, on_device)
    if on_device:
        raise ValueError("it is not contiguous in row-major order, and not copied on a device: make it contiguous")
    strides = tuple(tensor.strides[:tensor.rank])
    given = _copied(memoryview(value).tobytes() if has_buffer(value) else _gather(address, width, shape, strides), kind, shape)
    taken.close()
    return given


def has_buffer(value: Any) -> bool:
    try:
        memoryview(value).release()
    except (TypeError, ValueError, BufferError):
        return False
    return True


def _is_masked(value: Any) -> bool:
    """Whether something of NumPy's is masked there, which no model would know of: its data are whatever lies below."""
    masked = sys.modules.get("numpy.ma")
    if masked is None:
        return False
    if isinstance(value, (list, tuple)):
        return any(type(each) not in (int, float, bool) and _is_masked(each) for each in value)
    return isinstance(value, masked.MaskedArray) and bool(masked.is_masked(value))


def _capsule(value: Any, **words: Any) -> Any:
    try:
        return value.__dlpack__(max_version=dlpack.VERSION, **words)
    except TypeError:  # of a time before versions
        return value.__dlpack__(**words)


class Inputs:
    """The inputs of one run as an array of weir_tensor. `with` keeps the memory, and gives it back."""

    def __init__(self, inputs: Mapping[str, Any], wanted: Mapping[str, Type], device: str, runtime: int) -> None:
        self._device, self._runtime = device, runtime
        self.stream = s.weir_stream(0)  # what inputs on a device are ordered on
        self.array = (s.weir_tensor * len(inputs))()
        self._given: list[Given] = []
        try:
            for tensor, (name, value) in zip(self.array, inputs.items()):
                self._fill(tensor, name, self._described(name, value, wanted.get(name, Type.NONE)))
        except BaseException:
            self.close()
            raise

    def _fill(self, tensor: Any, name: str, given: Given) -> None:
        self._given.append(given)
        tensor.struct_size, tensor.name, tensor.type, tensor.rank = c.sizeof(s.weir_tensor), to_bytes(name), given.kind, len(given.shape)
        tensor.shape[:len(given.shape)] = given.shape
        tensor.data, tensor.bytes, tensor.on_device = given.address, given.size, given.on_device

    def _described(self, name: str, value: Any, wanted: Type) -> Given:
        if isinstance(value, str):
            try:
                value, wanted = value.encode(), Type.TEXT
            except UnicodeEncodeError as error:
                raise ValueError(f"the input '{name}' is a str that is no UTF-8 text: {error}") from None
        if isinstance(value, (bytes, bytearray)) and wanted == Type.TEXT:
            return _copied(value, Type.TEXT, (len(value),))
        np = sys.modules.get("numpy")  # nothing is of NumPy where it was not imported
        try:
            if _is_masked(value):
                raise ValueError("elements of it are masked, which a model is not told: give .filled(VALUE), or .compressed()")
            if isinstance(value, (int, float, list, tuple)) or (np and wanted in FORMATS and isinstance(value, np.generic)):
                value = _array(value, wanted)
            elif np and isinstance(value, np.ndarray) and value.dtype.name in BY_NAME:
                wanted = BY_NAME[value.dtype.name]
                value = value.view(FORMATS[wanted])
            if hasattr(type(value), "__dlpack__"):
                given = self._of_dlpack(value, wanted)
                if given is not None:
                    return given
            return _of_buffer(value, wanted)
        except Invalid as error:
            raise Invalid(f"the input '{name}': {error}") from None
        except (TypeError, ValueError, OverflowError, BufferError) as error:
            kind = ValueError if isinstance(error, (ValueError, OverflowError)) else TypeError
            raise kind(f"the input '{name}' is a {type(value).__name__}: {error}") from None

    def _of_dlpack(self, value: Any, wanted: Type) -> Given | None:
        """None: its library does not hand it out so, and a buffer of it may do."""
        kind, ordinal = value.__dlpack_device__()
        on_device = int(kind) not in dlpack.ADDRESSABLE
        try:
            capsule = _capsule(value, stream=self._ordered(value, int(kind), int(ordinal))) if on_device else _capsule(value)
            taken = dlpack.Taken(capsule)
        except BufferError:
            if has_buffer(value):
                return None
            raise
        try:
            return _of_taken(taken, value, wanted, on_device)
        except BaseException:
            taken.close()
            raise

    def _ordered(self, value: Any, kind: int, ordinal: int) -> int:
        """The driver's stream that a tensor there is to be ready on; -1: weir's own is ready."""
        there = f"cuda:{ordinal}" if kind == dlpack.CUDA else f"a device of DLPack's kind {kind}"
        if there != self._device:
            raise Invalid(f"it lies on {there}, and the model on {self._device}")
        if type(value).__module__.partition(".")[0] == __package__:
            return -1
        if not self.stream.id:
            check(lib.weir_stream_acquire(self._runtime, c.byref(self.stream)))
        return int(lib.weir_stream_native(self.stream))

    def close(self) -> None:
        for given in self._given:
            given.close()
        self._given.clear()
        if self.stream.id:
            stream, self.stream = self.stream, s.weir_stream(0)
            check(lib.weir_stream_release(stream))

    def __enter__(self) -> Inputs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _array(value: Any, wanted: Type) -> Any:
    np = numpy()
    if np is None or wanted not in FORMATS:
        raise TypeError(f"give a str, bytes or an array{'' if np else '; lists are taken where NumPy is installed'}")
    return of_numbers(np, value, wanted, FORMATS[wanted])


# ---- results -----------------------------------------------------------------

def array_of(data: bytearray | memoryview, kind: Type, shape: tuple[int, ...]) -> Any:
    """A NumPy array over the bytes, or without NumPy a memoryview."""
    np = numpy()
    if np is not None:
        return np.frombuffer(data, dtype=FORMATS[kind]).reshape(shape)
    letter = "H" if kind == Type.F16 else FORMATS[kind]
    view: Any = memoryview(data)  # its cast takes a letter that is not known beforehand
    return view.cast(letter, shape) if data and shape else view.cast(letter)


def copy_of(tensor: s.weir_tensor) -> Any:
    """A copy of a result in the host's memory."""
    data = bytearray(c.string_at(tensor.data, tensor.bytes) if tensor.bytes else b"")
    kind = Type(tensor.type)
    return data.decode("utf-8", "replace") if kind == Type.TEXT else array_of(data, kind, tuple(tensor.shape[:tensor.rank]))


def each_of(outputs: s.weir_outputs) -> dict[str, s.weir_tensor]:
    """A run's results by name."""
    stride = s.weir_tensor.from_address(outputs.tensors).struct_size if outputs.count else 0
    found = [s.weir_tensor.from_address(outputs.tensors + i * stride) for i in range(outputs.count)]
    return {text(tensor.name): tensor for tensor in found}
