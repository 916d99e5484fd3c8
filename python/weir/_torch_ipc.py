"""Tensors on CUDA devices that processes share (`torch.multiprocessing`): what cannot be shared is refused before PyTorch begins.

How memory is shared is in src/seams/torch_ipc.c; PyTorch counts who has it. Here is the one call in Python that all ways of sending
a tensor go through, `storage._share_cuda_()`: queues, pipes, and programs that take PyTorch's reductions themselves."""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch

from ._c.library import check
from ._c.seams import seams

_lock = threading.Lock()
_asked = False


def ask_before_sharing(*, segments: bool) -> None:
    """From now on sharing a CUDA tensor's memory is `weir.Unsupported` where CUDA cannot share it, with the tensor's bytes, its
    device and the remedy, on the thread that sends it; a queue sends on a thread of its own, which prints the error. Nothing
    has changed then: the tensor stays as it is. `weir.Forked` in a child by fork. `segments`: PyTorch's own allocator shares
    whole segments, which it has from weir. Later calls do nothing."""
    global _asked  # pylint: disable=global-statement
    with _lock:
        if _asked:
            return
        storage: Any = torch.UntypedStorage
        share = storage._share_cuda_

        @functools.wraps(share)
        def share_if_possible(self: Any, *args: Any, **options: Any) -> Any:
            if self.device.type == "cuda":
                check(seams.wseam_torch_shareable(self.data_ptr() or None, segments))
            return share(self, *args, **options)

        storage._share_cuda_ = share_if_possible
        _asked = True
