"""Models: loaded by an engine, with an account of their own; run whole, or piece by piece."""

from __future__ import annotations

import contextlib
import ctypes as c
import dataclasses
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._c import structures as s
from ._c.library import check, lib, text, to_bytes
from ._handle import Handle, once
from ._later import inside
from ._place import Place
from .errors import NotFound, Unsupported
from .names import Class, Type
from .outputs import Outputs
from .residency import Presence, Residency, away, classes, presence, residency, wait_limit
from .runtime import HOST_STREAM, Client, Runtime
from .sizes import parse_size
from .statistics import ClientStats, client_stats
from .stream import Piece, Run, Stream
from .tensors import Inputs, copy_of, each_of, settings_array

if TYPE_CHECKING:
    from .astream import AsyncStream
    from .call import Call

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
    """A loaded model; `weir.load` makes one. Any number of threads may run it at once. `close` ends its streams and calls, gives its outputs
    back and unloads it; `Busy` while other runs are under way, BufferError while others have made arrays of its outputs."""

    _kind = "model"

    def __init__(self, path: str | os.PathLike[str], options: s.weir_model_options, runtime: Runtime | None,
                 client: Client | None = None) -> None:
        self._runs: set[Run] = set()
        self._runtime = runtime
        self._client = client
        self._kept: weakref.WeakValueDictionary[int, Outputs] = weakref.WeakValueDictionary()
        self._prepared: weakref.WeakValueDictionary[int, Call] = weakref.WeakValueDictionary()
        super().__init__(os.fspath(path))
        self._make(lib.weir_model_create, to_bytes(path), c.byref(options), c.byref(self._out))
        self._place = self._where()
        self._learn()

    def _learn(self) -> None:
        info = self.info()
        self._wanted, self._generates = {port.name: port.type for port in info.inputs}, info.generates

    def _end(self, pointer: int, told: list[Any]) -> None:
        once(told, lib.weir_model_destroy, pointer)

    def close(self) -> None:
        if not self.closed:
            for run in self._runs.copy():
                run.end()
            living: list[weakref.ref[Outputs] | weakref.ref[Call]] = [*self._kept.valuerefs(), *self._prepared.valuerefs()]
            for reference in living:
                handle = reference()
                if handle is not None:
                    handle.close()
        super().close()

    def __call__(self, inputs: Mapping[str, Any] | str, **settings: object) -> dict[str, Any]:
        """Runs it once and answers the outputs by name.

        `inputs` has values by name: arrays, buffers, str, bytes, numbers and lists (weir/tensors.py); a str alone is the input
        "text". Outputs are copied: NumPy arrays (memoryviews without NumPy) and str; those that the engine leaves on a device are
        `Tensor`s there. `settings` are the engine's for one run, such as tokens=16. Errors: `Invalid` names a missing, unknown or
        ill-shaped input or a setting, `OutOfMemory`, `EngineFailed`, `Cancelled`. Ctrl-C cancels a run of a model that generates; that of
        another model ends before."""
        if not self._generates or threading.current_thread() is not threading.main_thread():
            return self._answer(inputs, settings, next(_ids), None)
        run = Run(next(_ids), self._cancel)

        def work() -> None:
            run.outputs = self._answer(inputs, settings, run.id, None)
        return run.result(work)

    def infer(self, inputs: Mapping[str, Any] | str, **settings: object) -> Outputs:
        """The same, and the outputs stay where the engine left them, until they are closed."""
        return self._infer(inputs, settings, next(_ids), None)

    def prepare(self, inputs: Mapping[str, Any], **settings: object) -> Call:
        """A `Call`, for a request that is made many times over: its inputs and outputs are arrays that stay where they are.

        `inputs` and `settings` are those of a call of the model; the inputs' types and shapes stay, and what is in them is the first
        run's, until something else is written there. `Unsupported` for a model that generates, and for inputs on a device."""
        from .call import Call
        if self._generates:
            raise Unsupported("a model that generates answers text of any length, piece by piece: a call or a stream of it has that")
        call = Call(self, inputs, settings)
        self._prepared[next(_ids)] = call
        return call

    def stream(self, inputs: Mapping[str, Any] | str, **settings: object) -> Stream:
        """Runs it in a thread of its own and answers an iterator of the pieces of text that it makes, each a `Piece`.

        Arguments and errors are those of a call; the iterator raises the errors. Closing the iterator, leaving its `with` or
        dropping it cancels the run. `Unsupported` for a model that does not generate."""
        run, start = self._run(inputs, settings, True)
        start()
        return Stream(run)

    def astream(self, inputs: Mapping[str, Any] | str, **settings: object) -> AsyncStream:
        """The same for `async for`, in a program of asyncio's: waiting for a piece does not hold the loop up."""
        from .astream import AsyncStream  # it imports asyncio
        return AsyncStream(*self._run(inputs, settings, True))

    async def acall(self, inputs: Mapping[str, Any] | str, **settings: object) -> dict[str, Any]:
        """A call whose run has a thread of its own. Cancelling the task cancels the run, and waits until it has ended."""
        from .astream import AsyncStream
        async with AsyncStream(*self._run(inputs, settings, False)) as run:
            async for _ in run:
                pass
            return run.outputs

    def _run(self, inputs: Mapping[str, Any] | str, settings: Mapping[str, object], pieces: bool) -> tuple[Run, Callable[[], None]]:
        """A run, and what starts it."""
        run = Run(next(_ids), self._cancel)
        given = {"text": inputs} if isinstance(inputs, str) else dict(inputs)

        def work() -> None:
            try:
                run.outputs = self._answer(given, settings, run.id, run.take if pieces else None)
            finally:
                self._runs.discard(run)

        def start() -> None:
            with self._use():
                self._runs.add(run)
            run.start(work)
        return run, start

    def _answer(self, inputs: Mapping[str, Any] | str, settings: Mapping[str, object], number: int,
                take: Callable[[bytes, int, int], bool] | None) -> dict[str, Any]:
        outputs = self._infer(inputs, settings, number, take)
        found = each_of(outputs._raw)
        answer = {name: outputs[name] if tensor.on_device else copy_of(tensor) for name, tensor in found.items()}
        if not any(tensor.on_device for tensor in found.values()):
            outputs.close()
        return answer

    def _infer(self, inputs: Mapping[str, Any] | str, settings: Mapping[str, object], number: int,
               take: Callable[[bytes, int, int], bool] | None) -> Outputs:
        chosen, outputs = settings_array(settings), Outputs(self._label, self._use, self._place)
        inference = s.weir_inference(id=number, settings=chosen, setting_count=len(chosen))
        if take is not None:
            def piece(raw: Any, _user: int | None) -> bool:
                it = raw.contents
                with inside:
                    return take(c.string_at(it.text, it.bytes) if it.bytes else b"", it.token, it.index)
            inference.piece = s.weir_piece_fn(piece)
        given = {"text": inputs} if isinstance(inputs, str) else inputs
        with self._use() as pointer, Inputs(given, self._wanted, self._place.device, self._place.runtime) as its:
            inference.inputs, inference.input_count, inference.stream = its.array, len(its.array), its.stream
            outputs._fill(lib.weir_model_infer, pointer, c.byref(inference))
            self._kept[number] = outputs
        return outputs

    def _where(self) -> Place:
        details = s.weir_runtime_details()
        with self._use() as pointer:
            runtime = lib.weir_client_runtime(lib.weir_model_client(pointer))
            check(lib.weir_runtime_info(runtime, c.byref(details)))
            return Place(text(details.device), runtime)

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

    def suspend(self, *, refuse_runs: bool = False, at_once: bool = False, wait: float | None = None, stay: Iterable[Class] = (),
                drop: Iterable[Class] = (), unwritten: Iterable[Class] = (), verify: bool = False, keep_guarantee: bool = False,
                folder: str | os.PathLike[str] | None = None, show: bool = False,
                step: str | int = 0) -> Residency:
        """Takes the device's memory from it between two runs; the next run resumes it, or is `Busy` with `refuse_runs`.

        Runs under way are waited for, at most `wait` seconds (None: as long as they take), or are in the way with `at_once`: `Busy`.
        So are outputs that are not closed. The other options are those of `Client.suspend`; the engine adds what it knows of its
        memory. With `show`, where the device can, the next run is answered from the host's memory, and the model comes back between
        runs, `step` bytes at a time (0: 64 MiB). `Unsupported` where the engine cannot, or not with this model. Errors change nothing."""
        options = s.weir_model_suspend_options(refuse_runs=refuse_runs, at_once=at_once, wait=wait_limit(wait), stay=classes(stay),
                                               drop=classes(drop), unwritten=classes(unwritten), verify=verify,
                                               keep_guarantee=keep_guarantee, folder=to_bytes(folder), show=show,
                                               step=parse_size(step))
        raw = s.weir_residency()
        with self._use() as pointer:
            check(lib.weir_model_suspend(pointer, c.byref(options), c.byref(raw)))
        return residency(raw)

    def resume(self, *, behind: bool = False) -> None:
        """Brings it back; its contents are there when this returns. A failure, such as `OutOfMemory`, leaves it suspended.

        With `behind` a model that was suspended with `show` comes back while it is used, as after a run, and this returns when
        it can be used; `residency` tells how far it is. `Busy` while outputs are not closed, if it has been used since."""
        with self._use() as pointer:
            check(lib.weir_model_resume_behind(pointer) if behind else lib.weir_model_resume(pointer, HOST_STREAM))

    def exchange(self, comes: Model, *, refuse_runs: bool = False, at_once: bool = False, wait: float | None = None,
                 stay: Iterable[Class] = (), drop: Iterable[Class] = (), unwritten: Iterable[Class] = (), verify: bool = False,
                 keep_guarantee: bool = False, folder: str | os.PathLike[str] | None = None) -> Residency:
        """Suspends it, with the options of `suspend`, while the suspended model `comes` is resumed, under a budget that need not hold
        both: piece by piece the one's memory passes to the other. Runs of both wait meanwhile.

        All or nothing: an error leaves `comes` suspended, and this model as it was, but for contents of the classes `drop`. After a
        second failure this one is suspended too, with nothing lost; where the engine of `comes` fails, the places are changed;
        `residency` tells both. `Busy` also where `comes` is not suspended or is used while it comes back; `Invalid` for models on
        two runtimes; `OutOfMemory` where `comes` needs more than this model gives and others leave."""
        options = s.weir_model_suspend_options(refuse_runs=refuse_runs, at_once=at_once, wait=wait_limit(wait), stay=classes(stay),
                                               drop=classes(drop), unwritten=classes(unwritten), verify=verify,
                                               keep_guarantee=keep_guarantee, folder=to_bytes(folder))
        raw = s.weir_residency()
        with self._use() as pointer, comes._use() as other:
            check(lib.weir_model_exchange(pointer, c.byref(options), other, HOST_STREAM, c.byref(raw)))
        return residency(raw)

    def suspended(self, **options: Any) -> contextlib.AbstractContextManager[Residency]:
        """`with model.suspended():` suspends it, with the options of `suspend`, and resumes it at the end."""
        return away(lambda: self.suspend(**options), self.resume)

    @property
    def residency(self) -> Presence:
        """Whether it is here, and when it was suspended and resumed."""
        raw = s.weir_model_presence()
        with self._use() as pointer:
            check(lib.weir_model_residency(pointer, c.byref(raw)))
        return presence(raw)

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

    def _repr_html_(self) -> str:
        from . import picture
        name = os.path.basename(self._label)
        if self.closed:
            return picture.gone("model", name)
        details, info = s.weir_runtime_details(), self.info()
        check(lib.weir_runtime_info(self._place.runtime, c.byref(details)))
        what = f"{name} ({info.engine} on {self._place.device})"
        return picture.of_client("model", what, self.stats(), details.budget)

    def stats(self) -> ClientStats:
        """The model's account."""
        raw = s.weir_client_stats()
        with self._use() as pointer:
            check(lib.weir_client_info(lib.weir_model_client(pointer), c.byref(raw)))
        return client_stats(raw)


