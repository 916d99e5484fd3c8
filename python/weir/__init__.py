"""weir gives every inference engine of a process one device-memory budget.

    import weir

    with weir.Runtime("host", budget="2GiB", own=True) as runtime, runtime.client("bert", maximum="1GiB") as client:
        with client.alloc(4096) as block:
            block.memory[:5] = b"hello"

    with weir.load("minilm.onnx") as model:
        outputs = model({"input_ids": ids, "attention_mask": mask, "token_type_ids": types})

Needs libweir: the file that WEIR_LIBRARY names, one beside this package, or the system's. Failures are `weir.Error`, with a class
for each status. Everything may be used from any thread, and nothing after a fork."""

from .errors import (Busy, Cancelled, Closed, Conflict, Corrupt, DeviceLost, DoubleFree, DriverFailed, EngineFailed, Error, Foreign,
                     Forked, Interior, Invalid, NoRoom, NotFound, OutOfMemory, Stale, StreamMisuse, SystemFailed, Unsupported)
from .names import Cause, Class, CpuUse, Hardware, Kind, ResidencyState, Scrub, Source, Status, Stay, Type
from .runtime import Block, Client, Runtime
from .sizes import format_size, parse_size, version

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .astream import AsyncStream
    from .call import Call
    from .choice import Candidate, Check, Choice, Chosen, Problem, check, explain
    from .machine import Device, Option, devices, engines, option, options, set_option
    from .manifest import Manifest, Requirements, read_manifest
    from .model import Metrics, Model, ModelInfo, Port, load
    from .outputs import Outputs
    from .outside import Outside, Yielded
    from .planning import Buffer, Place, Plan, plan
    from .pool import Lease, Pool, PoolEvent, PoolModel, PoolUsage, Receipt, Variant
    from .prediction import Fit, Prediction, predict, predict_fit
    from .refusal import Holder, Refusal
    from .residency import Preparation, Presence, Residency, Stayed
    from .statistics import ClientStats, RuntimeStats
    from .stream import Piece, Stream
    from .tensor import Tensor
    from .trace import Event, Trace

# Where the other names are: a module is imported when one of its names is first used.
_LATER = {name: module for module, names in {
    "astream": ("AsyncStream",),
    "call": ("Call",),
    "choice": ("Candidate", "Check", "Choice", "Chosen", "Problem", "check", "explain"),
    "machine": ("Device", "Option", "devices", "engines", "option", "options", "set_option"),
    "manifest": ("Manifest", "Requirements", "read_manifest"),
    "model": ("Metrics", "Model", "ModelInfo", "Port", "load"),
    "outputs": ("Outputs",),
    "outside": ("Outside", "Yielded"),
    "planning": ("Buffer", "Place", "Plan", "plan"),
    "pool": ("Lease", "Pool", "PoolEvent", "PoolModel", "PoolUsage", "Receipt", "Variant"),
    "prediction": ("Fit", "Prediction", "predict", "predict_fit"),
    "refusal": ("Holder", "Refusal"),
    "residency": ("Preparation", "Presence", "Residency", "Stayed"),
    "statistics": ("ClientStats", "RuntimeStats"),
    "stream": ("Piece", "Stream"),
    "tensor": ("Tensor",),
    "trace": ("Event", "Trace"),
}.items() for name in names}


if not TYPE_CHECKING:  # for which every name would be here
    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib
        found = globals()[name] = getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "AsyncStream", "Block", "Buffer", "Busy", "Call", "Cancelled", "Candidate", "Cause", "Check", "Choice", "Chosen", "Class",
    "Client", "ClientStats", "Closed", "Conflict", "Corrupt", "CpuUse", "Device", "DeviceLost", "DoubleFree", "DriverFailed", "EngineFailed",
    "Error", "Event", "Fit", "Foreign", "Forked", "Hardware", "Holder", "Interior", "Invalid", "Kind", "Lease", "Manifest", "Metrics", "Model",
    "ModelInfo", "NoRoom", "NotFound", "Option", "OutOfMemory", "Outputs", "Outside", "Piece", "Place", "Plan", "Pool", "PoolEvent",
    "PoolModel", "PoolUsage", "Port", "Prediction", "Preparation", "Presence", "Problem", "Receipt", "Refusal", "Requirements", "Residency", "ResidencyState",
    "Runtime", "RuntimeStats", "Scrub", "Source", "Stale", "Status", "Stay", "Stayed", "Stream", "StreamMisuse", "SystemFailed",
    "Tensor", "Trace", "Type", "Unsupported", "Variant", "Yielded", "check", "devices", "engines", "explain", "format_size", "load", "option",
    "options", "parse_size", "plan", "predict", "predict_fit", "read_manifest", "set_option", "version",
]
