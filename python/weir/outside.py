"""Other processes on a device: what was seen of them, and what was given to them. All numbers of memory are bytes."""

from __future__ import annotations

import dataclasses
from typing import Any

from ._c import structures as s
from ._c.library import text


@dataclasses.dataclass(frozen=True)
class Outside:
    """What was seen last, and what came of it since the runtime was made."""

    watched: bool
    total: int  # of the device: all,
    available: int  # and free for everybody
    others: int  # what others have: all but `available` and what this runtime holds
    reserve: int  # to be kept free
    asked: int  # besides: what `Runtime.yield_` was asked for, and other processes have not taken yet
    budget: int  # as the program has set it
    allowed: int  # the part of it that other processes leave
    lacks: int  # of the reserve and of what was asked for, after the last look
    looks: int  # how often
    shorts: int  # of the looks: those that found too little free
    given: int  # given back to the driver for others
    suspends: int  # of idle clients
    rises: int  # times that the budget rose again


@dataclasses.dataclass(frozen=True)
class Yielded:
    """What came of one `Runtime.yield_`."""

    available: int  # free on the device now
    given: int  # given back to the driver by this call, which is the sum of the next three:
    trimmed: int  # cached memory,
    suspended: int  # memory of idle clients,
    called: int  # and what pressure callbacks made free, or pools
    clients: int  # how many were suspended
    lacks: int  # of what was asked for; 0: all of it is free
    held: int  # stays, of this runtime, and why:
    live: int  # blocks of clients that nobody has offered, or that are in use
    pending: int  # freed, and the device is not past it
    unused: int  # in segments with live blocks
    guaranteed: int  # promised to clients beyond their blocks: not held, and a floor of the budget
    why: str  # of the last idle client that could not be suspended; ""


def outside(raw: s.weir_outside) -> Outside:
    return Outside(*(getattr(raw, field.name) for field in dataclasses.fields(Outside)))


def yielded(raw: s.weir_yielded) -> Yielded:
    members: dict[str, Any] = {field.name: getattr(raw, field.name) for field in dataclasses.fields(Yielded)}
    members["why"] = text(raw.why)
    return Yielded(**members)
