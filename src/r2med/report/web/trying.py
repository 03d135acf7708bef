"""Typed queries: searched one at a time in a thread of their own, with a bound on how many wait.

What is typed lives in memory until it is answered, and nowhere else. How a task is searched is passed in: this room
knows rankings and explanations, not retrievers.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Protocol

from ...core import R2MedError, Task
from ...core.queries import Tried, Typed
from .background import Background

MOST_WAITING = 4
WAIT = 5.0
"""Seconds after which a page says that it is being worked on."""


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
