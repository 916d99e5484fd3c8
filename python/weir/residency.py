"""Clients and models that step aside: what a suspend did, and what is away. All numbers of memory are bytes, times are seconds."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ._c import structures as s
from ._c.library import text, to_bytes
from ._numbers import nanoseconds
from .names import Class, ResidencyState, Status, Stay


@dataclasses.dataclass(frozen=True)
class Stayed:
    """A block that stays, or a part of one."""

    pointer: int
    bytes: int  # that stay, in the first chunk found
    why: Stay
    tag: str


@dataclasses.dataclass(frozen=True)
class Residency:
    """What a suspend did, and what is away now."""

    state: ResidencyState
    away: int  # bytes of blocks that are elsewhere now
    released: int  # bytes of the device that the last suspend gave to everybody
    copied: int  # by the last suspend: bytes whose contents were copied out,
    trusted: int  # whose copy was still good,
    dropped: int  # and whose contents were not kept
    differed: int  # of the copied bytes: promised as unwritten, and found written by `verify`
    stored: int  # bytes of the host's memory, or of files, that hold copies now; some survive a resume
    stayed: int  # bytes that the last suspend left where they are
    stays: tuple[Stayed, ...]  # some of those blocks
    shown: int  # of the bytes that are elsewhere: those that are shown at their addresses now
    outside: int  # what no suspend moves: bytes that the engine's libraries took, such as workspaces, at the last suspend
    outside_method: str  # how they were found out
    graphs: int  # of the whole device: bytes that the process's instantiated graphs hold for allocations of their own


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Page-locked memory of the host's that is made ahead of a suspend."""

    ready: int  # bytes that are made, and that no copy has taken
    coming: int  # that are being made, or are still to be
    status: Status  # why making ended early; OK
    why: str  # in words; ""


@dataclasses.dataclass(frozen=True)
class Presence:
    """Whether a model is here, and what was done to it."""

    state: ResidencyState
    away: int  # bytes that are elsewhere now
    suspends: int
    resumes: int
    resumes_by_runs: int  # of the resumes
    returned: int  # bytes that the last resume brought back
    suspended_at: float  # seconds, as time.monotonic() tells them; 0: never
    resumed_at: float
    suspend_seconds: float  # that the last one took, without the wait for runs
    resume_seconds: float
    shown: int  # of the bytes that are elsewhere: those that runs use where they are
    coming: bool  # it is shown, and comes back while it is used
    stopped: Status  # why it does not go on with that at present; OK: it does, or has never begun


def residency(raw: s.weir_residency) -> Residency:
    members: dict[str, Any] = {field.name: getattr(raw, field.name) for field in dataclasses.fields(Residency)}
    members["state"] = ResidencyState(raw.state)
    members["outside_method"] = text(raw.outside_method)
    members["stays"] = tuple(Stayed(each.pointer or 0, each.bytes, Stay(each.why), text(each.tag)) for each in raw.stay[:raw.stays])
    return Residency(**members)


def preparation(raw: s.weir_preparation) -> Preparation:
    return Preparation(raw.ready, raw.coming, Status(raw.status), text(raw.why))


def presence(raw: s.weir_model_presence) -> Presence:
    return Presence(ResidencyState(raw.state), raw.away, raw.suspends, raw.resumes, raw.resumes_by_runs, raw.returned,
                    raw.suspended_at / 1e9, raw.resumed_at / 1e9, raw.suspend_ms / 1e3, raw.resume_ms / 1e3, raw.shown, raw.coming,
                    Status(raw.stopped))


def classes(given: Iterable[Class]) -> int:
    """The sum of their bits."""
    bits = 0
    for each in given:
        bits |= 1 << Class(each)
    return bits


def wait_limit(wait: float | None) -> int:
    """Nanoseconds. None: as long as it takes. A wait of nothing is the shortest one."""
    return 0 if wait is None else max(1, nanoseconds(wait, "a wait"))


def suspend_options(stay: Iterable[Class], drop: Iterable[Class], unwritten: Iterable[Class], verify: bool, keep_guarantee: bool,
                    resume_on_alloc: bool, wait: float | None, folder: str | os.PathLike[str] | None,
                    show: bool, graphs: bool = False) -> s.weir_suspend_options:
    return s.weir_suspend_options(stay=classes(stay), drop=classes(drop), unwritten=classes(unwritten), verify=verify,
                                  keep_guarantee=keep_guarantee, resume_on_alloc=resume_on_alloc, wait=wait_limit(wait),
                                  folder=to_bytes(folder), show=show, graphs=graphs)


@contextlib.contextmanager
def away(suspend: Callable[[], Residency], resume: Callable[[], None]) -> Iterator[Residency]:
    """Suspended inside."""
    receipt = suspend()
    try:
        yield receipt
    finally:
        resume()
