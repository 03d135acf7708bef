"""The page of one task: the facts that `r2med pages` writes, with the scores of the results at hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from ....core import Task, UsageError
from ....core.table import share, shortened
from ....results import TaskResult
from ....scoring import Measure, parse_measures
from ....scoring.intervals import Estimate
from ....scoring.slices import thirds
from ...collection import CollectionResults, TaskMatrix
from ...page_html import figure, markdown_html
from ...scores import cut_short
from ...task_origin import catalogue_entry
from ...task_page import audit_lines, examples, task_facts
from ..failures import KINDS
from ..render import Links, Page, PageRequest
from ..site import Site, TaskFacts, readable
from . import best_on, chips, find_task, measure_chips, measure_param
from .board import published

SHOWN, LISTED, ROWS = 3, 8, 500
OTHERS = parse_measures(("R@100", "hit@10"))
_PLACE = re.compile(r"[0-9]{0,9}")
FEWEST = 9  # Queries that make three thirds worth showing.


def task(site: Site, asked: PageRequest, url: Links) -> Page:
    """The page."""
    results, name = find_task(site, asked)
    measure = site.measure(asked.get("measure"))
    info, key = results.infos[name], measure_param(measure)
    behind = site.texts.of(info)
    facts = site.facts(results, name)
    order = best_on(results, name, measure)
    matrix = results.matrix(name, measure, None if results.affordable(name) else order[:SHOWN])
    shown = [s for s in order if matrix and s in matrix.systems][:SHOWN]
    systems = _systems(site, results, name, order, measure)
    begin = _place(asked.get("from"))
    rows = [row for row in published(results, measure) if info.full_name in row.tasks]
    others = [(row.label, row.tasks[info.full_name], row.date) for row in rows]

    def rows_from(place: int) -> str:
        inside = matrix is not None and 0 <= place < len(matrix.query_ids)
        return url("task", results.slug, name, measure=key, **{"from": str(place or "")}) if inside else ""

    def query_page(query_id: str) -> str:
        return url.near("query", results.slug, name, query_id, measure=key)

    context = {
        "info": info,
        "entry": catalogue_entry(info.full_name),
        "measure": measure,
        "measures": measure_chips(measure, lambda m: url("task", results.slug, name, measure=m)),
        "siblings": chips([(t, t) for t in results.tasks], name, lambda t: url("task", results.slug, t)),
        "why_no_texts": behind.why,
        "facts": task_facts(facts.stats, facts.tendencies) if facts else [],
        "waiting": behind.task is not None and facts is None,
        "audit": audit_lines(facts.audit) if facts and facts.audit else [],
        "systems": systems,
        "others": OTHERS,
        "cautions": {system: _cut(result, measure) for system, result, _ in systems},
        "slug": results.slug,
        "published": sorted(others, key=lambda row: -row[1])[:10],
        "shown": shown,
        "thirds": _thirds(facts, matrix, shown),
        "failures": _failures(site, results, name, shown, url),
        "queries": _queries(behind.task, matrix, shown, begin, query_page),
        "mean_of": len(matrix.systems) if matrix else 0,
        "begin": begin,
        "of_queries": len(matrix.query_ids) if matrix else 0,
        "earlier": rows_from(begin - ROWS) if begin else "",
        "later": rows_from(begin + ROWS),
        "examples": examples(behind.task) if behind.task else [],
        "best_href": url("board", results.slug),
        "scores_href": url("data", results.slug, name) if site.submitted else "",
        "written": url("written", results.slug, name) if site.texts.written_page(info) else "",
        "pictures": [Markup(figure(picture)) for picture in site.texts.written_pictures(info).values()],
    }
    return Page("task.html", info.full_name, context, "task")


def _place(text: str) -> int:
    """Where the list of queries begins; anybody can write an address."""
    if not _PLACE.fullmatch(text):
        raise UsageError(f"queries are listed from a place such as 500 on, not from {text[:20]!r}")
    return int(text or 0)


def written(site: Site, asked: PageRequest, url: Links) -> Page:
    """The page that `r2med pages` wrote about the task."""
    results, name = find_task(site, asked)
    info = results.infos[name]
    text = site.texts.written_page(info)
    if not text:
        raise UsageError(f"{info.full_name} has no page here: r2med pages FOLDER writes it")
    html = Markup(markdown_html(text, site.texts.written_pictures(info), linked=False))
    context = {"html": html, "back": url("task", results.slug, name), "name": info.full_name}
    return Page("written.html", info.full_name, context, "task")


def _systems(
    site: Site, results: CollectionResults, name: str, order: list[str], measure: Measure
) -> list[tuple[str, TaskResult, Estimate | None]]:
    """Each system with its result and, where it is known already, the interval of its score."""
    found, rows = site.standing(results, measure), []
    for system in order:
        result = results.systems[system][name].result
        said = found.scores.get(system) if found else None
        rows.append((system, result, said.tasks.get(result.task.full_name) if said else None))
    return rows


def _cut(result: TaskResult, measure: Measure) -> str:
    """What must be said about a ranking that ends before the cut-off of a measure shown."""
    return " ".join(said for m in dict.fromkeys((measure, *OTHERS)) if (said := cut_short(m, [result])))


def _thirds(
    facts: TaskFacts | None, matrix: TaskMatrix | None, shown: Sequence[str]
) -> list[tuple[str, int, list[float]]]:
    """Scores where few terms are shared with the positives, and where many are."""
    if facts is None or matrix is None:
        return []
    overlap = facts.tendencies.overlap_of_query
    columns = [i for i, q in enumerate(matrix.query_ids) if q in overlap]
    if len(columns) < FEWEST:
        return []
    values = np.array([overlap[matrix.query_ids[i]] for i in columns])
    labels, rows, found = thirds(values.tolist()), matrix.rows(shown)[:, columns], []
    order = sorted(set(labels.tolist()))
    titles = ("fewest", "middle", "most") if len(order) == 3 else ("fewer", "more")
    for title, label in zip(titles, order, strict=False):
        inside = labels == label
        low, high = float(values[inside].min()), float(values[inside].max())
        means = rows[:, inside].mean(axis=1).tolist()
        found.append((f"{title} ({100 * low:.0f}–{share(high)} of the query’s terms)", int(inside.sum()), means))
    return found


def _failures(
    site: Site, results: CollectionResults, name: str, shown: Sequence[str], url: Links
) -> list[dict[str, Any]]:
    found = []
    for system in shown:
        kinds = readable([], site.failures, results.systems[system][name])
        if kinds is None:
            continue
        # The system that a link is about stands first; nothing is named where that is the usual order.
        first = [] if system == shown[0] else [system, *(s for s in shown if s != system)]
        of_kind = {kind: [q for q, of in kinds.items() if kind in of] for kind in KINDS}
        found.append({
            "system": system,
            "fine": sum(not of for of in kinds.values()),
            "kinds": [
                (KINDS[kind], len(queries), [
                    (q, url.near("query", results.slug, name, q, order=kind, s=first)) for q in queries[:LISTED]
                ])
                for kind, queries in of_kind.items()
            ],
        })  # fmt: skip
    return found


def _queries(
    task: Task | None, matrix: TaskMatrix | None, shown: Sequence[str], begin: int, link: Callable[[str], str]
) -> list[dict[str, Any]]:
    """The hardest queries, from a place on."""
    if matrix is None:
        return []
    means, rows = matrix.scores.mean(axis=0), matrix.rows(shown)
    found = []
    for i in np.argsort(means, kind="stable")[begin : begin + ROWS].tolist():
        query_id = matrix.query_ids[i]
        query = task.query(query_id) if task else None
        found.append({
            "query_id": query_id,
            "text": shortened(query.text, 110) if query else "",
            "positives": sum(g > 0 for g in task.qrels.of(query_id).values()) if task else None,
            "scores": rows[:, i].tolist(),
            "mean": float(means[i]),
            "href": link(query_id),
        })  # fmt: skip
    return found
