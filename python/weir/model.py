"""Models: loaded by an engine, with an account of their own; run whole, or piece by piece."""

from __future__ import annotations

import ctypes as c
import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping
from typing import Any

from ._c import structures as s
from ._c.library import check, lib, text, to_bytes
from ._handle import Handle
from .errors import NotFound
from .machine import parse_size
from .names import Type
from .runtime import Runtime
from .statistics import ClientStats, client_stats
from .stream import Piece, Run, Stream
from .tensors import input_array, output_values, settings_array

_ids = itertools.count(1)


@dataclasses.dataclass(frozen=True)
class Port:
    """An input or output of a model."""

    name: str
    type: Type
    shape: tuple[int, ...]  # -1: any extent
    optional: bool


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """What a model is."""

    engine: str
    version: str  # of the engine
    provider: str
    architecture: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    generates: bool  # it answers piece by piece: `Model.stream`
    remarks: str  # what stays outside of its account, and why; "" if nothing
    shares: Mapping[str, tuple[int, int]]  # by provider: the nodes or layers that it runs, of how many


@dataclasses.dataclass(frozen=True)
class Metrics:
    """What a model has done."""

    runs: int
    failures: int
    cancelled: int
    tokens_in: int
    tokens_out: int
    busy_seconds: float
    sessions: int  # that the engine has now beside the first
    sessions_failed: int


class Model(Handle):
    """A loaded model; `weir.load` makes one. Any number of threads may run it at once. `close` ends its streams and unloads it;
    `Busy` while other runs are under way."""

    _kind = "model"

    def __init__(self, path: str | os.PathLike[str], options: s.weir_model_options, runtime: Runtime | None) -> None:
        out = c.c_void_p()
        check(lib.weir_model_create(to_bytes(path), c.byref(options), c.byref(out)))
        self._runs: set[Run] = set()
        self._runtime = runtime
        super().__init__(out.value or 0, os.fspath(path))
        self._wanted = {port.name: port.type for port in self.info().inputs}

    def _end(self, pointer: int) -> None:
        check(lib.weir_model_destroy(pointer))

    def close(self) -> None:
        if not self.closed:
            for run in self._runs.copy():
                run.end()
        super().close()

    def __call__(self, inputs: Mapping[str, Any] | str, **settings: object) -> dict[str, Any]:
        """Runs it once and answers the outputs by name.

        `inputs` has values by name: NumPy arrays or other buffers, str, bytes, numbers and lists (weir/tensors.py); a str alone is
        the input "text". Outputs are NumPy arrays (memoryviews without NumPy) and str; inputs and outputs are copied. `settings`
        are the engine's for one run, such as tokens=16. Errors: `Invalid` names a missing, unknown or ill-shaped input or a
        setting, `OutOfMemory`, `EngineFailed`, `Cancelled`."""
        return self._infer(inputs, settings, next(_ids), None)

    def stream(self, inputs: Mapping[str, Any] | str, **settings: object) -> Stream:
        """Runs it in a thread of its own and answers an iterator of the pieces of text that it makes, each a `Piece`.

        Arguments and errors are those of a call; the iterator raises the errors. Closing the iterator, leaving its `with` or
        dropping it cancels the run. `Unsupported` for a model that does not generate."""
        run = Run(next(_ids), self._cancel)
        given = {"text": inputs} if isinstance(inputs, str) else dict(inputs)

        def work() -> None:
            try:
                run.outputs = self._infer(given, settings, run.id, run.take)
            finally:
                self._runs.discard(run)

        with self._use():
            self._runs.add(run)
        run.start(work)
        return Stream(run)

    def _infer(self, inputs: Mapping[str, Any] | str, settings: Mapping[str, object], number: int,
               take: Callable[[bytes, int, int], bool] | None) -> dict[str, Any]:
        tensors, kept = input_array({"text": inputs} if isinstance(inputs, str) else inputs, self._wanted)
        chosen = settings_array(settings)
        inference = s.weir_inference(id=number, inputs=tensors, input_count=len(tensors), settings=chosen, setting_count=len(chosen))
        if take is not None:
            def piece(raw: Any, _user: int | None) -> bool:
                it = raw.contents
                return take(c.string_at(it.text, it.bytes) if it.bytes else b"", it.token, it.index)
            inference.piece = s.weir_piece_fn(piece)
        outputs = s.weir_outputs()
        with self._use() as pointer:
            check(lib.weir_model_infer(pointer, c.byref(inference), c.byref(outputs)))
            try:
                return output_values(outputs)
            finally:
                lib.weir_model_release_outputs(pointer, c.byref(outputs))
                del kept

    def _cancel(self, number: int) -> bool:
        with self._use() as pointer:
            try:
                check(lib.weir_model_cancel(pointer, number))
            except NotFound:
                return False
        return True

    def cancel(self) -> bool:
        """Stops every run: each raises `Cancelled`. False: there was none. `Unsupported` where the engine cannot."""
        return self._cancel(0)

    def warm_up(self) -> None:
        """Does what the first run would have to do otherwise. `Unsupported` where the engine has nothing of it."""
        with self._use() as pointer:
            check(lib.weir_model_warm_up(pointer))

    def info(self) -> ModelInfo:
        """What it is, and its inputs and outputs."""
        raw = s.weir_model_details()
        with self._use() as pointer:
            check(lib.weir_model_info(pointer, c.byref(raw)))
            return ModelInfo(text(raw.engine), text(raw.version), text(raw.provider), text(raw.architecture),
                             tuple(_port(raw.inputs[i]) for i in range(raw.input_count)),
                             tuple(_port(raw.outputs[i]) for i in range(raw.output_count)), raw.generates, text(raw.remarks),
                             {text(each.provider): (each.parts, each.of) for each in raw.shares[:raw.share_count]})

    def metrics(self) -> Metrics:
        """What it has done. `Unsupported` where the engine does not count."""
        raw = s.weir_engine_metrics()
        with self._use() as pointer:
            check(lib.weir_model_metrics(pointer, c.byref(raw)))
        return Metrics(*(getattr(raw, field.name) for field in dataclasses.fields(Metrics)))

    def stats(self) -> ClientStats:
        """The model's account."""
        raw = s.weir_client_stats()
        with self._use() as pointer:
            check(lib.weir_client_info(lib.weir_model_client(pointer), c.byref(raw)))
        return client_stats(raw)


