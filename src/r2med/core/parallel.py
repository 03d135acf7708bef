"""Slow calls: one with a deadline, however slowly a server answers, and many at once, with a window of jobs in flight.

The threads are daemons: a call that never returns cannot keep the program from ending. What takes the processor rather
than time is done in processes, with the same results in the same order for any number of them.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from .errors import Unavailable

STOP = threading.Event()
"""Set when the program ends: calls under way are abandoned at once, whichever thread waits for them."""
LOOK_SECONDS = 0.2
"""How often a waiting thread looks whether it shall stop."""
GRACE = 1.0
"""Seconds that calls under way get when the caller stops early: their results may have been paid for."""

_CLOSED = object()
Job = TypeVar("Job")
Result = TypeVar("Result")


def in_time(call: Callable[[], Result], seconds: float) -> Result:
    """What a call returns or raises; a `TimeoutError` after so many seconds.

    It runs in a thread of its own, which is left to itself when the time is over or the program ends: no library call
    can be interrupted while it waits for a header, a name server or a certificate.
    """
    outcome: SimpleQueue[tuple[Result] | BaseException] = SimpleQueue()
    deadline = time.monotonic() + seconds

    def run() -> None:
        try:
            outcome.put((call(),))
        except BaseException as error:
            outcome.put(error)

    threading.Thread(target=run, daemon=True).start()
    while (left := deadline - time.monotonic()) > 0 and not STOP.is_set():
        try:
            found = outcome.get(timeout=min(left, LOOK_SECONDS))
        except Empty:
            continue
        if isinstance(found, BaseException):
            raise found
        return found[0]
    if STOP.is_set():
        raise Unavailable("interrupted")
    raise TimeoutError(f"no whole answer within {seconds:.0f} seconds")


def sleep(seconds: float, stop: threading.Event) -> None:
    """Sleep, but no longer than until `stop` or the end of the program."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not shall_end(stop):
        stop.wait(min(left, LOOK_SECONDS))


def shall_end(stop: threading.Event) -> bool:
    """Whether nothing more shall be begun: here, or in the whole program."""
    return stop.is_set() or STOP.is_set()


