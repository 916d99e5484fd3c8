"""What goes into a model and comes out of it, in Python's terms. Everything is copied, on the way in and on the way out.

In: a str is UTF-8 text; bytes are text where the model takes text, else bytes; anything with a buffer (a NumPy array, an
array.array, a memoryview) is a tensor of its shape; numbers and nested lists become a NumPy array of the type that the input
has. Out: text is a str; a tensor is a NumPy array, or without NumPy a memoryview of its shape. bfloat16 and the float8 types,
which NumPy has not, are arrays of their bits: uint16 and uint8. Without NumPy so is float16."""

from __future__ import annotations

import ctypes as c
import importlib
import os
from collections.abc import Mapping
from typing import Any

from ._c import structures as s
from ._c.library import text, to_bytes
from .errors import Unsupported
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
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return "\n".join(str(each) for each in value)
    if isinstance(value, (str, int, float, os.PathLike)):
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    raise TypeError(f"a setting is a text, a number, a bool or a list of texts, not {type(value).__name__}")


def settings_array(settings: Mapping[str, object]) -> Any:
    """The array of weir_setting; it keeps its texts."""
    array = (s.weir_setting * len(settings))()
    for each, (key, value) in zip(array, settings.items()):
        each.key, each.value = to_bytes(key, "a setting"), to_bytes(setting_text(value), f"the setting {key}")
    return array


def _of_buffer(name: str, value: Any, wanted: Type) -> tuple[Type, tuple[int, ...], Any]:
    if isinstance(value, (int, float, list, tuple)):
        np = numpy()
        if np is None or wanted not in FORMATS:
            raise TypeError(f"the input '{name}' is a {type(value).__name__}: give a str, bytes or an array"
                            f"{'' if np else '; lists are taken where NumPy is installed'}")
        value = np.asarray(value, dtype=FORMATS[wanted])
    try:
        view = memoryview(value)
    except (TypeError, ValueError, BufferError) as error:
        raise TypeError(f"the input '{name}' is a {type(value).__name__}, not a str, bytes or an array: {error}") from None
    letter = view.format.lstrip("@=<")
    if letter not in TYPES or (letter in "lL" and view.itemsize != 8):
        raise TypeError(f"the input '{name}' has elements of the format '{view.format}', which weir has no type for")
    kind = wanted if BITS.get(wanted) == letter else TYPES[letter]
    if view.ndim > s.MAX_RANK:
        raise ValueError(f"the input '{name}' has {view.ndim} dimensions; at most {s.MAX_RANK} are taken")
    data = view if view.c_contiguous else view.tobytes()
    return kind, tuple(view.shape or ()), (c.c_ubyte * view.nbytes).from_buffer_copy(data)


def input_array(inputs: Mapping[str, Any], wanted: Mapping[str, Type]) -> tuple[Any, list[Any]]:
    """The array of weir_tensor, and the data that it points to, which has to live as long."""
    array, kept = (s.weir_tensor * len(inputs))(), []
    for tensor, (name, value) in zip(array, inputs.items()):
        described: tuple[Type, tuple[int, ...], Any]
        asked = wanted.get(name, Type.NONE)
        if isinstance(value, str):
            value, asked = value.encode(), Type.TEXT
        if isinstance(value, (bytes, bytearray)) and asked == Type.TEXT:
            described = Type.TEXT, (len(value),), (c.c_ubyte * len(value)).from_buffer_copy(value)
        else:
            described = _of_buffer(name, value, asked)
        kind, shape, data = described
        tensor.struct_size, tensor.name, tensor.type, tensor.rank = c.sizeof(s.weir_tensor), to_bytes(name), kind, len(shape)
        tensor.shape[:len(shape)] = shape
        tensor.data, tensor.bytes = c.addressof(data), len(data)
        kept.append(data)
    return array, kept


def _value(tensor: s.weir_tensor, name: str) -> Any:
    if tensor.on_device:
        raise Unsupported(f"the output '{name}' is in the device's memory: run without a setting that leaves it there")
    data = bytearray(c.string_at(tensor.data, tensor.bytes) if tensor.bytes else b"")
    kind, shape = Type(tensor.type), tuple(tensor.shape[:tensor.rank])
    if kind == Type.TEXT:
        return data.decode("utf-8", "replace")
    np = numpy()
    if np is not None:
        return np.frombuffer(data, dtype=FORMATS[kind]).reshape(shape)
    letter = "H" if kind == Type.F16 else FORMATS[kind]
    view: Any = memoryview(data)  # its cast takes a letter that is not known beforehand
    return view.cast(letter, shape) if data and shape else view.cast(letter)


def output_values(outputs: s.weir_outputs) -> dict[str, Any]:
    """Copies of a run's results by name."""
    values: dict[str, Any] = {}
    stride = s.weir_tensor.from_address(outputs.tensors).struct_size if outputs.count else 0
    for i in range(outputs.count):
        tensor = s.weir_tensor.from_address(outputs.tensors + i * stride)
        name = text(tensor.name)
        values[name] = _value(tensor, name)
    return values
