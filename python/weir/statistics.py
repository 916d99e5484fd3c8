"""Who holds what: the ledger read in one step. All numbers of memory are bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ._c import structures as s
from ._c.library import text
from .names import Class, ResidencyState


@dataclasses.dataclass(frozen=True)
class ClientStats:
    """One client's account."""

    name: str
    guaranteed: int  # bytes that are never lent to another client
    maximum: int  # the most it may have live, pending and promised
    live: int  # in blocks, as charged
    away: int  # in blocks whose memory is elsewhere while it is suspended; not in live
    pending: int  # freed; the device is not past it yet
    promised: int  # claimed, and not backed yet
    thread_cached: int  # kept by threads for their next allocation
    live_class: Mapping[Class, int]  # adds up to live
    peak: int  # of live + pending
    blocks: int  # live ones
    allocations: int
    frees: int
    refusals: int
    hits: int  # allocations that thread caches served
    misses: int  # and the others
    outside: int  # taken by its engine without asking weir; charged to nothing
    outside_method: str  # how that was found out
    residency: ResidencyState


@dataclasses.dataclass(frozen=True)
class RuntimeStats:
    """One consistent view of a runtime. live + pending + cached + spare is held, which never exceeds the budget."""

    budget: int
    live: int
    away: int  # of suspended clients, elsewhere: neither live nor held
    pending: int
    cached: int  # mapped, and in no block
    spare: int  # mapped nowhere
    promised: int
    held: int  # what the driver has given out
    peak: int  # of live + pending
    peak_held: int
    guaranteed: int  # sum over the clients
    thread_cached: int  # of the cached bytes
    allocations: int
    frees: int
    refusals: int
    driver_calls: int
    clients: tuple[ClientStats, ...]  # in the order in which they were opened


def client_stats(raw: s.weir_client_stats) -> ClientStats:
    members: dict[str, Any] = {field.name: getattr(raw, field.name) for field in dataclasses.fields(ClientStats)}
    members.update(name=text(raw.name), residency=ResidencyState(raw.residency), outside_method=text(raw.outside_method),
                   live_class=MappingProxyType({kind: int(raw.live_class[kind]) for kind in Class}))
    return ClientStats(**members)


def runtime_stats(raw: s.weir_stats, clients: list[ClientStats]) -> RuntimeStats:
    members: dict[str, Any] = {field.name: getattr(raw, field.name) for field in dataclasses.fields(RuntimeStats)}
    members.update(clients=tuple(clients))
    return RuntimeStats(**members)