def _port(raw: s.weir_port) -> Port:
    return Port(text(raw.name), Type(raw.type), tuple(raw.shape[:raw.rank]), raw.optional)


_rooms = ("whole", "auto")


def load(path: str | os.PathLike[str], device: str = "host", *, runtime: Runtime | None = None, engine: str | None = None,
         client: str | Client | None = None, maximum: int | str = 0, guarantee: int | str = 0, prepare: bool = False,
         residency: str = "whole", settings: Mapping[str, object] | None = None, **more: object) -> Model:
    """Loads a model: a file, or a folder of a language model.

    `device` is "host" or "cuda:0"; `runtime` one to use instead of the process's. `engine` is a name of `weir.engines()`; None: by
    the file. `client` names the model's account; None: the file's name; `maximum` and `guarantee` are its limits in bytes or texts
    such as "2GiB" (`Client`). A `Client` that was opened before, with its limits, is the account itself, and its device the model's:
    so limits of several models bind before the first is loaded; it is closed after the model. `prepare`: once it is loaded, host memory
    for its first suspend is made ready in the background (`Client.prepare`). `residency`: "whole", or "auto": weights that find no room
    on the device begin in memory of the host's, runs read them there, and they come between runs as room appears; where the device
    cannot show such memory it is "whole". Settings are the engine's, by keyword, or in `settings` where a name is no word of Python's. Errors:
    `NotFound` (file, engine, device), `Corrupt`, `Unsupported`, `OutOfMemory`, `EngineFailed`, `Invalid`; nothing is left then."""
    if residency not in _rooms:
        raise ValueError(f"residency is one of {', '.join(_rooms)}, not '{residency}'")
    chosen = settings_array({**(settings or {}), **more})
    account = client if isinstance(client, Client) else None
    if account is not None and (maximum or guarantee):
        raise ValueError("a client that was opened before has its limits: Client.set_limits changes them")
    options = s.weir_model_options(name=None if isinstance(client, Client) else to_bytes(client), engine=to_bytes(engine), device=to_bytes(device),
                                   guaranteed=parse_size(guarantee), maximum=parse_size(maximum), settings=chosen,
                                   setting_count=len(chosen), prepare=prepare, residency=_rooms.index(residency))
    if account is not None:
        with account._use() as options.client:
            return Model(path, options, account.runtime, account)
    if runtime is None:
        return Model(path, options, None)
    with runtime._use() as pointer:
        options.runtime, options.device = pointer, None
        return Model(path, options, runtime)


__all__ = ["Metrics", "Model", "ModelInfo", "Piece", "Port", "Stream", "load"]
