"""The page of one task: what `r2med pages` writes, with the figures of the results at hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....core import R2MedError, Task
from ....scoring import Measure
from ....scoring.score_set import TaskScores
from ....tasks import collections
from ...leaderboard import MAIN_PROTOCOL
from ...pages.evidence import KINDS as FLAGS
from ..asked import Asked, Links, Page
from ..data.columns import MEASURES
from ..data.failures import KINDS
from ..data.holdings import Holdings
from ..data.looked_at import LookedAt
from ..data.rows import ALL, Cell, published_lines
from ..site import Site
from ..text import snippet
from .choices import chips
from .tasks_of import find_task, standing_on

SHOWN = 3
LISTED = 8
WAIT = 0.25


class Asks(NamedTuple):
    """One query in the list."""

    query_id: str
    text: str
    body_system: str
    positives: int | None
    scores: list[float | None]
    mean: float
    href: str


def task(site: Site, asked: Asked, url: Links) -> Page:
    """The page."""
    holdings, name = find_task(site, asked)
    measure = site.measure(asked.get("measure"))
    info = holdings.infos[name]
    behind = site.texts.of(info)
    look = site.looks.of(behind.task) if behind.task else None
    order = standing_on(site, holdings, name, measure)
    scores = site.book.task(holdings, name, measure)
    names = [e.system for e in site.book.entries(holdings, name, measure)]
    shown = [s for s in order if s in names][:SHOWN]
    entry = next((e for e in collections()[holdings.collection].tasks if e.name == name), None) if (
        holdings.collection in collections()
    ) else None  # fmt: skip
    context = {
        "info": info,
        "entry": entry,
        "measure": measure,
        "measures": chips(
            [(m, str(m)) for m in MEASURES],
            measure,
            lambda m: url("task", holdings.slug, name, measure="" if m == MEASURES[0] else m.key),
        ),
        "siblings": chips([(t, t) for t in holdings.tasks], name, lambda t: url("task", holdings.slug, t)),
        "why_no_texts": behind.why,
        "look": look,
        "flags": FLAGS,
        "systems": _systems(site, holdings, name, order, measure, url),
        "published": _published(holdings, name, measure),
        "shown": shown,
        "thirds": _thirds(look, scores, names, shown),
        "failures": _failures(site, holdings, name, shown, url),
        "queries": _queries(behind.task, scores, names, shown, holdings, name, measure, url),
        "examples": _examples(behind.task),
        "best_href": url("board", holdings.slug),
    }
    return Page("task.html", info.full_name, context, "task")


def _systems(
    site: Site, holdings: Holdings, name: str, order: list[str], measure: Measure, url: Links
) -> list[dict[str, Any]]:
    standing = site.standings.of(holdings, measure, site.shelf.version, wait=WAIT)
    rows = []
    for system in order:
        entry = holdings.systems[system][name]
        value = entry.result.measures.get(measure.key)
        said = standing.scores.get(system) if standing else None
        estimate = said.tasks.get(name) if said else None
        cell = Cell(None if value is None else 100 * value)
        if estimate is not None:
            cell = Cell(cell.value, 100 * estimate.low, 100 * estimate.high)
        others = {m: entry.result.measures.get(m.key) for m in MEASURES if m.key in ("recall_at_100", "hit_at_10")}
        rows.append(
            {"system": system, "cell": cell, "href": url("system", holdings.slug, system), "others": others,
             "missing": entry.result.missing_queries}
        )  # fmt: skip
    return rows


def _published(holdings: Holdings, name: str, measure: Measure) -> list[tuple[str, float, str]]:
    lines = published_lines(holdings.collection, measure, MAIN_PROTOCOL.get(holdings.collection, ALL))
    found = [(x.row.label, c.value, x.row.date) for x in lines if (c := x.tasks.get(name)) and c.value is not None]
    return sorted(found, key=lambda f: -f[1])[:10]


def _thirds(
    look: LookedAt | None, scores: TaskScores | None, names: list[str], shown: list[str]
) -> list[tuple[str, int, list[float]]]:
    """Scores where few words are shared with the positives, and where many are."""
    if look is None or scores is None:
        return []
    overlap = look.tendencies.overlap_of_query
    have = sorted((overlap[q], i) for i, q in enumerate(scores.query_ids) if q in overlap)
    if len(have) < 9:
        return []
    rows = np.array([names.index(s) for s in shown])
    found = []
    for title, part in zip(("fewest", "middle", "most"), np.array_split(np.arange(len(have)), 3), strict=True):
        columns = np.array([have[i][1] for i in part])
        means = (100 * scores.scores[np.ix_(rows, columns)].mean(axis=1)).tolist()
        low, high = have[int(part[0])][0], have[int(part[-1])][0]
        found.append((f"{title} ({100 * low:.0f}–{100 * high:.0f} % of the query’s words)", len(part), means))
    return found


def _failures(site: Site, holdings: Holdings, name: str, shown: list[str], url: Links) -> list[dict[str, Any]]:
    found = []
    for system in shown:
        try:
            kinds = site.failures(holdings.systems[system][name])
        except R2MedError:
            kinds = None
        if kinds is None:
            continue
        by_kind = {k: [q for q, of in kinds.items() if k in of] for k in KINDS}
        found.append(
            {
                "system": system,
                "fine": sum(not of for of in kinds.values()),
                "kinds": [
                    (KINDS[k], len(queries), [
                        (q, url.near("query", holdings.slug, name, q, order=k, s=_first(system, shown)))
                        for q in queries[:LISTED]
                    ])
                    for k, queries in by_kind.items()
                ],
            }
        )  # fmt: skip
    return found


def _first(system: str, shown: list[str]) -> list[str]:
    """The systems shown, the one that a link is about in front; nothing where that is the usual order."""
    return [] if shown[0] == system else [system, *(s for s in shown if s != system)]


def _queries(
    task: Task | None,
    scores: TaskScores | None,
    names: list[str],
    shown: list[str],
    holdings: Holdings,
    name: str,
    measure: Measure,
    url: Links,
) -> list[Asks]:
    if scores is None:
        return []
    means = scores.scores.mean(axis=0).tolist()
    rows = [scores.scores[names.index(s)].tolist() for s in shown]
    key = "" if measure == MEASURES[0] else measure.key
    counts = dict(zip(task.qrels.query_ids, task.qrels.positives_per_query().tolist(), strict=True)) if task else {}
    found = []
    for i, query_id in enumerate(scores.query_ids):
        query = task.query(query_id) if task else None
        found.append(
            Asks(
                query_id,
                snippet(query.text, 110) if query else "",
                (query.body_system if query else None) or "",
                counts.get(query_id),
                [row[i] for row in rows],
                means[i],
                url.near("query", holdings.slug, name, query_id, measure=key),
            )
        )
    return sorted(found, key=lambda a: (a.mean, a.query_id))


def _examples(task: Task | None) -> list[tuple[Any, Any]]:
    """The first, the middle and the last query, each with a positive."""
    if task is None:
        return []
    found = []
    for i in sorted({0, len(task.queries) // 2, len(task.queries) - 1}):
        query = task.queries[i]
        positive = next((d for d, grade in task.qrels.of(query.id).items() if grade > 0), None)
        document = task.documents.get(positive) if positive else None
        if document is not None:
            found.append((query, document))
    return found
