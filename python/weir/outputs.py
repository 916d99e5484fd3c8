"""The results of one run where the engine left them."""

from __future__ import annotations

import ctypes as c
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from ._c import structures as s
from ._c.library import lib
from ._handle import Handle, once
from ._later import later
from ._place import Place
from .errors import Error
from .names import Type
from .tensor import Tensor
from .tensors import copy_of, each_of


class Outputs(Handle, Mapping[str, Any]):
    """The outputs of `Model.infer` by name: a `Tensor` each, and a str for text. `close` gives their memory back to the engine, and so
    does dropping them and their tensors. BufferError while arrays that others have made of them are alive."""

    _kind = "outputs"

    def __init__(self, name: str, use: Callable[[], AbstractContextManager[int]], place: Place) -> None:
        self._raw, self._use_model = s.weir_outputs(), use
        self._gone = False
        super().__init__(f"of {name}")
        self._place = place
        self._values: dict[str, Any] = {}

    @property
    def _pointer(self) -> int | None:
        return c.addressof(self._raw) if self._raw.count and not self._gone else None

    @_pointer.setter
    def _pointer(self, pointer: int | None) -> None:
        self._gone = pointer is None

    def _fill(self, function: Callable[..., int], *arguments: Any) -> None:
        """Of a run: calls what makes it."""
        self._make(function, *arguments, c.byref(self._raw))
        self._values = {key: self._value(tensor) for key, tensor in each_of(self._raw).items()}

    def _value(self, tensor: s.weir_tensor) -> Any:
        kind = Type(tensor.type)
        if kind == Type.TEXT:
            return copy_of(tensor)
        place = self._place if tensor.on_device else Place("host", self._place.runtime)
        return _Place(place, tensor.data or 0, kind, tuple(tensor.shape[:tensor.rank]))

    def __getitem__(self, name: str) -> Any:
        with self._use():
            value = self._values[name]
            return Tensor(self, value.place, value.pointer, value.kind, value.shape) if isinstance(value, _Place) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _end(self, pointer: int, told: list[Any]) -> None:
        with self._use_model() as model:
            once(told, lib.weir_model_release_outputs, model, c.byref(self._raw))

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None and not sys.is_finalizing():
            later(self._drop)

    def _drop(self) -> bool:
        try:
            self.close()
        except (Error, BufferError):
            pass  # the model's close tells of it
        return self.closed


class _Place:
    """Where an output lies. No tensor: that would keep the outputs, and they it."""

    def __init__(self, place: Place, pointer: int, kind: Type, shape: tuple[int, ...]) -> None:
        self.place, self.pointer, self.kind, self.shape = place, pointer, kind, shape