class Feed(Generic[Job]):
    """Jobs that become known while others are done: it ends when it has none, and goes on when it has again."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()

    def add(self, job: Job) -> None:
        """Put a job behind those that wait."""
        self._jobs.append(job)

    def __iter__(self) -> Feed[Job]:
        return self

    def __next__(self) -> Job:
        if not self._jobs:
            raise StopIteration
        return self._jobs.popleft()


def in_parallel(
    jobs: Iterable[Job],
    work: Callable[[Job, threading.Event], Result],
    workers: int,
    *,
    on_result: Callable[[Job, Result], None] | None = None,
    give_up: Callable[[Result], BaseException | None] | None = None,
) -> Iterator[Result]:
    """Results of `work` on all jobs, `workers` at a time, each when it is there; `jobs` is read as there is room.

    `jobs` is asked again after each result that was handed out, so a `Feed` may be filled by whoever takes results.

    The event given to `work` is set when nothing more shall be begun. `on_result` is called in the thread that did the
    work, the moment it is done. The first exception of a job, or the one that `give_up` makes of a result, ends it
    all; it is raised after the results under way have been handed out.
    """
    window = _Window(work, workers, on_result)
    try:
        for result in window.results(iter(jobs)):
            if give_up is not None:
                window.fail(give_up(result))
            yield result
    finally:
        window.close()
    if window.failure is not None:
        raise window.failure


class _Window(Generic[Job, Result]):
    """Threads that work through a queue."""

    def __init__(
        self,
        work: Callable[[Job, threading.Event], Result],
        workers: int,
        on_result: Callable[[Job, Result], None] | None,
    ) -> None:
        self.failure: BaseException | None = None  # what ended it all; later ones follow from it
        self._work, self._workers, self._on_result = work, workers, on_result
        self._stop = threading.Event()
        self._open = 0  # jobs handed in whose outcome has not been taken out
        # Only working takes a slot: while one result is put on disk, the next job has already begun.
        self._slots = threading.Semaphore(workers)
        self._threads: list[threading.Thread] = []
        self._todo: SimpleQueue[tuple[Job] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[Result] | BaseException | None] = SimpleQueue()
        """Of each job its result, its failure, or None where it was not begun."""

    def results(self, source: Iterator[Job]) -> Iterator[Result]:
        """Hand in jobs while there is room and nothing has failed, and hand out what becomes of them."""
        self._fill(source)
        while self._open:
            outcome = self._done.get()
            self._open -= 1
            if isinstance(outcome, BaseException):
                self.fail(outcome)
            elif outcome is not None:
                yield outcome[0]
            self._fill(source)

    def fail(self, error: BaseException | None) -> None:
        """Begin nothing more, if there is a reason."""
        if error is not None:
            self.failure = self.failure or error
            self._stop.set()

    def _fill(self, source: Iterator[Job]) -> None:
        while self.failure is None and self._open < 2 * self._workers:
            try:
                job = next(source)
            except StopIteration:
                return
            except Exception as error:
                self.fail(error)
                return
            self._open += 1
            self._todo.put((job,))
            if len(self._threads) < self._workers + (self._workers + 1) // 2:
                self._threads.append(threading.Thread(target=self._run, daemon=True))
                self._threads[-1].start()

    def close(self) -> None:
        """Begin nothing more, and give what is under way a moment."""
        self._stop.set()
        for _ in self._threads:
            self._todo.put(None)
        until = time.monotonic() + GRACE
        try:
            while self._open and (left := until - time.monotonic()) > 0:
                self._done.get(timeout=left)
                self._open -= 1
        except Empty:
            pass

    def _run(self) -> None:
        while True:
            try:
                if (outcome := self._next()) is _CLOSED:
                    return
                self._done.put(outcome)
            except BaseException as error:  # raised by the thread that reads the results
                self._stop.set()
                self._done.put(error)

    def _next(self) -> Any:
        """What becomes of the next job: its result, or None where it is not begun; `_CLOSED` where none will come."""
        with self._slots:  # before a job is taken: with one slot, jobs begin in their order
            if (taken := self._todo.get()) is None:
                return _CLOSED
            if self._stop.is_set():
                return None
            try:
                result = self._work(taken[0], self._stop)
            except BaseException:
                self._stop.set()  # before the next job can take the slot
                raise
        if self._on_result is not None:
            self._on_result(taken[0], result)
        return (result,)


def in_processes(jobs: Sequence[Job], make: Callable[[], Callable[[Job], Result]], processes: int) -> Iterator[Result]:
    """Results of what `make` makes, once in every process, on all jobs, in the order of the jobs.

    One process is this one. More are started as new interpreters, which read the main module again: a script of one's
    own has to begin its work below `if __name__ == "__main__"`. The first exception of a job ends it all.
    """
    processes = min(processes, len(jobs))
    if processes < 2:
        yield from map(make(), jobs)
        return
    import multiprocessing  # here, since few commands need it
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("spawn")  # a fork would inherit the threads' locks, not the threads
    pool = ProcessPoolExecutor(processes, context, _begin, (make,))
    try:
        yield from pool.map(_do, jobs)
    except BrokenProcessPool:
        raise Unavailable("a process ended before its work was done: fewer processes need less memory") from None
    finally:
        pool.shutdown(cancel_futures=True)


_made: list[Callable[[Any], Any]] = []  # what this process was started for, if it is one of these


def _begin(make: Callable[[], Callable[[Any], Any]]) -> None:
    """The beginning of a process; it ends with the one that started it."""
    from multiprocessing import parent_process

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the first process decides
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    _made.append(make())


def _do(job: Any) -> Any:
    return _made[0](job)
