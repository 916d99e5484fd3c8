"""What runtimes, clients, blocks and models have in common: they are closed once, by `close` or at the end of a `with`."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings

from .errors import Busy, Closed, EngineFailed, Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import TypeVar

    Self = TypeVar("Self", bound="Handle")


class Handle:
    """An object of libweir's, used by any number of threads. It is not closed while one of them is in a call of it."""

    _kind = "object"

    def __init__(self, pointer: int, name: str) -> None:
        self._lock = threading.RLock()  # a collector that runs inside may come here again
        self._pointer: int | None = pointer
        self._label = name
        self._calls = 0
        self._lent = 0

    @property
    def closed(self) -> bool:
        """Whether it was closed; every other use raises `Closed` then."""
        return self._pointer is None

    @contextlib.contextmanager
    def _use(self) -> Iterator[int]:
        with self._lock:
            pointer = self._pointer
            if pointer is None:
                raise Closed(f"the {self._kind} {self._label} is closed")
            self._calls += 1
        try:
            yield pointer
        finally:
            with self._lock:
                self._calls -= 1

    def _lend(self) -> int:
        """Its pointer, which stays good until `_take_back`: till then it is not closed."""
        with self._lock:
            if self._pointer is None:
                raise Closed(f"the {self._kind} {self._label} is closed")
            self._lent += 1
            return self._pointer

    def _take_back(self) -> None:
        with self._lock:
            self._lent -= 1

    def _end(self, pointer: int) -> None:
        """Gives the object back to libweir, or raises and leaves it as it is."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes it. Again: nothing happens. `Busy` while it is in use, by what it has or by another thread, BufferError while others
        have its memory: it stays open."""
        if self._lent:
            from ._c import dlpack
            dlpack.sweep()
        with self._lock:
            pointer = self._pointer
            if pointer is None:
                return
            if self._calls:
                raise Busy(f"the {self._kind} {self._label} is in use by {self._calls} calls of other threads")
            if self._lent:
                raise BufferError(f"others have the memory of the {self._kind} {self._label}: {self._lent} arrays of it are alive")
            self._pointer = None
        try:
            self._end(pointer)
        except EngineFailed:  # a model is gone all the same
            raise
        except BaseException:
            with self._lock:
                self._pointer = pointer
            raise

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is None or sys.is_finalizing():
            return  # what a process has at its end, the system takes back
        remark = ""
        try:
            self.close()
        except (Error, BufferError) as error:
            remark = f": {error}"
        warnings.warn(f"the {self._kind} {self._label} was never closed{remark}", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<weir.{type(self).__name__} {self._label}{' (closed)' if self.closed else ''}>"
