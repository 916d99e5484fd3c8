"""What a model will take before it is loaded, and the best way to have it in so many bytes: weir/predict.h."""

from __future__ import annotations

import ctypes as c
import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from ._c import pooling as p
from ._c.library import check, lib, text, to_bytes
from .errors import Invalid
from .names import Class
from .sizes import parse_size
from .tensors import settings_array


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Bytes of one load, by class and in all."""

    engine: str
    provider: str
    device: str
    version: str  # of the engine; "": it was not asked for
    resident: int  # bytes when it is loaded and nothing runs
    peak: int  # bytes at the moment at which it has the most, loading and running
    least: int  # bytes that it has to have to be loaded and to begin a run
    resident_by_class: Mapping[Class, int]
    peak_by_class: Mapping[Class, int]
    host: int  # bytes on the host beside, of a model that is on a device
    context: int  # tokens of one sequence; 0: it has none, or it was not told
    sequences: int
    layers: int  # that it has, the output layer counted; 0: not told
    layers_on_device: int
    loads: int  # measured ones, of which it was learnt


@dataclasses.dataclass(frozen=True)
class Fit:
    """A way to have a model in so many bytes."""

    fits: bool  # else nothing does: `prediction` is of the least that is allowed
    context: int | None  # tokens: the setting "context"; None: as it is
    layers: int | None  # the setting "gpu_layers"; None: as it is
    prediction: Prediction


def predict(path: str | os.PathLike[str], device: str = "host", *, engine: str | None = None, provider: str | None = None,
            quick: bool = False, cold: bool = False, settings: Mapping[str, object] | None = None, **more: object) -> Prediction:
    """What the model at `path` will take on `device`, in bytes; nothing is loaded.

    `quick` looks at the file alone, in milliseconds; `cold` leaves out what earlier loads have measured. Settings as `weir.load` has
    them. Errors: `NotFound`, `Corrupt`, `Unsupported`, `Invalid`."""
    raw = p.weir_prediction()
    check(lib.weir_predict(to_bytes(path), c.byref(_options(device, engine, provider, quick, cold, {**(settings or {}), **more})),
                           c.byref(raw)))
    return _prediction(raw)


def predict_fit(path: str | os.PathLike[str], size: int | str, device: str = "host", *, engine: str | None = None,
                provider: str | None = None, least_context: int = 0, most_context: int = 0, layers: bool = False,
                settings: Mapping[str, object] | None = None, **more: object) -> Fit:
    """The best way to have the model within `size` bytes (or a text such as "2GiB") at its peak.

    With `least_context` its context may go down to so many tokens, from `most_context` (0: what it takes without); with `layers` some
    may stay on the host. Errors as `predict`; `Unsupported`: the engine has no setting for what may be given up."""
    room = parse_size(size)
    if room == 0:
        raise Invalid("no model is within 0 bytes")
    raw, may = p.weir_fit(), p.weir_fit_options(most_context=most_context, least_context=least_context, layers=layers)
    check(lib.weir_predict_fit(to_bytes(path), c.byref(_options(device, engine, provider, False, False, {**(settings or {}), **more})),
                               room, c.byref(may), c.byref(raw)))
    return Fit(raw.fits, raw.context or None, None if raw.layers < 0 else raw.layers, _prediction(raw.prediction))


def _options(device: str, engine: str | None, provider: str | None, quick: bool, cold: bool,
             settings: Mapping[str, object]) -> p.weir_predict_options:
    chosen = settings_array(settings)
    return p.weir_predict_options(engine=to_bytes(engine), provider=to_bytes(provider), device=to_bytes(device), quick=quick, cold=cold,
                                  settings=chosen, setting_count=len(chosen))


def _prediction(raw: Any) -> Prediction:
    return Prediction(text(raw.engine), text(raw.provider), text(raw.device), text(raw.version), raw.resident_total, raw.peak_total,
                      raw.least_total, {kind: int(raw.resident[kind]) for kind in Class}, {kind: int(raw.peak[kind]) for kind in Class},
                      raw.host_total, raw.context, raw.sequences, raw.layers, raw.layers_on_device, raw.loads)


__all__ = ["Fit", "Prediction", "predict", "predict_fit"]
