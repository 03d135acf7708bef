"""All that pages are made from, in one place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from ...core import UnknownName
from ...results.ledger import ledger
from ...results.progress import Progress, read_progress
from ...scoring import MAIN, Measure
from ...tasks import collections
from .data.columns import MEASURES, ScoreBook
from .data.failures import failures, reading_limit
from .data.holdings import ORDER, Holdings, held
from .data.looked_at import Looks
from .data.rankings import Rankings
from .data.shelf import Entry, Shelf
from .data.standings import Standings
from .data.texts import Texts

Parameters = Callable[[str], int | None]
"""From the name of a system to the weights of its models."""


def unknown_parameters(system: str) -> int | None:
    """Nobody knows."""
    return None


class Site:
    """Some results folders, looked at."""

    def __init__(
        self,
        roots: Sequence[Path],
        *,
        task_folders: Sequence[Path] = (),
        parameters: Parameters = unknown_parameters,
    ) -> None:
        self.shelf = Shelf(roots)
        self.book = ScoreBook(self.shelf)
        self.standings = Standings(self.book)
        self.rankings = Rankings(self.shelf)
        self.texts = Texts(task_folders)
        self.looks = Looks()
        self.parameters = parameters
        self._held: tuple[int, dict[str, Holdings]] = (-1, {})
        self._failures: dict[Path, tuple[tuple[int, int], dict[str, frozenset[str]]]] = {}
        self._lock = threading.Lock()

    @property
    def held(self) -> dict[str, Holdings]:
        """The collections that have results."""
        self.shelf.refresh()
        with self._lock:
            if self._held[0] != self.shelf.version:
                self._held = (self.shelf.version, held(self.shelf))
            return self._held[1]

    def holdings(self, slug: str) -> Holdings:
        """One collection: what is held of it, or nothing of a collection that only others have figures for."""
        known = self.held
        if slug in known:
            return known[slug]
        if slug not in self.collections():
            raise UnknownName("collection", slug, self.collections(), hint=f"(there are {', '.join(known) or 'none'})")
        whole = tuple(entry.name for entry in collections()[slug].tasks)
        return Holdings(slug, whole, whole, {}, {}, ())

    def collections(self) -> list[str]:
        """Collections with results, then those with published figures only."""
        published = {figure.collection for figure in ledger()}
        return [*self.held, *(c for c in ORDER if c in published and c not in self.held)]

    def default_collection(self) -> str:
        """Where to start: the largest that has results, else R2MED's published figures."""
        return next(iter(self.held), "r2med")

    def measure(self, key: str) -> Measure:
        """A measure that is kept by query."""
        measure = Measure.parse(key) if key else MAIN
        if measure not in MEASURES:
            known = [str(m) for m in MEASURES]
            raise UnknownName("measure", key, known, hint=f"(shown here: {', '.join(known)})")
        return measure

    def failures(self, entry: Entry) -> dict[str, frozenset[str]] | None:
        """How each query fails under one system on one task; None without the texts."""
        known = self._failures.get(entry.path)
        if known and known[0] == entry.stamp:
            return known[1]
        task = self.texts.of(entry.result.task).task
        if task is None:
            return None
        found = failures(self.rankings.of(entry), task, reading_limit(entry))
        self._failures[entry.path] = (entry.stamp, found)
        return found

    def failures_of(self, entry: Entry, query_id: str) -> frozenset[str]:
        """How one query fails; nothing without the texts."""
        known = self._failures.get(entry.path)
        if known and known[0] == entry.stamp:
            return known[1].get(query_id, frozenset())
        task = self.texts.of(entry.result.task).task
        if task is None:
            return frozenset()
        return failures(self.rankings.of(entry), task, reading_limit(entry), only=[query_id])[query_id]

    def progress(self) -> Progress | None:
        """The run that goes on or was the last to, over all folders."""
        states = [state for root in self.shelf.roots if (state := read_progress(root)) is not None]
        return max(states, key=lambda s: (s.running, s.updated), default=None)

    def problems(self, holdings: Holdings | None = None) -> list[str]:
        """What could not be shown, and why."""
        found = [*self.shelf.problems]
        if holdings is not None:
            entries = (e for of in holdings.systems.values() for e in of.values())
            found += [*holdings.problems, *(p for e in entries if (p := self.book.problem(e)))]
        return found

    def warm(self) -> None:
        """Read what the first pages need, before anybody asks."""
        for holdings in self.held.values():
            self.standings.of(holdings, MAIN, self.shelf.version, wait=None)
