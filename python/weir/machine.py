"""Options by name, engines, and the devices that this machine has."""

from __future__ import annotations

import ctypes as c
import dataclasses
from collections.abc import Iterator

from ._c import structures as s
from ._c.library import check, lib, text, to_bytes
from .errors import NotFound
from .names import Hardware, Source


@dataclasses.dataclass(frozen=True)
class Option:
    """A setting of weir itself, from the environment or from `set_option`."""

    name: str
    environment: str
    help: str
    value: str  # "" when it is unset
    source: Source
    rejected: bool  # the environment holds a value that does not parse; `value` is the default instead


def _option(raw: s.weir_option) -> Option:
    return Option(text(raw.name), text(raw.environment), text(raw.help), text(raw.value), Source(raw.source), raw.rejected)


def option(name: str) -> Option:
    """The option of that name. `NotFound` names the nearest one."""
    raw = s.weir_option()
    check(lib.weir_option_info(to_bytes(name), 0, c.byref(raw)))
    return _option(raw)


def set_option(name: str, value: str | None) -> None:
    """Gives an option a value from now on; None takes that back. `Invalid` says what values are taken."""
    check(lib.weir_option_set(to_bytes(name), to_bytes(value)))


def options() -> list[Option]:
    """All options."""
    def each() -> Iterator[Option]:
        index = 0
        while True:
            raw = s.weir_option()
            try:
                check(lib.weir_option_info(None, index, c.byref(raw)))
            except NotFound:
                return
            yield _option(raw)
            index += 1
    return list(each())


def engines() -> list[str]:
    """The names of the engines that can be opened here."""
    names: list[str] = []
    while (name := lib.weir_engine_name_at(len(names))) is not None:
        names.append(text(name))
    return names


@dataclasses.dataclass(frozen=True)
class Device:
    """A processor or GPU of the machine. Bytes are None where nobody could tell them."""

    kind: Hardware
    key: str  # tells it from all others, also after a restart
    name: str
    runtime: str  # as `Runtime` and `load` take it, such as "cuda:0"; "": weir has no driver for it, or it is hidden
    ordinal: int  # among its kind; -1: hidden from this process
    total: int | None
    free: int | None  # at the moment of the look
    units: int  # processors or multiprocessors; 0: not known
    usable: bool
    remark: str  # why it is not usable, or what else is to be known


def devices() -> list[Device]:
    """The devices of this machine, the processor first. Makes no context on any; may take some 0.4 s the first time."""
    out = c.c_void_p()
    check(lib.weir_hardware_create(None, c.byref(out)))
    try:
        found = s.weir_hardware.from_address(out.value or 0)
        # The first one's struct_size is the stride: what a later libweir has behind it is left alone.
        stride = c.c_size_t.from_address(found.devices).value if found.device_count else 0
        return [_device(s.weir_hardware_device.from_address(found.devices + i * stride)) for i in range(found.device_count)]
    finally:
        lib.weir_hardware_destroy(out)


def _device(raw: s.weir_hardware_device) -> Device:
    def known(size: int) -> int | None:
        return None if size == s.UNKNOWN else size
    return Device(Hardware(raw.kind), text(raw.key), text(raw.name), text(raw.runtime), raw.ordinal, known(raw.total),
                  known(raw.free), raw.units, raw.usable, text(raw.remark))
