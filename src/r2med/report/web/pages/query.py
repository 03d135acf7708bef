"""The query inspector: why this query fails, and under whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ....core import Query, R2MedError, Task, UnknownName, UsageError
from ....scoring import Measure
from ..asked import Asked, Links, Page
from ..charts.field import draw_field
from ..data.columns import MEASURES
from ..data.expansions import read_expansion
from ..data.failures import KINDS, positive_ids, reading_limit, tokens_about
from ..data.holdings import Holdings
from ..data.shelf import Entry
from ..site import Site
from ..text import terms_of
from .choices import chips
from .hits import Explained, Shown, explain, system_hits
from .sequence import ORDERS, Stop, stops
from .tasks_of import find_task, standing_on

MOST = 4
USUAL = 3


class View(NamedTuple):
    """What the visitor looks at."""

    holdings: Holdings
    task: str
    query_id: str
    systems: tuple[str, ...]
    usual: tuple[str, ...]
    order: str
    wide: bool
    measure: Measure

    def params(self, **changed: Any) -> dict[str, Any]:
        """As choices in an address; what is usual is left out."""
        new = self._replace(**changed)
        return {
            "s": () if new.systems == new.usual else new.systems,
            "order": "" if new.order == "score" else new.order,
            "scope": "all" if new.wide else "",
            "measure": "" if new.measure == MEASURES[0] else new.measure.key,
        }


def query(site: Site, asked: Asked, url: Links) -> Page:
    """The page."""
    view = _view(site, asked)
    entries = {s: e for s in view.systems if (e := view.holdings.entry(s, view.task)) is not None}
    info = view.holdings.infos[view.task]
    behind = site.texts.of(info)
    found = behind.task.query(view.query_id) if behind.task else None
    scores = site.book.task(view.holdings, view.task, view.measure)
    if scores is None or view.query_id not in scores.query_ids:
        raise UnknownName("query", view.query_id, scores.query_ids if scores else (), hint=f"in {info.full_name}")
    column = scores.query_ids.index(view.query_id)
    names = [e.system for e in site.book.entries(view.holdings, view.task, view.measure)]
    of_query = dict(zip(names, scores.scores[:, column].tolist(), strict=True))
    explained, problems = _explained(site, behind.task, found, entries, view, brief=url.brief)
    shown = {s: of_query[s] for s in view.systems if s in of_query}
    context = {
        "view": view,
        "info": info,
        "task_href": url.near("task", view.holdings.slug, view.task, measure=view.params()["measure"]),
        "query": found,
        "why_no_texts": behind.why,
        "scores": shown,
        "field": draw_field(shown, [v for s, v in of_query.items() if s not in shown], str(view.measure)),
        "place": _place(list(of_query.values()), shown),
        "explained": explained,
        "problems": problems,
        "expansions": _expansions(site, entries, view.query_id),
        "failures": {s: _kinds(site, e, view.query_id) for s, e in entries.items()},
        "kinds": KINDS,
        "all_systems": list(view.holdings.systems),
        "most": MOST,
        "compare_href": url.near("compare", view.holdings.slug, s=view.systems[:2]) if len(view.systems) > 1 else "",
        "links": {s: url("system", view.holdings.slug, s) for s in view.systems},
        **_way(site, view, url),
    }
    return Page("query.html", f"{view.query_id} · {info.full_name}", context, "task")


def _view(site: Site, asked: Asked) -> View:
    if len(asked.parts) < 3:
        raise UsageError("a query has an address like /query/COLLECTION/TASK/ID")
    holdings, task = find_task(site, asked)
    measure = site.measure(asked.get("measure"))
    order = asked.get("order", "score")
    if order not in ORDERS:
        raise UnknownName("order", order, ORDERS, hint=f"(there are: {', '.join(ORDERS)})")
    usual = tuple(standing_on(site, holdings, task, measure)[:USUAL])
    wanted = tuple(asked.all("s"))[:MOST]
    for system in wanted:
        if holdings.entry(system, task) is None:
            known = [s for s in holdings.systems if holdings.entry(s, task)]
            raise UnknownName("system", system, known, hint=f"among those with results on {task}")
    return View(holdings, task, asked.parts[2], wanted or usual, usual, order, asked.get("scope") == "all", measure)


def _explained(
    site: Site, task: Task | None, found: Query | None, entries: dict[str, Entry], view: View, *, brief: bool
) -> tuple[Explained, list[str]]:
    problems, lists = list[str](), dict[str, Any]()
    for system, entry in entries.items():
        try:
            lists[system] = site.rankings.of(entry)
        except R2MedError as error:
            problems.append(str(error))
    terms = terms_of(found.text) if found else frozenset[str]()
    positives = positive_ids(task, view.query_id) if task else []
    explained = explain(task, view.query_id, terms, positives, lists, brief=brief)
    columns = [
        Shown(system, ranking.depth, reading_limit(entries[system]), system_hits(explained, ranking, view.query_id))
        for system, ranking in lists.items()
    ]
    lengths = {d: tokens_about(task, d) for d in positives} if task else {}
    return explained._replace(columns=columns, lengths=lengths), problems


def _kinds(site: Site, entry: Entry, query_id: str) -> list[str]:
    try:
        found = site.failures_of(entry, query_id)
    except R2MedError:
        return []
    return [k for k in KINDS if k in found]


def _expansions(site: Site, entries: dict[str, Entry], query_id: str) -> dict[str, Any]:
    found = {s: read_expansion(e, query_id, site.shelf.roots) for s, e in entries.items()}
    return {s: e for s, e in found.items() if e is not None}


def _place(everybody: list[float], shown: dict[str, float]) -> dict[str, str]:
    """Where each system stands on this query: its rank among all, ties at their best."""
    return {s: f"{1 + sum(o > v + 1e-6 for o in everybody)} of {len(everybody)}" for s, v in shown.items()}


def _way(site: Site, view: View, url: Links) -> dict[str, Any]:
    """Previous and next."""
    tasks = view.holdings.tasks if view.wide else (view.task,)
    path = stops(site, view.holdings, tasks, view.systems, view.order, view.measure)
    here = next((i for i, s in enumerate(path) if (s.task, s.query_id) == (view.task, view.query_id)), None)

    def first_of(stretch: Sequence[Stop]) -> str:
        """The nearest query that has a page: a single file may lack some."""
        pages = (url("query", view.holdings.slug, s.task, s.query_id, **_carried(view, s.task)) for s in stretch)
        return next((page for page in pages if page), "")

    def ordered(order: str) -> str:
        return url("query", view.holdings.slug, view.task, view.query_id, **view.params(order=order))

    usable = {k: v for k, v in ORDERS.items() if k != "diff" or len(view.systems) > 1}
    return {
        "position": None if here is None else here + 1,
        "stops": len(path),
        "before": first_of(path[:here][::-1]) if here is not None else "",
        "after": first_of(path[here + 1 :] if here is not None else path),
        "orders": chips(list(usable.items()), view.order, ordered),
        "scopes": chips(
            [(False, "This task"), (True, "All tasks")],
            view.wide,
            lambda w: url("query", view.holdings.slug, view.task, view.query_id, **view.params(wide=w)),
        ),
        "nearby": [
            (s, url("query", view.holdings.slug, s.task, s.query_id, **_carried(view, s.task))) for s in path[:400]
        ],
    }


def _carried(view: View, task: str) -> dict[str, Any]:
    """The same choices at another query; the usual systems of another task are other ones, so they are named."""
    params = view.params()
    return params | {"s": view.systems} if task != view.task else params
