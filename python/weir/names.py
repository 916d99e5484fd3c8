"""The values of weir's enumerations: statuses, classes and kinds of memory, types of tensors, causes of refusals.

Each member has the number of the C interface; the names are those of the headers without their prefix."""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """How a call of the C interface answered; `weir.Error.status`."""

    OK = 0
    INVALID = 1
    OUT_OF_MEMORY = 2
    FOREIGN = 3
    INTERIOR = 4
    DOUBLE_FREE = 5
    STALE = 6
    BUSY = 7
    CONFLICT = 8
    NOT_FOUND = 9
    UNSUPPORTED = 10
    STREAM_MISUSE = 11
    NO_ROOM = 12
    FORKED = 13
    DRIVER = 14
    DEVICE_LOST = 15
    SYSTEM = 16
    CORRUPT = 17
    ENGINE = 18
    CANCELLED = 19


class Class(enum.IntEnum):
    """What the bytes of a block are for."""

    OTHER = 0
    WEIGHTS = 1
    ACTIVATIONS = 2
    SCRATCH = 3
    KV = 4


class Kind(enum.IntEnum):
    """What memory a block is of: the device's own, pinned memory of the host, or pageable memory of the host."""

    DEVICE = 0
    PINNED = 1
    HOST = 2


class Scrub(enum.IntEnum):
    """Whether bytes are zeroed when they pass from one client to another."""

    NEVER = 0
    OTHERS = 1


class CpuUse(enum.IntEnum):
    """Whether a model may be on the processor: as the last resort, only where it is asked for by name, or never."""

    LAST = 0
    LISTED = 1
    FORBIDDEN = 2


class Type(enum.IntEnum):
    """The type of a tensor's elements."""

    NONE = 0
    F32 = 1
    F64 = 2
    F16 = 3
    BF16 = 4
    I8 = 5
    I16 = 6
    I32 = 7
    I64 = 8
    U8 = 9
    U16 = 10
    U32 = 11
    U64 = 12
    BOOL = 13
    F8E4M3FN = 14
    F8E4M3FNUZ = 15
    F8E5M2 = 16
    F8E5M2FNUZ = 17
    TEXT = 18


class Cause(enum.IntEnum):
    """Why there was no memory; `weir.Refusal.cause`."""

    NONE = 0
    BUDGET = 1
    MAXIMUM = 2
    FRAGMENTATION = 3
    PENDING = 4
    DEVICE = 5
    OTHER_PROCESS = 6
    ADDRESS_RANGE = 7
    RESERVATION = 8
    ADAPTOR = 9


class ResidencyState(enum.IntEnum):
    """Whether the memory of a client or a model is where it was; `weir.Residency.state`."""

    RESIDENT = 0
    SUSPENDED = 1  # some is away
    MOVING = 2  # a thread suspends or resumes it right now


class Stay(enum.IntEnum):
    """Why a block of a suspended client stays; `weir.Stayed.why`."""

    SHARED = 0  # its chunk holds memory of others, or memory that is free in the order of a stream
    STABLE = 1  # it was allocated so that it does not move
    GRAPH = 2  # it is of a capture pool
    CLASS = 3  # its class was to stay
    BUSY = 4  # another thread is freeing or resizing it


class Source(enum.IntEnum):
    """Where the value of an option came from."""

    DEFAULT = 0
    ENVIRONMENT = 1
    CALL = 2


class Hardware(enum.IntEnum):
    """What a device of the machine is."""

    CPU = 0
    CUDA = 1
    ROCM = 2
    INTEL = 3
    METAL = 4
    DIRECTML = 5
