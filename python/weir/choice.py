"""Manifests, and which engine, provider and device a model would get: what `weir check` and `weir explain` tell, in the words of their
JSON."""

from __future__ import annotations

import ctypes as c
import dataclasses
import os
from collections.abc import Mapping

from ._c import inspection as i
from ._c.library import check as raised
from ._c.library import lib, text, to_bytes
from ._c.structures import UNKNOWN
from .names import Class
from .tensors import settings_array


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a manifest."""

    line: int  # from 1
    column: int  # from 1, in characters
    text: str


@dataclasses.dataclass(frozen=True)
class Check:
    """What is wrong with a manifest, a package or a model."""

    good: bool
    path: str  # the file that the lines are of
    errors: tuple[Problem, ...]  # at most 100
    more: int  # that were found beyond those


@dataclasses.dataclass(frozen=True)
class Chosen:
    """Where a model would come to."""

    engine: str
    provider: str
    device: str  # its key
    runtime: str


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An engine, one of its providers and a device, and whether it can have the model."""

    engine: str
    provider: str
    device: str  # its key; "" where there is none of the kind
    runtime: str  # "cuda:0"; "host" where the provider's device memory is not weir's
    library: str  # of the engine; ""
    version: str
    verdict: str  # "ACCEPTED", "LITTLE_VRAM", ...
    reason: str  # with the numbers and the remedy
    rank: int  # from 0; -1: not accepted
    bytes: Mapping[str, int] | None  # by class, on the device; None: not predicted
    exact: Mapping[str, bool] | None  # or else at least
    obtainable: int | None  # bytes that could be had there; None: not known


@dataclasses.dataclass(frozen=True)
class Choice:
    """All candidates for a model, the accepted ones first, by rank."""

    policy: str
    rule: str  # what decided
    chosen: Chosen | None  # None: nothing is accepted
    candidates: tuple[Candidate, ...]


def check(path: str | os.PathLike[str]) -> Check:
    """Everything that is wrong with the manifest, package or model at `path`, with its place; no engine is asked. Errors: `NotFound`,
    `Unsupported`, `Corrupt` for a package that is none."""
    manifests, out = i.manifests(), c.c_void_p()
    raised(manifests.weir_manifest_check(to_bytes(path), None, c.byref(out)))
    try:
        found = i.weir_manifest_problems.from_address(out.value or 0)
        stride = c.c_size_t.from_address(found.problems).value if found.count else 0
        problems = [i.weir_manifest_problem.from_address(found.problems + n * stride) for n in range(found.count)]
        errors = tuple(Problem(one.line, one.column, text(one.text)) for one in problems)
        return Check(found.count == 0, text(found.path), errors, found.more)
    finally:
        manifests.weir_manifest_problems_destroy(out)


def explain(path: str | os.PathLike[str], *, engine: str | None = None, provider: str | None = None, device: str | None = None,
            policy: str | None = None, order: str | None = None, no_cpu: bool = False,
            settings: Mapping[str, object] | None = None) -> Choice:
    """Which engine, provider and device the manifest, package or model at `path` would get, and why each other one would not do.
    Nothing is loaded, and no device memory is touched.

    `engine`, `provider` and `device` ask for exactly that; `policy` is "fastest", "manifest" or "memory", `order` providers between
    spaces; with `no_cpu` the processor is no resort. Errors: `Invalid` for words that are none, `NotFound`, `Corrupt`."""
    chosen = settings_array(settings or {})
    options = i.weir_choice_options(engine=to_bytes(engine), provider=to_bytes(provider), device=to_bytes(device), policy=to_bytes(policy),
                                    order=to_bytes(order), no_cpu=no_cpu, settings=chosen, setting_count=len(chosen))
    manifests, manifest, out = i.manifests(), c.c_void_p(), c.c_void_p()
    raised(manifests.weir_manifest_read(to_bytes(path), None, c.byref(manifest)))
    try:
        raised(lib.weir_choice_create(manifest, c.byref(options), c.byref(out)))
        try:
            return _choice(i.weir_choice.from_address(out.value or 0))
        finally:
            lib.weir_choice_destroy(out)
    finally:
        manifests.weir_manifest_destroy(manifest)


def _choice(raw: i.weir_choice) -> Choice:
    stride = c.c_size_t.from_address(raw.candidates).value if raw.count else 0
    candidates = tuple(_candidate(i.weir_candidate.from_address(raw.candidates + n * stride)) for n in range(raw.count))
    first = candidates[0] if raw.accepted else None
    return Choice(text(raw.policy), text(raw.rule), Chosen(first.engine, first.provider, first.device, first.runtime) if first else None,
                  candidates)


def _candidate(raw: i.weir_candidate) -> Candidate:
    words = {kind: i.name_of(i.NAMES_CLASS, kind) for kind in Class}
    return Candidate(text(raw.engine), text(raw.provider), text(raw.device), text(raw.runtime), text(raw.library), text(raw.version),
                     i.name_of(i.NAMES_VERDICT, raw.verdict), text(raw.reason), raw.rank,
                     {words[kind]: int(raw.bytes[kind]) for kind in Class} if raw.predicted else None,
                     {words[kind]: bool(raw.exact[kind]) for kind in Class} if raw.predicted else None,
                     None if raw.obtainable == UNKNOWN else int(raw.obtainable))
