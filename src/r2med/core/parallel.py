"""Many slow calls at once: a window of jobs in flight, results as they come, one place where failures end.

The threads are daemons: a call that never returns cannot keep the program from ending.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

GRACE = 1.0
"""Seconds that calls under way get when the caller stops early: their results may have been paid for."""

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_parallel(
    jobs: Iterable[Job],
    work: Callable[[Job, threading.Event], Result],
    workers: int,
    *,
    on_result: Callable[[Job, Result], None] | None = None,
    give_up: Callable[[Result], BaseException | None] | None = None,
) -> Iterator[Result]:
    """Results of `work` on all jobs, `workers` at a time, each when it is there; `jobs` is read as there is room.

    The event given to `work` is set when nothing more shall be begun. `on_result` is called in the thread that did the
    work, the moment it is done. The first exception of a job, or the one that `give_up` makes of a result, ends it
    all; it is raised after the results under way have been handed out.
    """
    window = _Window(work, workers, on_result)
    source = iter(jobs)
    try:
        window.fill(source)
        while window.open:
            outcome = window.get()
            if outcome.failure is not None:
                window.fail(outcome.failure)
            for result in outcome.results:
                if give_up is not None and (reason := give_up(result)) is not None:
                    window.fail(reason)
                yield result
            window.fill(source)
    finally:
        window.close()
    if window.failure is not None:
        raise window.failure


@dataclass(frozen=True)
class _Outcome(Generic[Result]):
    """What became of a job: one result, a failure, or neither where it was not begun."""

    results: tuple[Result, ...] = ()
    failure: BaseException | None = None


class _Window(Generic[Job, Result]):
    """Threads that work through a queue."""

    def __init__(
        self,
        work: Callable[[Job, threading.Event], Result],
        workers: int,
        on_result: Callable[[Job, Result], None] | None,
    ) -> None:
        self.open = 0
        """Jobs handed in whose outcome has not been taken out."""
        self.failure: BaseException | None = None
        """What ended it all; later ones follow from it."""
        self._stop = threading.Event()
        self._work, self._workers, self._on_result = work, workers, on_result
        self._slots = threading.Semaphore(workers)
        # Only working takes a slot: while one result is put on disk, the next job has already begun.
        self._most_threads = workers + (workers + 1) // 2
        self._threads: list[threading.Thread] = []
        self._todo: SimpleQueue[tuple[Job] | None] = SimpleQueue()
        self._done: SimpleQueue[_Outcome[Result]] = SimpleQueue()

    def fill(self, source: Iterator[Job]) -> None:
        """Hand in jobs while there is room and nothing has failed."""
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

    def _put(self, job: Job) -> None:
        self.open += 1
        self._todo.put((job,))
        if len(self._threads) < self._most_threads:
            self._threads.append(threading.Thread(target=self._run, daemon=True))
            self._threads[-1].start()

    def get(self) -> _Outcome[Result]:
        """The next outcome."""
        outcome = self._done.get()
        self.open -= 1
        return outcome

    def close(self) -> None:
        """Begin nothing more, and give what is under way a moment."""
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

    def _run(self) -> None:
        while (job := self._todo.get()) is not None:
            self._done.put(self._one(*job))

    def _one(self, job: Job) -> _Outcome[Result]:
        try:
            with self._slots:
                if self._stop.is_set():
                    return _Outcome()
                result = self._work(job, self._stop)
            if self._on_result is not None:
                self._on_result(job, result)
        except BaseException as error:
            self._stop.set()
            return _Outcome(failure=error)  # raised by the thread that reads the results
        return _Outcome((result,))
