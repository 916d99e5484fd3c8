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
                     Forked, Holder, Interior, Invalid, NoRoom, NotFound, OutOfMemory, Refusal, Stale, StreamMisuse, SystemFailed,
                     Unsupported)
from .machine import Device, Option, devices, engines, format_size, option, options, parse_size, set_option, version
from .model import Metrics, Model, ModelInfo, Port, load
from .names import Cause, Class, Hardware, Kind, Scrub, Source, Status, Type
from .runtime import Block, Client, Runtime
from .statistics import ClientStats, RuntimeStats
from .stream import Piece, Stream

__all__ = [
    "Block", "Busy", "Cancelled", "Cause", "Class", "Client", "ClientStats", "Closed", "Conflict", "Corrupt", "Device", "DeviceLost",
    "DoubleFree", "DriverFailed", "EngineFailed", "Error", "Foreign", "Forked", "Hardware", "Holder", "Interior", "Invalid", "Kind",
    "Metrics", "Model", "ModelInfo", "NoRoom", "NotFound", "Option", "OutOfMemory", "Piece", "Port", "Refusal", "Runtime",
    "RuntimeStats", "Scrub", "Source", "Stale", "Status", "Stream", "StreamMisuse", "SystemFailed", "Type", "Unsupported", "devices",
    "engines", "format_size", "load", "option", "options", "parse_size", "set_option", "version",
]
