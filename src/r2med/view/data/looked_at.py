"""Facts about a task that do not depend on results: counts, tendencies, what an audit finds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from ...core import Task
from ...tasks import Stats, Tendencies, stats, tendencies
from ...tasks.audit import audit
from ...tasks.audit.findings import TaskAudit
from ...text.duplicates import find_copies

AUDIT_UP_TO = 500  # documents: larger ones are audited by the command, not while a page waits
KEPT = 24


class LookedAt(NamedTuple):
    """A task, measured."""

    stats: Stats
    tendencies: Tendencies
    audit: TaskAudit | None


class Looks:
    """Measures tasks once."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, LookedAt] = OrderedDict()
        self._copies: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, task: Task) -> LookedAt:
        """The facts about a task."""
        with self._lock:
            known = self._known.get(task.fingerprint)
            if known is None:
                small = len(task.documents) <= AUDIT_UP_TO
                known = LookedAt(stats(task), tendencies(task), audit([task]).tasks[0] if small else None)
                self._known[task.fingerprint] = known
                if len(self._known) > KEPT:
                    self._known.popitem(last=False)
            return known

    def copies(self, task: Task, doc_id: str) -> list[str]:
        """Other documents with the same text."""
        with self._lock:
            known = self._copies.get(task.fingerprint)
            if known is None:
                known = self._copies[task.fingerprint] = find_copies(task.documents)
                if len(self._copies) > KEPT:
                    self._copies.popitem(last=False)
        own = known.get(doc_id)
        return [] if own is None else [d for d, first in known.items() if first == own and d != doc_id]
