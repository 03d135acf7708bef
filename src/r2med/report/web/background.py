"""Work that takes longer than a page may: done in one thread, its value kept or let go.

Typed queries are such work, with a bound on how many wait. What is typed lives in memory until it is answered, and
nowhere else. How a task is searched is passed in: this room knows rankings and explanations, not retrievers.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as StillWorking
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from ...core import R2MedError, Task
from ...core.queries import Tried, Typed

KEPT = 64
MOST_WAITING = 4
WAIT = 5.0
"""Seconds after which a page says that it is being worked on."""
T = TypeVar("T")


class Background:
    """Values by key, worked out when they are first asked for and kept until what they depend on changes."""

    def __init__(self, kept: int = KEPT) -> None:
        self._most = kept
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, tuple[object, Future[Any]]] = OrderedDict()
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        # A daemon, so that the app does not wait for it when it is stopped.
        threading.Thread(target=self._work, name="background", daemon=True).start()

    def get(self, key: Hashable, depends_on: object, make: Callable[[], T], *, wait: float | None) -> T | None:
        """The value, or None where it takes longer than `wait` seconds (None: wait for it)."""
        with self._lock:
            known = self._known.get(key)
            if known is None or known[0] is not depends_on:
                if known is not None:
                    known[1].cancel()
                known = (depends_on, Future())
                self._known[key] = known
                self._jobs.put((known[1], make))
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)[1][1].cancel()
        try:
            value: T = known[1].result(timeout=wait)
        except StillWorking:
            return None
        return value

    def knows(self, key: Hashable) -> bool:
        """Whether a value was asked for before."""
        with self._lock:
            return key in self._known

    def waiting(self) -> int:
        """How many values are not there yet."""
        with self._lock:
            return sum(not future.done() for _, future in self._known.values())

    def forget(self, key: Hashable) -> None:
        """Let go of a value."""
        with self._lock:
            known = self._known.pop(key, None)
        if known is not None:
            known[1].cancel()

    def _work(self) -> None:
        while True:
            future, make = self._jobs.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(make())
                except BaseException as error:
                    future.set_exception(error)


class Searcher(Protocol):
    """Searches a task for a typed text."""

    @property
    def doing(self) -> str:
        """What it is busy with; empty where it is not."""
        ...

    def systems(self, names: Sequence[str] = ()) -> list[str]:
        """Those of some systems that can be tried here, then others that can."""
        ...

    def search(self, task: Task, systems: Sequence[str], typed: Typed) -> list[Tried]:
        """The rankings of a text by some systems."""
        ...


class Busy(R2MedError):
    """Too many searches are waiting."""


class Trying:
    """The searches that are under way."""

    def __init__(self, search: Searcher, *, wait: float = WAIT) -> None:
        self.search, self.wait = search, wait
        self._background = Background(2 * MOST_WAITING)

    def ask(self, task: Task, systems: Sequence[str], typed: Typed) -> list[Tried] | None:
        """The rankings, or None where they are not there yet: whoever asks again for the same gets them then."""
        key = (task.fingerprint, tuple(systems), typed)
        if not self._background.knows(key) and self._background.waiting() >= MOST_WAITING:
            raise Busy(f"{MOST_WAITING} searches are waiting already: try again in a moment")
        try:
            found = self._background.get(key, None, lambda: self.search.search(task, systems, typed), wait=self.wait)
        except CancelledError:
            raise Busy("other searches took its place: try again") from None
        except Exception:
            self._background.forget(key)
            raise
        if found is not None:
            self._background.forget(key)
        return found
