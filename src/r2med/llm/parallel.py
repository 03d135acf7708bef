"""Asking many things at once: a window of requests in flight, answers as they come, one place where failures end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue

from ..core import ModelError
from .protocol import OnReply, Reply, Request

FAILURES_IN_A_ROW = 10
# A server that can answer nothing is not asked 876 times.
GRACE = 5.0
# Seconds that answers under way get when the user interrupts.

Ask = Callable[[Request, threading.Event], Reply]
Result = Reply | BaseException | None


def in_parallel(requests: Iterable[Request], ask: Ask, workers: int, on_reply: OnReply | None) -> Iterator[Reply]:
    """Answer requests, `workers` at a time, reading ahead no further than keeps them busy."""
    window = _Window(ask, workers, on_reply)
    source = iter(requests)
    failed_in_a_row = 0
    try:
        window.fill(source)
        while window.open:
            reply = window.get()
            if reply is not None:
                failed_in_a_row = failed_in_a_row + 1 if reply.error else 0
                if failed_in_a_row == FAILURES_IN_A_ROW:
                    window.fail(ModelError(f"{failed_in_a_row} requests in a row failed: {reply.error}"))
                yield reply
            window.fill(source)
    finally:
        window.close()
    if window.failure is not None:
        raise window.failure


class _Window:
    """Threads that work through a queue. They are daemons: a hung server cannot keep the program from ending."""

    def __init__(self, ask: Ask, workers: int, on_reply: OnReply | None) -> None:
        self.open = 0
        # Requests handed in whose result has not been taken out.
        self.failure: BaseException | None = None
        # What ended it all; later ones follow from it.
        self._stop = threading.Event()
        self._ask, self._workers, self._on_reply = ask, workers, on_reply
        self._slots = threading.Semaphore(workers)
        # Only asking takes a slot: while one answer is put on disk, the next request is already out.
        self._most_threads = workers + (workers + 1) // 2
        self._threads: list[threading.Thread] = []
        self._todo: SimpleQueue[Request | None] = SimpleQueue()
        self._done: SimpleQueue[Result] = SimpleQueue()

    def fill(self, source: Iterator[Request]) -> None:
        """Hand in requests while there is room and nothing has failed."""
        while self.failure is None and self.open < 2 * self._workers:
            try:
                self._put(next(source))
            except StopIteration:
                return
            except Exception as error:
                self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Begin nothing more."""
        self.failure = self.failure or error
        self._stop.set()

    def _put(self, request: Request) -> None:
        self.open += 1
        self._todo.put(request)
        if len(self._threads) < self._most_threads:
            self._threads.append(threading.Thread(target=self._work, daemon=True))
            self._threads[-1].start()

    def get(self) -> Reply | None:
        """The next answer; None for a request that has none."""
        result = self._done.get()
        self.open -= 1
        if isinstance(result, BaseException):
            self.fail(result)
            return None
        return result

    def close(self) -> None:
        """Begin nothing more, and give what is under way a moment: it has been paid for."""
        self._stop.set()
        for _ in self._threads:
            self._todo.put(None)
        until = time.monotonic() + GRACE
        try:
            while self.open and (left := until - time.monotonic()) > 0:
                self._done.get(timeout=left)
                self.open -= 1
        except Empty:
            pass

    def _work(self) -> None:
        while (request := self._todo.get()) is not None:
            self._done.put(self._one(request))

    def _one(self, request: Request) -> Result:
        try:
            with self._slots:
                if self._stop.is_set():
                    return None
                reply = self._ask(request, self._stop)
            if self._on_reply is not None:
                self._on_reply(request, reply)
        except BaseException as error:
            return error  # raised by the thread that reads the results
        return reply
