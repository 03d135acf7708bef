"""Intervals and tie groups of a whole collection, worked out beside the pages and kept until results change."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillWorking
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np

from ...core import R2MedError
from ...scoring import Measure
from ...scoring.intervals import Settings, SystemScores, score_intervals
from ...scoring.score_set import ScoreSet, TaskScores
from ...scoring.significance import tie_groups
from .columns import ScoreBook
from .holdings import Holdings

MANY = 100
AT_ONCE = 50  # systems: the resampled means of more would not fit comfortably in memory


@dataclass(frozen=True)
class Standing:
    """What the statistics say about the systems of a collection."""

    scores: dict[str, SystemScores]
    groups: dict[str, int]
    settings: Settings
    problem: str = ""


class Standings:
    """Works them out in a thread of its own, each once."""

    def __init__(self, book: ScoreBook) -> None:
        self._book = book
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[int, Future[Standing]]] = {}
        self._jobs: SimpleQueue[tuple[Future[Standing], Holdings, Measure]] = SimpleQueue()
        # A daemon: nobody should wait for intervals when the app is stopped.
        threading.Thread(target=self._work, name="standings", daemon=True).start()

    def of(self, holdings: Holdings, measure: Measure, version: int, *, wait: float | None) -> Standing | None:
        """The standing, or None where it takes longer than `wait` seconds (None: wait for it)."""
        key = (holdings.slug, measure.key)
        with self._lock:
            known = self._known.get(key)
            if known is None or known[0] != version:
                if known is not None:
                    known[1].cancel()
                known = (version, Future())
                self._known[key] = known
                self._jobs.put((known[1], holdings, measure))
        try:
            return known[1].result(timeout=wait)
        except StillWorking:
            return None

    def _work(self) -> None:
        while True:
            future, holdings, measure = self._jobs.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work_out(self._book, holdings, measure))
            except R2MedError as error:
                future.set_result(Standing({}, {}, Settings(), str(error)))
            except BaseException as error:
                future.set_exception(error)


def work_out(book: ScoreBook, holdings: Holdings, measure: Measure) -> Standing:
    """Intervals of every system; tie groups among those that have every task."""
    count = len(holdings.systems)
    settings = Settings(resamples=10_000 if count <= MANY else 2_000)
    per_task: dict[str, tuple[TaskScores, dict[str, int]]] = {}
    for task in holdings.tasks:
        table = book.task(holdings, task, measure)
        if table is not None:
            names = [e.system for e in book.entries(holdings, task, measure)]
            per_task[task] = table, {name: row for row, name in enumerate(names)}
    alike: dict[tuple[str, ...], list[str]] = {}
    for system in holdings.systems:
        tasks = tuple(t for t, (_, rows) in per_task.items() if system in rows)
        if tasks:
            alike.setdefault(tasks, []).append(system)
    scores: dict[str, SystemScores] = {}
    groups: dict[str, int] = {}
    for tasks, systems in alike.items():
        for begin in range(0, len(systems), AT_ONCE):
            chunk = score_set(per_task, tasks, systems[begin : begin + AT_ONCE], holdings, measure)
            scores |= {s.name: s for s in score_intervals(chunk, settings)}
        if set(holdings.whole) <= set(tasks) and len(systems) > 1:
            whole = score_set(per_task, holdings.whole, systems, holdings, measure)
            # Holm divides by the number of systems: p must be able to get that small.
            fine = Settings(resamples=max(10_000, 40 * len(systems)))
            groups = dict(zip(systems, tie_groups(whole.matrices, fine), strict=True))
    return Standing(scores, groups, settings)


def score_set(
    per_task: dict[str, tuple[TaskScores, dict[str, int]]],
    tasks: Sequence[str],
    systems: Sequence[str],
    holdings: Holdings,
    measure: Measure,
) -> ScoreSet:
    """Some systems on tasks that all of them have."""
    chosen = []
    for task in tasks:
        table, rows = per_task[task]
        chosen.append(TaskScores(task, table.query_ids, table.scores[np.array([rows[s] for s in systems])]))
    return ScoreSet(tuple(systems), tuple(chosen), max(len(holdings.whole), len(tasks)), measure)