def _port(raw: s.weir_port) -> Port:
    return Port(text(raw.name), Type(raw.type), tuple(raw.shape[:raw.rank]), raw.optional)


def load(path: str | os.PathLike[str], device: str = "host", *, runtime: Runtime | None = None, engine: str | None = None,
         client: str | None = None, maximum: int | str = 0, guarantee: int | str = 0,
         settings: Mapping[str, object] | None = None, **more: object) -> Model:
    """Loads a model: a file, or a folder of a language model.

    `device` is "host" or "cuda:0"; `runtime` one to use instead of the process's. `engine` is a name of `weir.engines()`; None: by
    the file. `client` names the model's account; None: the file's name; `maximum` and `guarantee` are its limits in bytes or texts
    such as "2GiB" (`Client`). Settings are the engine's, by keyword, or in `settings` where a name is no word of Python's. Errors:
    `NotFound` (file, engine, device), `Corrupt`, `Unsupported`, `OutOfMemory`, `EngineFailed`, `Invalid`; nothing is left then."""
    chosen = settings_array({**(settings or {}), **more})
    options = s.weir_model_options(name=to_bytes(client), engine=to_bytes(engine), device=to_bytes(device),
                                   guaranteed=parse_size(guarantee), maximum=parse_size(maximum), settings=chosen,
                                   setting_count=len(chosen))
    if runtime is None:
        return Model(path, options, None)
    with runtime._use() as pointer:
        options.runtime, options.device = pointer, None
        return Model(path, options, runtime)


__all__ = ["Metrics", "Model", "ModelInfo", "Piece", "Port", "Stream", "load"]
