"""Why there was no memory, in numbers."""

from __future__ import annotations

import dataclasses

from ._c import structures as s
from ._c.library import text
from .names import Cause, Class


@dataclasses.dataclass(frozen=True)
class Holder:
    """A client that has memory which a refused request would have needed."""

    client: str
    bytes: int  # live and pending, or guaranteed if that is more


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Why there was no memory, in bytes."""

    cause: Cause
    client: str  # who asked
    device: str
    memory_class: Class
    requested: int  # as it would have been charged
    current: int  # what the client had live, pending and promised
    remaining: int  # what was left for it under the limit that refused
    limit: int  # that limit: the budget or the maximum
    largest: int  # the largest request that would have been met
    needed: int | None  # the limit under which this request would have been met; None: no such limit
    holders: tuple[Holder, ...]  # the one with the most first


def refusal(raw: s.weir_refusal) -> Refusal:
    """The numbers that libweir tells."""
    holders = []
    for holder in raw.holders:
        if not holder.client:
            break
        holders.append(Holder(text(holder.client), holder.bytes))
    return Refusal(Cause(raw.cause), text(raw.client), text(raw.device), Class(raw.memory_class), raw.requested, raw.current,
                   raw.remaining, raw.limit, raw.largest, None if raw.needed == s.UNKNOWN else raw.needed, tuple(holders))
