"""What runtimes, clients, blocks and models have in common: they are closed once, by `close` or at the end of a `with`."""

from __future__ import annotations

import ctypes as c
import sys
import threading
import warnings

from ._c.library import check
from ._later import ignored, inside, later
from .errors import Busy, Closed, Error
from .names import Status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeVar

    Self = TypeVar("Self", bound="Handle")


def once(told: list[Any], function: Callable[..., Any], *arguments: Any) -> None:
    """Calls a function of libweir's and adds its answer to the list, which no interrupt can come between: Python notices one when a
    call of C has returned, and raises it then in place of the answer."""
    told.extend(map(function, *((each,) for each in arguments)))


class Handle:
    """An object of libweir's, used by any number of threads. It is not closed while one of them is in a call of it.

    libweir writes the object's address into the handle itself, so that an interrupt loses none: `_make`. While the lock is held nothing
    is made, called or raised: the collector, and with it anybody's finaliser, does not run there."""

    _kind = "object"
    _told = False

    def __init__(self, name: str) -> None:
        self._lock = threading.RLock()
        self._out = c.c_void_p()
        self._label = name
        self._calls = 0
        self._lent = 0

    @property
    def _pointer(self) -> int | None:
        """None: there is none yet, or it was closed."""
        return self._out.value

    @_pointer.setter
    def _pointer(self, pointer: int | None) -> None:
        self._out.value = pointer

    def _make(self, function: Callable[..., int], *arguments: Any) -> None:
        """Calls what makes the object; one that it made is closed again where an interrupt is raised in place of its answer."""
        try:
            check(function(*arguments))
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        """Whether it was closed; every other use raises `Closed` then."""
        return self._pointer is None

    def _use(self) -> _Use:
        """`with handle._use() as pointer:` for a call of libweir with it."""
        return _Use(self)

    def _closed(self) -> Closed:
        return Closed(f"the {self._kind} {self._label} is closed")

    def _lend(self) -> int:
        """Its pointer, which stays good until `_take_back`: till then it is not closed."""
        with inside:
            with self._lock:
                pointer = self._pointer
                if pointer is not None:
                    self._lent += 1
            if pointer is None:
                raise self._closed()
            return pointer

    def _take_back(self) -> None:
        with inside, self._lock:
            self._lent -= 1

    def _end(self, pointer: int, told: list[Any]) -> None:
        """Gives the object back to libweir by `once`, or raises and leaves it as it is."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes it. Again: nothing happens. `Busy` while it is in use, by what it has or by another thread, BufferError while others
        have its memory: it stays open."""
        if self._lent:
            from ._c import dlpack
            dlpack.sweep()
        with inside:
            with self._lock:
                pointer = self._pointer
                calls = self._calls
                lent = self._lent
                if not calls and not lent:
                    self._pointer = None
            if pointer is None:
                return
            if calls:
                raise Busy(f"the {self._kind} {self._label} is in use by {calls} calls of other threads")
            if lent:
                raise BufferError(f"others have the memory of the {self._kind} {self._label}: {lent} arrays of it are alive")
            told: list[Any] = []  # None: of a function that answers nothing
            try:
                self._end(pointer, told)
                if told and told[0] is not None:
                    check(told[0])
            except BaseException:
                if not told or told[0] not in (None, Status.OK, Status.ENGINE):  # else it is gone all the same
                    with self._lock:
                        self._pointer = pointer
                raise

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None) is not None and not sys.is_finalizing():
            later(self._drop)  # what a process has at its end, the system takes back

    def _drop(self) -> bool:
        """Closes what nobody has any more, and tells of it; False: it is in use, perhaps by what goes next."""
        remark = ""
        try:
            self.close()
        except (Error, BufferError) as error:
            remark = f": {error}"
        if not self._told:
            self._told = True
            try:
                warnings.warn(f"the {self._kind} {self._label} was never closed{remark}", ResourceWarning, source=self, stacklevel=2)
            except ResourceWarning as error:  # where warnings are errors
                ignored(error)
        return self._pointer is None

    def __repr__(self) -> str:
        return f"<weir.{type(self).__name__} {self._label}{' (closed)' if self.closed else ''}>"


class _Use:
    """A thread that is in a call of a handle."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __enter__(self) -> int:
        handle = self._handle
        inside.__enter__()
        with handle._lock:
            pointer = handle._pointer
            if pointer is not None:
                handle._calls += 1
        if pointer is None:
            inside.__exit__()
            raise handle._closed()
        return pointer

    def __exit__(self, *_: object) -> None:
        handle = self._handle
        with handle._lock:
            handle._calls -= 1
        inside.__exit__()
