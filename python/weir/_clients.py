"""The clients of a framework, one for each device that it uses: given, or opened under one budget when a device is first used."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ._later import inside
from .errors import Conflict, Invalid, NotFound
from .runtime import Client, Runtime
from .sizes import parse_budget, parse_size


# The first budget that was said for frameworks' clients. Who says it may open the runtime later than a framework that says none.
_said: list[int] = []


def _runtime(ordinal: int, budget: int | None, resource: str | None = None) -> Runtime:
    """The device's, as it is where no budget is given; one that is made then has the budget that was said first."""
    if budget is None and _said:
        try:
            return Runtime(f"cuda:{ordinal}", _said[0], resource)
        except Conflict:
            pass  # it is there, with another one
    return Runtime(f"cuda:{ordinal}", budget, resource)


class Clients:
    """`given` clients, each of a device of its own; without any, clients called `name` in the process's runtimes, which have
    `budget` and `resource` where they are given."""

    def __init__(self, name: str, given: Sequence[Client] = (), budget: int | str | None = None, maximum: int | str = 0,
                 guarantee: int | str = 0, resource: str | None = None) -> None:
        if given and (budget is not None or maximum or guarantee or resource is not None):
            raise Invalid("a client has its limits already: give clients, or limits")
        self._name, self._resource, self._budget = name, resource, None if budget is None else parse_budget(budget)
        self._maximum, self._guarantee = parse_size(maximum), parse_size(guarantee)  # wrong ones are refused here, not when one is opened
        self._only = bool(given)
        self._lock = threading.RLock()
        if self._budget is not None:
            _said.append(self._budget)
        self._clients: dict[int, Client] = {}
        for client in given:
            ordinal = ordinal_of(client)
            if ordinal in self._clients:
                raise Conflict(f"{self._clients[ordinal].name} and {client.name} are both clients of cuda:{ordinal}")
            self._clients[ordinal] = client

    def of(self, ordinal: int) -> Client:
        """The client of that device. `NotFound` where clients were given, and none for it."""
        with inside, self._lock:
            client = self._clients.get(ordinal)
            if client is None:
                if self._only:
                    raise NotFound(f"{self._name} was given no client for cuda:{ordinal}: give one for each device that it uses")
                client = Client(_runtime(ordinal, self._budget, self._resource), self._name, maximum=self._maximum, guarantee=self._guarantee)
                self._clients[ordinal] = client
            return client

    def opened(self) -> dict[int, Client]:
        """Those that there are, by device."""
        with self._lock:
            return dict(self._clients)


def ordinal_of(client: Client) -> int:
    """The number of its CUDA device."""
    kind, _, number = client.runtime.device.partition(":")
    if kind != "cuda":
        raise Invalid(f"{client.name} is a client of {client.runtime.device}, and memory of a CUDA device is needed")
    return int(number or 0)
