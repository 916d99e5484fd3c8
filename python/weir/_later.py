"""What finalisers leave to be done: at once where their thread is outside of weir, else when some thread leaves it.

The collector may run between any two steps of a thread, also between two of weir's own, and in a function that libweir calls. There a
finaliser must not wait for a lock, nor call libweir. So it calls `later`, which never does where the thread is `inside`."""

from __future__ import annotations

import threading
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class _Here(threading.local):
    depth = 0  # how often this thread is inside


_here = _Here()
_left: deque[Callable[[], object]] = deque()  # appending and taking are one step each
_stuck: deque[Callable[[], object]] = deque()  # what could not be done yet, and may when something else is done


class _Inside:
    def __enter__(self) -> None:
        if _left:
            settle()
        _here.depth += 1

    def __exit__(self, *_: object) -> None:
        _here.depth -= 1
        if _left:
            settle()


inside = _Inside()  # `with inside:` around what holds a lock of weir's, calls libweir, or is called by it


def later(work: Callable[[], object]) -> None:
    """Does it, soon; what answers False is tried again after other work. It raises nothing but what ends a program."""
    _left.append(work)
    settle()


class _Raiser:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def __del__(self) -> None:
        raise self._error


def ignored(error: Exception) -> None:
    """Prints it as Python prints what a finaliser raises: it is of no call that goes on here."""
    _Raiser(error)


def settle() -> None:
    """Does what was left, unless this thread is inside."""
    if _here.depth:
        return
    _here.depth = 1
    try:
        while _left:
            try:
                work = _left.popleft()
            except IndexError:  # another thread has taken it
                break
            try:
                done = work()
            except Exception as error:
                ignored(error)
                done = None
            except BaseException:
                _left.appendleft(work)
                raise
            if done is False:
                _stuck.append(work)
            else:
                while _stuck:
                    _left.append(_stuck.popleft())
    finally:
        _here.depth = 0
