"""A run that answers piece by piece: a thread that runs the model, a queue, and the iterator over it."""

from __future__ import annotations

import codecs
import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ._later import later
from .errors import Cancelled, Error


class Piece(str):
    """A piece of a generated text. It may be empty: where a token ends inside of a character, the next piece has that."""

    token: int
    number: int  # from 0

    def __new__(cls, value: str, token: int, number: int) -> Piece:
        it = super().__new__(cls, value)
        it.token, it.number = token, number
        return it


class Run:
    """One run in a thread of its own. The thread keeps it, and not the iterator: so dropping the iterator ends the run."""

    def __init__(self, number: int, cancel: Callable[[int], bool]) -> None:
        self.id = number
        self.pieces: queue.SimpleQueue[Piece | None] = queue.SimpleQueue()  # None: the run has ended
        self.outputs: dict[str, Any] = {}
        self.error: BaseException | None = None
        self.wake: Callable[[], None] | None = None  # told of each piece, and of the end
        self._cancel = cancel
        self._stopped = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._last = (-1, 0)
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None]) -> None:
        def body() -> None:
            try:
                if not self._stopped:
                    work()
                rest = self._decoder.decode(b"", True)
                if rest:
                    self._put(Piece(rest, *self._last))
            except BaseException as error:  # the reader's thread raises it
                self.error = error
            finally:
                self._put(None)
        # No daemon: a thread inside of an engine cannot be dropped. `take` ends it when the program ends.
        self._thread = threading.Thread(target=body, name=f"weir-run-{self.id}", daemon=False)
        self._thread.start()

    def result(self, work: Callable[[], None]) -> dict[str, Any]:
        """Starts it, waits for its end and answers the outputs. An interrupt, which no call of C notices, ends the run and is raised,
        also where it comes while the thread begins."""
        try:
            self.start(work)
            self.next_piece()
        except BaseException:
            while self._thread is not None and self._thread.is_alive():
                self.stop()  # again and again: a run that the engine does not know yet is not there to be cancelled
                self._thread.join(0.05)
            raise
        if self._thread is not None:
            self._thread.join()
        if self.error is not None:
            raise self.error
        return self.outputs

    def next_piece(self) -> Piece | None:
        """Waits for a piece, or for the end (None). An interrupt that comes when Python is about to wait does not end the wait: so it is
        made of short ones, and the interrupt is raised between two."""
        while True:
            try:
                return self.pieces.get(timeout=0.1)
            except queue.Empty:
                pass

    def _put(self, piece: Piece | None) -> None:
        self.pieces.put(piece)
        if self.wake is not None:
            self.wake()

    def take(self, data: bytes, token: int, number: int) -> bool:
        """A piece, on the run's thread; False ends the run."""
        self._last = (token, number)
        self._put(Piece(self._decoder.decode(data), token, number))
        return not self._stopped and threading.main_thread().is_alive()

    def stop(self) -> None:
        """Asks the run to end, and waits for nothing."""
        self._stopped = True
        if threading.current_thread() is self._thread:
            return  # no call of the model from inside of its own piece
        try:
            self._cancel(self.id)
        except Error:
            pass  # it has ended, or the engine ends it with the next piece

    def forsaken(self) -> None:
        """The same of one that nobody reads any more, from a finaliser."""
        self._stopped = True  # the next piece ends it, whatever comes
        later(self.stop)

    def end(self) -> None:
        """Asks it to end, and waits for that."""
        self.stop()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()


class Stream:
    """The pieces of one run; `for piece in model.stream(...)`. One thread reads it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._ended = False

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs of the whole run, as a call has them; empty until the last piece was read."""
        return self._run.outputs if self._ended else {}

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Piece:
        if self._ended:
            raise StopIteration
        piece = self._run.next_piece()
        if piece is not None:
            return piece
        self._ended = True
        self._run.end()
        if self._run.error is not None:
            raise self._run.error
        raise StopIteration

    def close(self) -> None:
        """Cancels the run if it has not ended, and waits until it has. Again: nothing happens. A failure that nobody has read is
        raised, other than `Cancelled`."""
        if self._ended:
            return
        self._ended = True
        self._run.end()
        error = self._run.error
        if error is not None and not isinstance(error, Cancelled):
            raise error

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):
            self._run.forsaken()
