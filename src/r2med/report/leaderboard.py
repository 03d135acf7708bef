"""Published figures and our own in one table, each marked for what it is. Scores here are × 100, as papers print them.

Only figures of one protocol stand in one list unless all are asked for: the same model gets other scores elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ..results import ResultStore, TaskResult
from ..results.ledger import Figure
from ..results.protocols import protocol_names
from ..scoring import MAIN, Measure
from ..scoring.significance import tie_groups
from .scores import SHORT
from .stored import by_system, score_set, task_names

SCALE = 100
HERE, PUBLISHED, REFERENCE = "measured here", "published", "our reference"
CUSTOM = "custom"
MAIN_PROTOCOL = {"mini": "default", "nano": "nano-profile", "r2med": "r2med-paper"}


class Row(msgspec.Struct, kw_only=True):
    """One line of the table."""

    system: str
    label: str
    kind: str
    # retriever, fused, reranker or expansion; for our own results, the kind of retriever.
    source: str
    date: str
    protocol: str
    measured: bool
    # Whether the scores were measured here.
    origin: str
    # measured here, published (by others), or our reference (measured by r2med, elsewhere).
    collection: str
    scale: int = SCALE
    tasks: dict[str, float]
    macro: float | None
    # Mean over all tasks of the collection; None where tasks are missing, for then it would be another number.
    query_weighted: float | None
    complete: bool
    tasks_of: tuple[int, int]
    # How many tasks are known, of how many.
    tie_group: int | None = None
    # Our systems of one group cannot be told apart from the best of it.
    also: list[str] = []
    # Other sources that state the same average.


def published_rows(figures: Iterable[Figure], measure: Measure = MAIN) -> list[Row]:
    """Rows of the ledger; an average that repeats a figure known by task becomes its `also`."""
    rows: dict[tuple[str, str, str], list[Row]] = {}
    for figure in sorted(figures, key=lambda f: f.average_only):
        macro = figure.macro(measure.key)
        if macro is None:
            continue
        same = rows.setdefault((figure.collection, figure.protocol, figure.system), [])
        row = _published_row(figure, measure, macro)
        known = next((r for r in same if figure.average_only and _rounds_to(r.macro, row.macro)), None)
        if known:
            known.also.append(row.source)
        else:
            same.append(row)
    return [row for group in rows.values() for row in group]


def measured_rows(store: ResultStore, results: Sequence[TaskResult], measure: Measure = MAIN) -> list[Row]:
    """Rows of our own results on one collection, with tie groups among those that have every task."""
    rows = [_measured_row(name, list(of.values()), measure) for name, of in by_system(results).items()]
    complete = [row.system for row in rows if row.complete]
    if len(complete) > 1:
        scores = score_set(store, [r for r in results if r.system.name in complete], measure)
        groups = dict(zip(scores.systems, tie_groups(scores.matrices), strict=True))
        for row in rows:
            row.tie_group = groups.get(row.system)
    return rows


def ranked(rows: Iterable[Row]) -> list[Row]:
    """Best average first; those without one last, the more tasks the earlier."""
    return sorted(rows, key=lambda r: (r.macro is None, -(r.macro or 0.0), -r.tasks_of[0], r.system, r.source))


def _published_row(figure: Figure, measure: Measure, macro: float) -> Row:
    tasks, whole = figure.tasks(measure.key), task_names(figure.collection, list(figure.tasks(measure.key)))
    complete = figure.average_only or set(whole) <= set(tasks)
    weighted = figure.by_query(measure.key) if complete else None
    return Row(
        system=figure.system,
        label=figure.label,
        kind=figure.kind,
        source=figure.source.id,
        date=figure.source.date,
        protocol=figure.protocol,
        measured=False,
        origin=REFERENCE if figure.source.measured else PUBLISHED,
        collection=figure.collection,
        tasks={f"{figure.collection}/{t}": _points(tasks[t]) for t in whole if t in tasks},
        macro=_points(macro) if complete else None,
        query_weighted=None if weighted is None else _points(weighted),
        complete=complete,
        tasks_of=(len(tasks), len(whole) or len(task_names(figure.collection, []))),
    )


def _measured_row(name: str, results: Sequence[TaskResult], measure: Measure) -> Row:
    collection = results[0].task.collection
    scores = {r.task.name: r for r in results if measure.key in r.measures}
    whole = task_names(collection, list(scores))
    complete = bool(whole) and set(whole) <= set(scores)
    values = {t: scores[t].measures[measure.key] for t in whole if t in scores}
    counts = {t: scores[t].task.queries for t in values}
    weighted = sum(counts[t] * v for t, v in values.items()) / sum(counts.values()) if complete else None
    return Row(
        system=name,
        label=name,
        kind=results[0].system.kind,
        source=HERE,
        date="",
        protocol=_protocol_of(name),
        measured=True,
        origin=HERE,
        collection=collection,
        tasks={scores[t].task.full_name: _points(v) for t, v in values.items()},
        macro=_points(sum(values.values()) / len(values)) if complete else None,
        query_weighted=None if weighted is None else _points(weighted),
        complete=complete,
        tasks_of=(len(values), len(whole)),
    )


def _protocol_of(name: str) -> str:
    """`nv@r2med-paper` was run under that protocol; a policy of one's own is no protocol's."""
    marked = next((p for p in protocol_names() if f"@{p}" in name), "")
    return marked or (CUSTOM if ",policy=" in name else "default")


def _points(value: float) -> float:
    return round(SCALE * value, 4)


def _rounds_to(precise: float | None, stated: float | None) -> bool:
    """Whether one average is the other with fewer digits."""
    return precise is not None and stated is not None and abs(precise - stated) <= 0.05 + 1e-9


def board_headers(tasks: Sequence[str], *, protocols: bool, groups: bool) -> list[str]:
    """Column titles."""
    shown = [SHORT.get(t.rpartition("/")[2], t.rpartition("/")[2]) for t in tasks]
    return ["System", *(["Tie"] if groups else []), "Macro", *shown, *(["Protocol"] if protocols else []), "From"]


def board_cells(rows: Sequence[Row], tasks: Sequence[str], *, protocols: bool, groups: bool) -> list[list[str]]:
    """The table's text; an en dash where there is no number, the count of tasks where an average would mislead."""

    def score(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f}"

    def macro(row: Row) -> str:
        return score(row.macro) if row.complete else f"{row.tasks_of[0]} of {row.tasks_of[1]}"

    return [
        [
            row.system,
            *([str(row.tie_group or "–")] if groups else []),
            macro(row),
            *(score(row.tasks.get(t)) for t in tasks),
            *([row.protocol] if protocols else []),
            f"{row.origin} {row.date}".strip(),
        ]
        for row in rows
    ]


def board_caption(rows: Sequence[Row], measure: Measure) -> str:
    """What the numbers are and what they are not."""
    protocols = list(dict.fromkeys(r.protocol for r in rows if r.origin == PUBLISHED))
    text = f"{measure} × 100; Macro: mean of the tasks."
    if protocols:
        text += f" Published figures are not ours; protocol {', '.join(protocols)}."
    if len(protocols) > 1:
        text += " Figures of different protocols are not comparable."
    if any(r.tie_group for r in rows):
        text += " Tie: systems of one group cannot be told apart from the best of it (randomisation test, Holm, 5 %)."
    return text


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What `r2med leaderboard --json` prints."""
    document: list[dict[str, Any]] = msgspec.to_builtins(rows)
    return document
