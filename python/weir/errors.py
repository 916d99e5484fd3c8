"""What weir's failures are in Python: `weir.Error`, and a class for each status of the C interface.

Every error has `.status`, a `weir.Status`, and `.detail`, one line that names the object, the sizes and the remedy. Where
Python has a class for such a failure (MemoryError, ValueError, LookupError), the error is one of those as well."""

from __future__ import annotations

from .names import Status

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all of this
if TYPE_CHECKING:
    from .refusal import Refusal


class Error(Exception):
    """A call of weir failed."""

    status: Status = Status.OK

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Invalid(Error, ValueError):
    """An argument that no state of the program makes acceptable."""

    status = Status.INVALID


class Closed(Invalid):
    """The object was closed before."""


class OutOfMemory(Error, MemoryError):
    """The bytes cannot be had. `refusal` says why in numbers; None where the refusal was of another thread."""

    status = Status.OUT_OF_MEMORY

    def __init__(self, detail: str, refusal: Refusal | None = None) -> None:
        super().__init__(detail)
        self.refusal = refusal


class Foreign(Error):
    """A pointer that the runtime or client does not own."""

    status = Status.FOREIGN


class Interior(Error):
    """A pointer into a block, not its start."""

    status = Status.INTERIOR


class DoubleFree(Error):
    """The block was freed before."""

    status = Status.DOUBLE_FREE


class Stale(Error):
    """The address lives again, as another block."""

    status = Status.STALE


class Busy(Error):
    """The object is in use: bytes live, a run under way."""

    status = Status.BUSY


class Conflict(Error):
    """It exists already with other options."""

    status = Status.CONFLICT


class NotFound(Error, LookupError):
    """No such device, file, engine, input or option."""

    status = Status.NOT_FOUND


class Unsupported(Error):
    """Understood, and not offered by this device, resource or engine."""

    status = Status.UNSUPPORTED


class StreamMisuse(Error):
    """A stream of another runtime, a released one, or a use that cannot be ordered."""

    status = Status.STREAM_MISUSE


class NoRoom(Error):
    """The block cannot grow where it is."""

    status = Status.NO_ROOM


class Forked(Error):
    """This process was forked from one that used weir; start processes by `spawn` instead."""

    status = Status.FORKED


class DriverFailed(Error):
    """The device's driver failed."""

    status = Status.DRIVER


class DeviceLost(Error):
    """The device is gone."""

    status = Status.DEVICE_LOST


class SystemFailed(Error):
    """The operating system refused: a file, a thread, a mapping."""

    status = Status.SYSTEM


class Corrupt(Error):
    """A file breaks its own format, or memory was written past its block."""

    status = Status.CORRUPT


class EngineFailed(Error):
    """An inference engine failed; the detail has its words."""

    status = Status.ENGINE


class Cancelled(Error):
    """Stopped on request."""

    status = Status.CANCELLED


BY_STATUS: dict[Status, type[Error]] = {
    kind.status: kind for kind in (
        Invalid, OutOfMemory, Foreign, Interior, DoubleFree, Stale, Busy, Conflict, NotFound, Unsupported, StreamMisuse, NoRoom,
        Forked, DriverFailed, DeviceLost, SystemFailed, Corrupt, EngineFailed, Cancelled)
}
