"""The query inspector: why a query fails, and under which systems."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from markupsafe import Markup

from ....core import UnknownName, UsageError
from ....results import StoredResult
from ....results.beside import StoredRun
from ....scoring import Measure
from ...collection import CollectionResults
from ...plots import draw_field
from ..failures import KINDS, positive_ids, reading_limit, tokens_about
from ..request import Links, Page, PageRequest
from ..site import Site, like, readable
from ..text import terms_of
from .choices import best_on, chips, choose, find_task, measure_param
from .hits import ORDERS, Stop, explain, way_through

MOST, USUAL, NEARBY = 4, 3, 400


class View(NamedTuple):
    """What the visitor looks at."""

    results: CollectionResults
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
            "measure": measure_param(new.measure),
        }

    def stored(self) -> dict[str, StoredResult]:
        """The results of the systems shown."""
        found = {system: self.results.get(system, self.task) for system in self.systems}
        return {system: stored for system, stored in found.items() if stored is not None}


def query(site: Site, asked: PageRequest, url: Links) -> Page:
    """The page."""
    view = _view(site, asked)
    info = view.results.infos[view.task]
    slug = view.results.slug
    behind = site.texts.of(info)
    task = behind.task
    found = task.query(view.query_id) if task else None
    scores = _scores(view)
    shown = {s: scores[s] for s in view.systems if s in scores}
    stored, problems = view.stored(), list[str]()
    runs = {s: run for s, one in stored.items() if (run := readable(problems, _run, one, view))}
    positives = positive_ids(task, view.query_id) if task else []
    terms = terms_of(found.text) if found else frozenset[str]()
    others = [value for system, value in scores.items() if system not in shown]
    context = {
        "view": view,
        "slug": slug,
        "info": info,
        "task_href": url.near("task", slug, view.task, measure=measure_param(view.measure)),
        "query": found,
        "why_no_texts": behind.why,
        "scores": shown,
        "field": Markup(draw_field(shown, others, view.measure).render(dark=False)),
        "place": {s: f"{1 + sum(o > v + 1e-9 for o in scores.values())} of {len(scores)}" for s, v in shown.items()},
        "explained": explain(task, view.query_id, terms, positives, runs, brief=url.brief),
        "depths": {system: stored[system].result.depth for system in runs},
        "limits": {system: reading_limit(stored[system].result) for system in runs},
        "lengths": {d: tokens_about(task, d) for d in positives} if task else {},
        "problems": problems,
        "expansions": {
            s: made for s, one in stored.items() if (made := readable(problems, one.expansion, view.query_id))
        },
        "failures": {
            s: [kind for kind in KINDS if kind in (readable([], site.failures_of, one, view.query_id) or ())]
            for s, one in stored.items()
        },
        "kinds": KINDS,
        "all_systems": list(view.results.systems),
        "most": MOST,
        "compare_href": url.near("compare", slug, s=view.systems[:2]) if len(view.systems) > 1 else "",
        "links": {s: url("system", slug, s) for s in view.systems},
        **_way(site, view, url),
    }
    return Page("query.html", f"{view.query_id} · {info.full_name}", context, "task")


def _view(site: Site, asked: PageRequest) -> View:
    if len(asked.parts) < 3:
        raise UsageError("a query has an address like /query/COLLECTION/TASK/ID")
    results, task = find_task(site, asked)
    measure = site.measure(asked.get("measure"))
    order = choose("order", asked.get("order", "score"), ORDERS)
    usual = tuple(best_on(results, task, measure)[:USUAL])
    wanted = tuple(asked.all("s"))[:MOST]
    for system in wanted:
        if results.get(system, task) is None:
            known = [s for s in results.systems if results.get(s, task)]
            raise UnknownName("system", system, known, hint=f"among those with results on {task}")
    return View(results, task, asked.parts[2], wanted or usual, usual, order, asked.get("scope") == "all", measure)


def _scores(view: View) -> dict[str, float]:
    """The query's score under every system, or under those shown where there are too many."""
    affordable = view.results.affordable(view.task)
    matrix = view.results.matrix(view.task, view.measure, None if affordable else view.systems)
    ids = matrix.query_ids if matrix else ()
    if matrix is None or view.query_id not in ids:
        where = view.results.infos[view.task].full_name
        raise UnknownName("query", view.query_id, like(view.query_id, ids), hint=f"in {where}")
    return dict(zip(matrix.systems, matrix.scores[:, ids.index(view.query_id)].tolist(), strict=True))


def _run(stored: StoredResult, view: View) -> StoredRun:
    """The run of a result, whose ranking of this query can be read."""
    run = stored.run()
    run.of(view.query_id)
    return run


def _way(site: Site, view: View, url: Links) -> dict[str, Any]:
    """Previous and next."""
    tasks = view.results.tasks if view.wide else (view.task,)
    way = way_through(site, view.results, tasks, view.systems, view.order, view.measure)
    here = way.find(view.task, view.query_id)

    def address(stop: Stop) -> str:
        params = view.params()
        if stop.task != view.task:  # the usual systems of another task are other ones, so they are named
            params |= {"s": view.systems}
        return url("query", view.results.slug, stop.task, stop.query_id, **params)

    def first_of(positions: Iterable[int]) -> str:
        """The nearest query that has a page: a single file may lack some."""
        return next((page for page in (address(way.stop(i)) for i in positions) if page), "")

    def here_with(**changed: Any) -> str:
        return url("query", view.results.slug, view.task, view.query_id, **view.params(**changed))

    usable = {k: v for k, v in ORDERS.items() if k != "diff" or len(view.systems) > 1}
    nearby = [way.stop(i) for i in range(min(len(way), NEARBY))]
    return {
        "position": None if here is None else here + 1,
        "stops": len(way),
        "before": first_of(range(here - 1, -1, -1)) if here is not None else "",
        "after": first_of(range(0 if here is None else here + 1, len(way))),
        "orders": chips(list(usable.items()), view.order, lambda order: here_with(order=order)),
        "scopes": chips([(False, "This task"), (True, "All tasks")], view.wide, lambda wide: here_with(wide=wide)),
        "nearby": [(stop, address(stop)) for stop in nearby],
    }
