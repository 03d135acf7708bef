"""The query inspector: why a query fails, and under which systems; and the way from query to query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from ....core import Task, UnknownName, UsageError
from ....core.columns import Int64
from ....results import StoredResult
from ....results.beside import Ranking
from ....scoring import Measure
from ....scoring.measures import Float64
from ....text.duplicates import text_key
from ...collection import CollectionResults
from ...pictures import draw_field
from ..failures import KINDS, TOP, positive_ids, reading_limit, tokens_about
from ..render import Links, Page, PageRequest, shared_words, terms_of
from ..site import Site, like, readable
from . import best_on, chips, choose, find_task, measure_param

SNIPPET, WHOLE, BRIEF, WORDS = 220, 6000, 450, 14
ORDERS = {"score": "Lowest score first", "diff": "Largest difference first"} | {
    name: kind.title for name, kind in KINDS.items()
}
MOST, USUAL, NEARBY = 4, 3, 400


class Seen(NamedTuple):
    """One document as the page shows it."""

    doc_id: str
    known: bool = False
    title: str = ""
    short: Markup = Markup("")
    rest: Markup | None = None
    words: Mapping[str, str] = {}
    share: float = 0.0
    key: bytes = b""


class Place(NamedTuple):
    """One place of a ranking."""

    rank: int
    doc_id: str
    score: float
    grade: int | None
    seen: Seen
    copy_of: int | None
    luring: list[str]  # Words of the query that stand in no positive.
    plain: list[str]


def explain(
    task: Task | None, query_id: str, terms: frozenset[str], positives: list[str], rankings: Mapping[str, Ranking],
    url: Links,
) -> dict[str, Any]:  # fmt: skip
    """Every document that the page shows: the positives with their ranks, and the first places of each system."""
    names = dict.fromkeys([*positives, *(d for ranking in rankings.values() for d in ranking.docs[:TOP])])
    seen = {name: _look(task, name, terms, url) for name in names}
    held = frozenset(term for p in positives for term in seen[p].words)
    grades = task.qrels.of(query_id) if task else {}
    return {
        "positives": positives,
        "grades": grades,
        "seen": seen,
        "ranks": {system: ranking.ranks(positives) for system, ranking in rankings.items()},
        "places": {
            system: _places(list(zip(ranking.docs[:TOP], ranking.scores, strict=False)), seen, grades, held)
            for system, ranking in rankings.items()
        },
        "best_share": max((seen[p].share for p in positives), default=0.0),
    }


def _look(task: Task | None, doc_id: str, terms: frozenset[str], url: Links) -> Seen:
    document = task.documents.get(doc_id) if task else None
    if document is None:
        return Seen(doc_id)
    words = shared_words(document.contents[:WHOLE], terms)
    long, most = len(document.text) > SNIPPET, BRIEF if url.brief else WHOLE
    return Seen(
        doc_id=doc_id,
        known=True,
        title=document.title,
        short=url.beginning(document.text, terms, SNIPPET, most),
        rest=url.beginning(document.text, terms, most, most) if long else None,
        words=words,
        share=len(words) / len(terms) if terms else 0.0,
        key=text_key(document.contents),
    )


def _places(
    hits: list[tuple[str, float]], seen: Mapping[str, Seen], grades: Mapping[str, int], held: frozenset[str]
) -> list[Place]:
    """The first places of a system; a copy of an earlier one points to it."""
    first: dict[bytes, int] = {}
    places = []
    for rank, (doc_id, score) in enumerate(hits, 1):
        document = seen[doc_id]
        earlier = first.setdefault(document.key, rank) if document.known else rank
        luring = [word for term, word in document.words.items() if term not in held]
        plain = [word for term, word in document.words.items() if term in held]
        copy_of = earlier if earlier != rank else None
        room = max(0, WORDS - len(luring))
        places.append(Place(rank, doc_id, score, grades.get(doc_id), document, copy_of, luring[:WORDS], plain[:room]))
    return places


class Stop(NamedTuple):
    """One query on the way."""

    task: str
    query_id: str
    value: float


@dataclass(frozen=True)
class Way:
    """The queries of some tasks in an order."""

    queries: Sequence[tuple[str, str]]  # Task and id, all tasks one after the other.
    values: Float64
    order: Int64

    def __len__(self) -> int:
        return len(self.order)

    def stop(self, position: int) -> Stop:
        place = int(self.order[position])
        return Stop(*self.queries[place], float(self.values[place]))

    def find(self, task: str, query_id: str) -> int | None:
        places = enumerate(self.order.tolist())
        return next((i for i, place in places if self.queries[place] == (task, query_id)), None)


def way_through(
    site: Site, results: CollectionResults, tasks: Sequence[str], systems: Sequence[str], order: str, measure: Measure
) -> Way:
    """The queries of some tasks in an order that is about the first system, or the first two."""
    queries: list[tuple[str, str]] = []
    values: list[Float64] = []
    wanted: list[bool] = []
    for task in tasks:
        matrix = results.matrix(task, measure, systems[: 2 if order == "diff" else 1])
        if matrix is None or (order == "diff" and len(matrix.systems) < 2):
            continue
        value = matrix.scores[1] - matrix.scores[0] if order == "diff" else matrix.scores[0]
        queries += [(task, query_id) for query_id in matrix.query_ids]
        values.append(value)
        if order in KINDS:
            kinds = readable([], site.failures, results.systems[matrix.systems[0]][task]) or {}
            wanted += [order in kinds.get(query_id, ()) for query_id in matrix.query_ids]
        else:
            wanted += (np.abs(value) > 1e-6).tolist() if order == "diff" else [True] * len(value)
    whole, kept = np.concatenate([np.zeros(0), *values]), np.flatnonzero(wanted)
    key = -np.abs(whole[kept]) if order == "diff" else whole[kept]
    return Way(queries, whole, kept[np.argsort(key, kind="stable")])


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
    stored = {s: one for s in view.systems if (one := view.results.get(s, view.task))}
    problems: list[str] = []

    def ranking(system: str) -> Ranking:
        return stored[system].run().of(view.query_id)

    rankings = {s: read for s in stored if (read := readable(problems, ranking, s))}
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
        "explained": explain(task, view.query_id, terms, positives, rankings, url),
        "depths": {system: stored[system].result.depth for system in rankings},
        "limits": {system: reading_limit(stored[system].result.notes) for system in rankings},
        "lengths": {d: tokens_about(task, d) for d in positives} if task else {},
        "problems": problems,
        "expansions": {
            s: made for s, one in stored.items() if (made := readable(problems, one.expansion, view.query_id))
        },
        "failures": {s: _kinds(site, one, view.query_id) for s, one in stored.items()},
        "kinds": KINDS,
        "all_systems": list(view.results.systems),
        "most": MOST,
        "compare_href": url.near("compare", slug, s=view.systems[:2]) if len(view.systems) > 1 else "",
        "try_href": url("try", task=f"{slug}/{view.task}", query=view.query_id, s=view.systems) if site.trying else "",
        "links": {s: url("system", slug, s) for s in view.systems},
        **_way(site, view, url),
    }
    return Page("query.html", f"{view.query_id} · {info.full_name}", context, "task")


def _kinds(site: Site, stored: StoredResult, query_id: str) -> list[str]:
    found = readable([], site.failures_of, stored, query_id) or frozenset()
    return [kind for kind in KINDS if kind in found]


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


def _way(site: Site, view: View, url: Links) -> dict[str, Any]:
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
    nearby = [] if url.brief else [way.stop(i) for i in range(min(len(way), NEARBY))]
    return {
        "position": None if here is None else here + 1,
        "stops": len(way),
        "before": first_of(range(here - 1, -1, -1)) if here is not None else "",
        "after": first_of(range(0 if here is None else here + 1, len(way))),
        "orders": chips(list(usable.items()), view.order, lambda order: here_with(order=order)),
        "scopes": chips([(False, "This task"), (True, "All tasks")], view.wide, lambda wide: here_with(wide=wide)),
        "nearby": [(stop, address(stop)) for stop in nearby],
    }
