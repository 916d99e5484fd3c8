"""Static plans: a place for every tensor in one arena, as `weir plan` makes them."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from ._command import command
from .errors import Error, Invalid


@dataclasses.dataclass(frozen=True)
class Buffer:
    """Bytes that are live in the steps `begin` to `end` - 1."""

    name: str
    bytes: int
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class Place(Buffer):
    """Where a buffer lies."""

    offset: int  # bytes from the arena's begin
    view_of: str | None  # the buffer whose bytes it has
    written_over: str | None  # the buffer whose place it takes in the step in which that ends
    maker: str | None  # the operator that writes it; None where there are no operators
    looks: str | None  # its shape and type


@dataclasses.dataclass(frozen=True)
class Plan:
    """A place for each buffer, and how small that is."""

    arena: int  # bytes that the buffers take together
    lower_bound: int  # bytes: no plan of these buffers is smaller
    unshared: int  # bytes that they take without reuse
    proven: bool  # no plan has a smaller arena
    alignment: int
    steps: int
    in_place: int  # buffers that are written over another
    seconds: float  # that planning took
    source: Mapping[str, Any]  # kind, and of a model: dims, and the bytes of weights, inputs, outputs
    places: tuple[Place, ...]


def _words(dims: Mapping[str, int] | None, shapes: Mapping[str, Iterable[int]] | None, alignment: int | None, in_place: bool, quick: bool,
           seconds: float | None) -> list[str]:
    words = [f"--dim={name}={size}" for name, size in (dims or {}).items()]
    words += [f"--shape={name}={'x'.join(map(str, shape))}" for name, shape in (shapes or {}).items()]
    words += [] if alignment is None else [f"--align={alignment}"]
    words += [] if seconds is None else [f"--seconds={seconds}"]
    return words + ["--no-in-place"] * (not in_place) + ["--quick"] * quick


def _ask(file: str, words: list[str]) -> Plan:
    done = subprocess.run([command(), "plan", file, "--json", "--places", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {}
    if done.returncode or "places" not in answer:
        detail = answer.get("error", {}).get("detail") or done.stderr.strip() or f"weir plan ended with status {done.returncode}"
        raise (Invalid if done.returncode == 2 else Error)(detail)
    answer["places"] = tuple(Place(**place) for place in answer["places"])
    return Plan(**{field.name: answer[field.name] for field in dataclasses.fields(Plan)})


def plan(what: str | os.PathLike[str] | Iterable[Buffer], *, dims: Mapping[str, int] | None = None,
         shapes: Mapping[str, Iterable[int]] | None = None, alignment: int | None = None, in_place: bool = True, quick: bool = False,
         seconds: float | None = None) -> Plan:
    """A plan for a file (a model, whose activations are planned, a trace of allocations, a list of buffers, a saved plan), or for buffers.

    `dims` has sizes for a model's open dimensions, `shapes` the shapes of tensors that nothing tells. Places are multiples of
    `alignment` (None: 256; of a list 1). Without `in_place` no output is written over an input. `quick` leaves the search for the
    optimum out, `seconds` ends it. The command `weir plan` does the work, in a process of its own. Errors: `Error` with its words,
    such as which dimension is open; FileNotFoundError where the command is not here."""
    words = _words(dims, shapes, alignment, in_place, quick, seconds)
    if isinstance(what, (str, os.PathLike)):
        return _ask(os.path.join(os.curdir, what) if os.fspath(what).startswith("-") else os.fspath(what), words)
    buffers = tuple(what)
    for each in buffers:
        if not 0 <= each.begin < each.end or each.bytes < 0:
            raise Invalid(f"buffer {each.name!r}: {each.bytes} bytes, live from step {each.begin} until before step {each.end}; it has to "
                          "live in a step from 0 on, and sizes are not negative")
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write("id,lower,upper,size\n")
        file.writelines(f"{number},{each.begin},{each.end},{each.bytes}\n" for number, each in enumerate(buffers))
        file.flush()
        found = _ask(file.name, words)
    return dataclasses.replace(found, places=tuple(dataclasses.replace(place, name=buffers[int(place.name)].name) for place in found.places))
