"""Manifests as plain data: what a model is and what it wants (weir/manifest.h), read and written. `weir.check` tells what is wrong
with one, and `weir.explain` what it would get."""

from __future__ import annotations

import ctypes as c
import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path

from ._c import inspection as i
from ._c.library import check as raised
from ._c.library import text, to_bytes
from ._c.structures import weir_version_number
from .names import CpuUse
from .sizes import parse_size


@dataclasses.dataclass(frozen=True)
class Requirements:
    """What a model wants. A default asks for nothing. Versions are tuples of whole numbers: 12.10 is (12, 10)."""

    preferred_provider: str | None = None
    fallback_providers: tuple[str, ...] = ()  # in this order
    min_memory: int = 0  # bytes of the host that can be had
    min_vram: int = 0  # bytes of the device that can be had
    guaranteed: int = 0  # bytes, of the model's client
    maximum: int = 0  # bytes, of the model's client
    min_cuda_version: tuple[int, ...] = ()  # that the device's driver serves
    min_driver_version: tuple[int, ...] = ()
    min_compute_capability: tuple[int, ...] = ()
    device_ids: tuple[int, ...] = ()  # ordinals of the devices that the model may be on
    strategy: str | None = None
    graph_optimization_level: str | None = None
    cpu: CpuUse = CpuUse.LAST
    min_coverage: float = 0.0  # share of nodes or layers that the provider must run, 0 to 1


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A model and its requirements. Nothing is looked at where one is made: `weir.check` does that with what was written."""

    model_file: str  # a path that can be opened
    framework: str | None = None  # "onnx", "gguf", "llm"; None: by the model file
    name: str | None = None  # of the model's client; None: the file's
    version: str | None = None  # of the model; for people
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)  # for the engine
    requirements: Requirements = Requirements()
    path: str = ""  # what it was read from

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes it as JSON, over what is there: it reads as this one. The model file is named as it lies from here, and in full.
        Errors: OSError; `Invalid` and TypeError for numbers that are none."""
        Path(path).write_text(json.dumps(self._json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def _json(self) -> dict[str, object]:
        own = {"framework": self.framework, "model_file": os.path.abspath(self.model_file), "name": self.name, "version": self.version,
               "hardware_requirements": _requirements_json(self.requirements), "tuning": dict(self.settings)}
        return {key: value for key, value in own.items() if value not in (None, {})}


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """The manifest, package or model at `path`, which may be a name in the store; a package is unpacked, and its files stay until
    packages are cleared. Any thread. Errors: `NotFound`; `Invalid`, with the first problem and how many there are; `Unsupported`;
    `Corrupt` for a package that is none."""
    manifests, out = i.manifests(), c.c_void_p()
    raised(manifests.weir_manifest_read(to_bytes(path), None, c.byref(out)))
    try:
        raw = i.weir_manifest.from_address(out.value or 0)
        settings = {text(raw.settings[n].key): text(raw.settings[n].value) for n in range(raw.setting_count)}
        return Manifest(text(raw.model_file), _word(raw.framework), _word(raw.name), _word(raw.version), settings,
                        _requirements(raw.requirements), text(raw.path))
    finally:
        manifests.weir_manifest_destroy(out)


def _word(value: bytes | None) -> str | None:
    return None if value is None else text(value)


def _version(raw: weir_version_number) -> tuple[int, ...]:
    return tuple(raw.part[:raw.count])


def _requirements(raw: i.weir_requirements) -> Requirements:
    providers = (c.c_char_p * raw.fallback_count).from_address(raw.fallback_providers) if raw.fallback_count else ()
    ordinals = (c.c_int32 * raw.device_count).from_address(raw.device_ids) if raw.device_count else ()
    return Requirements(_word(raw.preferred_provider), tuple(text(each) for each in providers), raw.min_memory, raw.min_vram, raw.guaranteed,
                        raw.maximum, _version(raw.min_cuda_version), _version(raw.min_driver_version), _version(raw.min_compute_capability),
                        tuple(ordinals), _word(raw.strategy), _word(raw.graph_optimization_level), CpuUse(raw.cpu), raw.min_coverage)


def _requirements_json(its: Requirements) -> dict[str, object]:
    """Without what asks for nothing."""
    sizes = {"min_memory": its.min_memory, "min_vram": its.min_vram, "gpu_memory_reservation": its.guaranteed,
             "gpu_memory_limit": its.maximum}
    versions = {"min_cuda_version": its.min_cuda_version, "min_driver_version": its.min_driver_version,
                "min_compute_capability": its.min_compute_capability}
    cpu: dict[CpuUse, object] = {CpuUse.LISTED: "listed", CpuUse.FORBIDDEN: False}
    said: dict[str, object] = {"preferred_provider": its.preferred_provider, "fallback_providers": list(its.fallback_providers) or None,
                               **{key: str(bytes_) for key, size in sizes.items() if (bytes_ := parse_size(size))},
                               **{key: ".".join(map(str, version)) or None for key, version in versions.items()},
                               "gpu_device_ids": list(its.device_ids) or None, "strategy": its.strategy,
                               "graph_optimization_level": its.graph_optimization_level, "allow_cpu": cpu.get(CpuUse(its.cpu)),
                               "min_provider_coverage": float(its.min_coverage) or None}
    return {key: value for key, value in said.items() if value is not None}
