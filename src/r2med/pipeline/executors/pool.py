"""Jobs to workers and back: the part that local processes and Ray actors share.

A worker that dies gives its job back to the queue and is replaced. Two bounds keep that from going on for ever: a job
that was with `ATTEMPTS` workers when they died is not tried again, and a pool whose workers die without finishing
anything, or of which none is left for `PATIENCE` seconds, gives up.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from ..._version import __version__
from ...core import DataError, MissingExtra, ModelError, R2MedError, ResultError, Unavailable, UsageError
from . import Ticket
from .jobs import Failure, Hello, Job

ATTEMPTS = 4
PATIENCE = 120.0
ERRORS: dict[str, type[R2MedError]] = {
    kind.__name__: kind for kind in (UsageError, DataError, ModelError, ResultError, Unavailable)
}


class Event(NamedTuple):
    """What happened to a worker: it is up (a `Hello`), has a value, or has died."""

    worker: Any
    value: Any
    died: str = ""
    """Why, in a few words; empty while it lives."""


class Workers(Protocol):
    """Where workers come from."""

    size: int
    """How many are wanted."""

    def start(self) -> None:
        """Get ready; raises if there can be no workers."""
        ...

    def spawn(self) -> Any:
        """Begin to make a worker; its first event is its hello."""
        ...

    def send(self, worker: Any, job: Job) -> None:
        """Give an idle worker a job."""
        ...

    def events(self, timeout: float) -> Sequence[Event]:
        """What has happened, waiting if nothing has."""
        ...

    def share(self, value: Any) -> Any:
        """A large value that several jobs hold, put where workers find it."""
        ...

    def stop(self) -> None:
        """End all workers at once."""
        ...


class Queued(NamedTuple):
    """A job in the queue."""

    ticket: Ticket
    job: Job
    attempts: int = 0


class Pool:
    """A queue of jobs and the workers that empty it; driven by whoever waits for a result."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self.nodes: dict[Any, Hello] = {}
        """Workers that are up."""
        self.deaths = 0
        self._queue: deque[Queued] = deque()
        self._busy: dict[Any, Queued] = {}
        self._coming = 0
        self._done: dict[Ticket, Any] = {}
        self._unwanted: set[Ticket] = set()
        self._next = 0
        self._fruitless = 0
        self._alone_since: float | None = None

    def submit(self, job: Job) -> Ticket:
        """Put a job at the end of the queue."""
        self._next += 1
        self._queue.append(Queued(self._next, job))
        self._dispatch()
        return self._next

    def first(self, tickets: Sequence[Ticket]) -> tuple[Ticket, Any]:
        """The value of the first of these jobs to be finished; raises what went wrong on the worker."""
        while True:
            for ticket in tickets:
                if ticket in self._done:
                    return ticket, self._value(self._done.pop(ticket))
            self._step()

    def map(self, jobs: Iterator[Job]) -> Iterator[tuple[int, Any]]:
        """Values of many jobs with their numbers, in the order they are finished; few are in memory at once."""
        ahead = 2 * max(self.workers.size, 1)
        numbered = enumerate(jobs)
        waiting: dict[Ticket, int] = {}
        try:
            while True:
                while len(waiting) < ahead and (coming := next(numbered, None)) is not None:
                    number, job = coming
                    waiting[self.submit(job)] = number
                if not waiting:
                    return
                ticket, value = self.first(list(waiting))
                yield waiting.pop(ticket), value
        finally:
            # Nobody will look at what is still under way: an error, or an interrupt.
            self._queue = deque(task for task in self._queue if task.ticket not in waiting)
            self._unwanted |= {task.ticket for task in self._busy.values() if task.ticket in waiting}

    def close(self) -> None:
        """Stop all workers, whatever they are doing."""
        self._queue.clear()
        self._busy.clear()
        self.nodes.clear()
        self.workers.stop()

    def _dispatch(self) -> None:
        while self._coming + len(self.nodes) < self.workers.size and self._queue:
            self.workers.spawn()
            self._coming += 1
        for worker in self.nodes:
            if not self._queue:
                return
            if worker not in self._busy:
                task = self._queue.popleft()
                self._busy[worker] = task
                self.workers.send(worker, task.job)

    def _step(self) -> None:
        self._dispatch()
        for event in self.workers.events(1.0):
            if event.died:
                self._lost(event)
            elif isinstance(event.value, Hello):
                self._welcome(event.worker, event.value)
            elif event.worker in self._busy:
                self._fruitless = 0
                task = self._busy.pop(event.worker)
                if task.ticket in self._unwanted:
                    self._unwanted.discard(task.ticket)
                else:
                    self._done[task.ticket] = event.value
        self._dispatch()
        self._check_workers_left()

    def _welcome(self, worker: Any, hello: Hello) -> None:
        self._coming -= 1
        if hello.version != __version__:
            raise UsageError(f"{hello.node} has r2med {hello.version}, the driver {__version__}: install the same")
        self.nodes[worker] = hello

    def _lost(self, event: Event) -> None:
        self.deaths += 1
        self._fruitless += 1
        if self.nodes.pop(event.worker, None) is None:
            self._coming -= 1
        task = self._busy.pop(event.worker, None)
        if task is not None and task.ticket not in self._unwanted:
            if task.attempts + 1 >= ATTEMPTS:
                raise ModelError(f"one piece of work ended {ATTEMPTS} workers, the last by: {event.died}")
            self._queue.appendleft(task._replace(attempts=task.attempts + 1))
        if self._fruitless > ATTEMPTS * max(self.workers.size, 1):
            raise Unavailable(f"workers end before they finish anything, the last by: {event.died}")

    def _check_workers_left(self) -> None:
        if self.nodes:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = time.monotonic()
        elif time.monotonic() - self._alone_since > PATIENCE:
            raise Unavailable(f"no worker is left, and none came in {PATIENCE:.0f} seconds: are all nodes gone?")

    def _value(self, value: Any) -> Any:
        if not isinstance(value, Failure):
            return value
        if value.kind == MissingExtra.__name__:
            raise ModelError(f"on {value.node}: {value.message}")
        raise ERRORS.get(value.kind, ModelError)(f"on {value.node}: {value.message}")
