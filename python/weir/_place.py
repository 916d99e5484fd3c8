"""Where memory lies."""

from __future__ import annotations


class Place:
    """Where memory lies: a device's own, or what the processor addresses."""

    def __init__(self, device: str, runtime: int) -> None:
        self.device = device  # "host", "cuda:0"
        self.runtime = runtime

    @property
    def dlpack(self) -> tuple[int, int]:
        """Its device, as DLPack numbers them."""
        from ._c import dlpack
        kind, _, ordinal = self.device.partition(":")
        if kind == "host":
            return dlpack.CPU, 0
        if kind == "cuda":
            return dlpack.CUDA, int(ordinal)
        raise BufferError(f"DLPack has no number for {self.device}")
