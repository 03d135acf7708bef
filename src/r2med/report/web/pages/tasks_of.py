"""Finding the task that an address names."""

from __future__ import annotations

from ....core import UnknownName, UsageError
from ....scoring import Measure
from ..asked import Asked
from ..data.holdings import Holdings
from ..site import Site


def find_task(site: Site, asked: Asked) -> tuple[Holdings, str]:
    """The collection and the task of an address; only tasks that have results have pages."""
    if len(asked.parts) < 2:
        raise UsageError("this address lacks a task: /task/COLLECTION/TASK")
    holdings = site.holdings(asked.parts[0])
    if asked.parts[1] not in holdings.infos:
        raise UnknownName("task", asked.parts[1], holdings.infos, hint=f"in {holdings.slug}, or it has no results yet")
    return holdings, asked.parts[1]


def standing_on(site: Site, holdings: Holdings, task: str, measure: Measure) -> list[str]:
    """Systems with results on a task, best first."""
    scores = {
        s: e.result.measures.get(measure.key, 0.0)
        for s in holdings.systems
        if (e := holdings.entry(s, task)) is not None
    }
    return sorted(scores, key=lambda s: (-scores[s], s))
