"""The pieces of a run under asyncio: the run has its thread, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable
from types import TracebackType
from typing import Any

from .errors import Cancelled
from .stream import Piece, Run


class AsyncStream:
    """The pieces of one run; `async for piece in model.astream(...)`. Leaving its `async with` or dropping it cancels the run."""

    def __init__(self, run: Run, start: Callable[[], None]) -> None:
        self._run, self._ended = run, False
        loop, self._told = asyncio.get_running_loop(), asyncio.Event()
        told = self._told

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(told.set)
            except RuntimeError:  # the loop has ended, and nobody reads
                run.stop()
        run.wake = wake  # which does not keep this object: dropping it ends the run
        start()

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs of the whole run, as a call has them; empty until the last piece was read."""
        return self._run.outputs if self._ended else {}

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Piece:
        if self._ended:
            raise StopAsyncIteration
        while True:
            self._told.clear()
            try:
                piece = self._run.pieces.get_nowait()
                break
            except queue.Empty:
                await self._told.wait()
        if piece is not None:
            return piece
        self._ended = True
        await asyncio.to_thread(self._run.end)
        if self._run.error is not None:
            raise self._run.error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancels the run if it has not ended, and waits until it has, as `Stream.close`."""
        if self._ended:
            return
        self._ended = True
        await asyncio.to_thread(self._run.end)
        error = self._run.error
        if error is not None and not isinstance(error, Cancelled):
            raise error

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):
            self._run.forsaken()
