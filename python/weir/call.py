"""Prepared calls: a model's request that is made again and again, over inputs and outputs that stay where they are."""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._c import structures as s
from ._c.library import check, lib, text
from ._handle import Handle, once
from .errors import Unsupported
from .names import Type
from .tensors import Inputs, array_of, settings_array

if TYPE_CHECKING:
    from .model import Model


class Call(Handle):
    """A call of a model with its inputs in place; `Model.prepare` makes it.

    `inputs` has an array for each of its inputs, which every run reads: `call.inputs["x"][:] = values`. `call()` makes a run and answers
    `outputs`, arrays by name that the next run writes again: copy what is to be kept. Only where a run's outputs have other shapes, or
    texts among them, is there another dict. Without NumPy both are memoryviews. Errors are those of a call of the model, and leave the
    outputs as they were. One thread at a time uses a call, `Busy`; each prepares its own. It is closed before the model, or by its
    `close`; the arrays stay good."""

    _kind = "call"

    def __init__(self, model: Model, inputs: Mapping[str, Any], settings: Mapping[str, object]) -> None:
        super().__init__(f"of {model._label}")
        self._model = model  # it stays while there are calls of it
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        self._results, self._layout, self._texts = s.weir_model_call_results(), 0, False
        self._into = c.byref(self._results)
        self._rooms: dict[int, bytearray] = {}
        self._data: list[bytearray] = []
        chosen, kept = settings_array(settings), self._read(inputs)
        inference = s.weir_inference(inputs=kept, input_count=len(kept), settings=chosen, setting_count=len(chosen))
        options = s.weir_model_call_options(room=_room(self._rooms))
        self._keeps = kept, options.room
        with model._use() as pointer:
            self._make(lib.weir_model_call_create, pointer, c.byref(inference), c.byref(options), c.byref(self._out))

    def _read(self, inputs: Mapping[str, Any]) -> Any:
        """The inputs as tensors in memory of the call's."""
        place = self._model._place
        with Inputs(inputs, self._model._wanted, place.device, place.runtime) as its:
            for tensor, (name, value) in zip(its.array, inputs.items()):
                if tensor.on_device:
                    raise Unsupported(f"the input '{name}' lies on a device; a prepared call has its inputs on the host")
                data = bytearray(c.string_at(tensor.data, tensor.bytes) if tensor.bytes else b"")
                self._data.append(data)
                kind = Type(tensor.type)
                self.inputs[name] = value if kind == Type.TEXT else array_of(data, kind, tuple(tensor.shape[:tensor.rank]))
                tensor.data = _address(data)
            return its.array

    def _end(self, pointer: int, told: list[Any]) -> None:
        once(told, lib.weir_model_call_destroy, pointer)

    def __call__(self) -> dict[str, Any]:
        """Makes a run and answers `outputs`."""
        with self._use() as pointer:
            status = lib.weir_model_call_run(pointer, self._into)
            if status:
                check(status)
            if self._results.layout != self._layout or self._texts:
                self._look()
            return self.outputs

    def _look(self) -> None:
        """The outputs lie elsewhere, or look otherwise, than those of the run before."""
        found = [s.weir_tensor.from_address(self._results.tensors + i * c.sizeof(s.weir_tensor)) for i in range(self._results.count)]
        for tensor in found:
            if tensor.on_device:
                raise Unsupported(f"the output '{text(tensor.name)}' is left on a device; a prepared call has its outputs on the host")
        self._texts = any(tensor.type == Type.TEXT for tensor in found)
        self.outputs = {text(tensor.name): self._value(tensor, self._rooms[i]) for i, tensor in enumerate(found)}
        self._layout = self._results.layout

    def _value(self, tensor: s.weir_tensor, room: bytearray) -> Any:
        kind, data = Type(tensor.type), memoryview(room)[:tensor.bytes]
        return str(data, "utf-8", "replace") if kind == Type.TEXT else array_of(data, kind, tuple(tensor.shape[:tensor.rank]))


def _address(data: bytearray) -> int:
    """Of its bytes, which do not move while arrays are made of them."""
    return c.addressof((c.c_ubyte * len(data)).from_buffer(data)) if data else 0


def _room(rooms: dict[int, bytearray]) -> Any:
    """What gives memory for results: the newest of each is in `rooms`, and arrays keep the one that they are of."""
    def give(index: int, size: int, _user: int | None) -> int:
        rooms[index] = bytearray(size)
        return _address(rooms[index])
    return s.weir_model_call_room_fn(give)
