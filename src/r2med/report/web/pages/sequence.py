"""In which order one goes from query to query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....core import R2MedError
from ....scoring import Measure
from ..data.failures import KINDS
from ..data.holdings import Holdings
from ..site import Site

ORDERS = {"score": "Lowest score first", "diff": "Largest difference first"} | {
    name: kind.title for name, kind in KINDS.items()
}


class Stop(NamedTuple):
    """One query on the way."""

    task: str
    query_id: str
    value: float


def stops(
    site: Site, holdings: Holdings, tasks: Sequence[str], systems: Sequence[str], order: str, measure: Measure
) -> list[Stop]:
    """The queries of some tasks in an order that is about the first system, or the first two."""
    found = []
    for task in tasks:
        found += _of_task(site, holdings, task, systems, order, measure)
    if order == "diff":
        return sorted(found, key=lambda s: (-abs(s.value), s.task, s.query_id))
    return sorted(found, key=lambda s: (s.value, s.task, s.query_id))


def _of_task(
    site: Site, holdings: Holdings, task: str, systems: Sequence[str], order: str, measure: Measure
) -> list[Stop]:
    entries = [e for s in systems if (e := holdings.entry(s, task)) is not None]
    if not entries or (order == "diff" and len(entries) < 2):
        return []
    scores = site.book.scores(entries[0], measure)
    if order == "diff":
        other = site.book.scores(entries[1], measure)
        return [Stop(task, q, other[q] - v) for q, v in scores.items() if q in other and abs(other[q] - v) > 1e-6]
    if order in KINDS:
        try:
            kinds = site.failures(entries[0]) or {}
        except R2MedError:
            return []
        return [Stop(task, q, v) for q, v in scores.items() if order in kinds.get(q, ())]
    return [Stop(task, q, v) for q, v in scores.items()]
