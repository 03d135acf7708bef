"""Two systems against each other: what changed, where, and whether it means anything."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from ....core import UnknownName
from ....scoring import Measure
from ....scoring.compare import Comparison, Moved, compare, most_moved
from ....scoring.score_set import ScoreSet, TaskScores
from ..asked import Asked, Links, Page
from ..charts.scatter import Dot, draw_queries
from ..data.columns import MEASURES
from ..data.holdings import Holdings
from ..site import Site
from ..text import snippet
from .choices import Chip, chips, collection_chips, collection_title

LISTED = 25
FEW = 6
_KEPT: OrderedDict[tuple[Any, ...], tuple[ScoreSet, Comparison]] = OrderedDict()


def compare_page(site: Site, asked: Asked, url: Links) -> Page:
    """The page."""
    slug = asked.parts[0] if asked.parts else site.default_collection()
    holdings = site.holdings(slug)
    measure = site.measure(asked.get("measure"))
    usual = _best(site, holdings, measure)[:2]
    chosen = (*asked.all("s"), *(s for s in usual if s not in asked.all("s")))[:2]
    for system in chosen:
        if system not in holdings.systems:
            raise UnknownName("system", system, holdings.systems, hint=f"in {slug}")
    key = "" if measure == MEASURES[0] else measure.key
    everything = asked.get("show") == "all"

    def link(**changed: Any) -> str:
        params = {"s": () if list(chosen) == usual else chosen, "measure": key, "show": "all" if everything else ""}
        return url("compare", slug, **(params | changed))

    context: dict[str, Any] = {
        "collections": collection_chips(site, slug, lambda c: url("compare", c), held_only=True),
        "measures": chips(
            [(m, str(m)) for m in MEASURES], measure, lambda m: link(measure="" if m == MEASURES[0] else m.key)
        ),
        "collection_title": collection_title(site, slug),
        "slug": slug,
        "measure": measure,
        "measure_key": key,
        "all_systems": list(holdings.systems),
        "chosen": chosen,
        "pairs": _pairs(holdings, chosen, lambda pair: url("compare", slug, s=pair)),
        "swap": link(s=tuple(reversed(chosen))),
        "pair": None,
    }
    if len(chosen) == 2 and (scores := _score_set(site, holdings, chosen, measure)) is not None:
        context |= _compared(site, holdings, scores, url, key, everything, link)
    return Page("compare.html", "Compare", context, "compare")


def _pairs(holdings: Holdings, chosen: tuple[str, ...], link: Any) -> list[Chip]:
    """Every pair, where there are few."""
    if len(holdings.systems) > FEW:
        return []
    here = tuple(sorted(chosen))
    return chips([(p, " and ".join(p)) for p in combinations(sorted(holdings.systems), 2)], here, link)


def _best(site: Site, holdings: Holdings, measure: Measure) -> list[str]:
    """Systems by mean over their tasks, those with most tasks first."""

    def rank(system: str) -> tuple[int, float, str]:
        results = [e.result for e in holdings.systems[system].values()]
        return -len(results), -sum(r.measures.get(measure.key, 0.0) for r in results) / len(results), system

    return sorted(holdings.systems, key=rank)


def _score_set(site: Site, holdings: Holdings, systems: tuple[str, ...], measure: Measure) -> ScoreSet | None:
    tasks = []
    for task in holdings.tasks:
        table = site.book.task(holdings, task, measure)
        names = [e.system for e in site.book.entries(holdings, task, measure)]
        if table is not None and all(s in names for s in systems):
            rows = np.array([names.index(s) for s in systems])
            tasks.append(TaskScores(task, table.query_ids, table.scores[rows]))
    if not tasks:
        return None
    return ScoreSet(systems, tuple(tasks), max(len(holdings.whole), len(tasks)), measure)


def _statistics(site: Site, slug: str, scores: ScoreSet) -> Comparison:
    key = (id(site), site.shelf.version, slug, scores.systems, scores.measure)
    known = _KEPT.get(key)
    if known is None:
        known = _KEPT[key] = (scores, compare(scores))
        while len(_KEPT) > 32:
            _KEPT.popitem(last=False)
    return known[1]


def _compared(
    site: Site, holdings: Holdings, scores: ScoreSet, url: Links, key: str, everything: bool, link: Any
) -> dict[str, Any]:
    found = _statistics(site, holdings.slug, scores)
    pair = found.pairs[0]
    moved = most_moved(scores, 0, 1, scores.queries)
    shown = partial(_shown, site, holdings, scores.systems, url, key)
    gains = sorted((m for m in moved if m.difference > 0), key=lambda m: -m.difference)
    losses = sorted((m for m in moved if m.difference < 0), key=lambda m: m.difference)
    dots = [
        Dot(task.name, q, float(a), float(b), _query_href(url, holdings, task.name, q, scores.systems, key))
        for task in scores.tasks
        for q, a, b in zip(task.query_ids, task.scores[0].tolist(), task.scores[1].tolist(), strict=True)
    ]
    most = None if everything else LISTED
    tasks = [t.name for t in scores.tasks]
    return {
        "pair": pair,
        "first": found.systems[0],
        "second": found.systems[1],
        "settings": found.settings,
        "gains": [shown(m) for m in gains[:most]],
        "losses": [shown(m) for m in losses[:most]],
        "gains_all": len(gains),
        "losses_all": len(losses),
        "more": link(show="" if everything else "all"),
        "everything": everything,
        "scatter": draw_queries(dots, tasks, scores.systems[0], scores.systems[1], str(scores.measure)),
        "left_out": [t for t in holdings.tasks if t not in tasks],
    }


def _shown(
    site: Site, holdings: Holdings, systems: tuple[str, ...], url: Links, key: str, moved: Moved
) -> dict[str, Any]:
    behind = site.texts.of(holdings.infos[moved.task])
    query = behind.task.query(moved.query_id) if behind.task else None
    return {
        "moved": moved,
        "text": snippet(query.text, 110) if query else "",
        "href": _query_href(url, holdings, moved.task, moved.query_id, systems, key),
    }


def _query_href(url: Links, holdings: Holdings, task: str, query_id: str, systems: tuple[str, ...], key: str) -> str:
    return url.near("query", holdings.slug, task, query_id, s=systems, order="diff", scope="all", measure=key)
