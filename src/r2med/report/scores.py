"""Result sets as tables of scores: one row a system, one column a task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..core import UsageError
from ..results import TaskResult, macro_average, query_weighted
from ..scoring import CUTOFFS, MAIN, Measure

SHORT = {
    "Biology": "Biology",
    "Bioinformatics": "Bioinf",
    "Medical-Sciences": "MedSci",
    "MedXpertQA-Exam": "MedXpert",
    "MedQA-Diag": "MedQA",
    "PMC-Treatment": "PMC-T",
    "PMC-Clinical": "PMC-C",
    "IIYi-Clinical": "IIYi",
}


class Row(NamedTuple):
    """One system's scores."""

    system: str
    kind: str
    tasks: dict[str, float]
    macro: float | None
    weighted: float | None


class ScoreTable(NamedTuple):
    """Scores of one measure. Averages stand only in rows that have every column."""

    measure: Measure
    tasks: list[str]
    rows: list[Row]


def score_table(results: Iterable[TaskResult], measure: Measure = MAIN) -> ScoreTable:
    """Tabulate results in order of appearance."""
    grouped: dict[str, list[TaskResult]] = {}
    for result in results:
        grouped.setdefault(result.system.name, []).append(result)
    tasks = list(dict.fromkeys(r.task.full_name for of_system in grouped.values() for r in of_system))
    rows = []
    for name, of_system in grouped.items():
        if any(measure.key not in r.measures for r in of_system):
            cuts = ", ".join(map(str, CUTOFFS))
            raise UsageError(f"{measure} is not among the stored measures (cut-offs {cuts}); r2med score computes any")
        complete = len(of_system) == len(tasks)
        scores = [{measure.key: r.measures[measure.key]} for r in of_system]
        counts = [r.task.queries for r in of_system]
        rows.append(
            Row(
                system=name,
                kind=of_system[0].system.kind,
                tasks={r.task.full_name: r.measures[measure.key] for r in of_system},
                macro=macro_average(scores)[measure.key] if complete else None,
                weighted=query_weighted(list(zip(counts, scores, strict=True)))[measure.key] if complete else None,
            )
        )
    return ScoreTable(measure, tasks, rows)


def headers(table: ScoreTable) -> list[str]:
    """Column titles; the averages only where there is more than one task to average."""
    collections = {t.rpartition("/")[0] for t in table.tasks}
    shown = [SHORT.get(t.rpartition("/")[2], t.rpartition("/")[2]) if len(collections) == 1 else t for t in table.tasks]
    return ["System", *shown, *(["Macro", "By query"] if len(table.tasks) > 1 else [])]


def cells(table: ScoreTable) -> list[list[str]]:
    """Scores × 100 with two decimals, an en dash where there is none."""

    def show(value: float | None) -> str:
        return "–" if value is None else f"{100 * value:.2f}"

    averages = len(table.tasks) > 1
    return [
        [
            r.system,
            *(show(r.tasks.get(t)) for t in table.tasks),
            *([show(r.macro), show(r.weighted)] if averages else []),
        ]
        for r in table.rows
    ]


def markdown(table: ScoreTable) -> str:
    """The table in Markdown."""
    titles = headers(table)
    lines = [f"| {' | '.join(titles)} |", f"|:---|{'---:|' * (len(titles) - 1)}"]
    lines += [f"| {' | '.join(row)} |" for row in cells(table)]
    return "\n".join([*lines, "", caption(table)])


def caption(table: ScoreTable) -> str:
    """What the numbers are."""
    collections = {t.rpartition("/")[0] for t in table.tasks} - {""}
    where = f" on {collections.pop()}" if len(collections) == 1 else ""
    averages = "; Macro: mean of the tasks, By query: mean of all queries" if len(table.tasks) > 1 else ""
    return f"{table.measure} × 100{where}{averages}."


def as_json(results: Sequence[TaskResult]) -> dict[str, Any]:
    """The document `r2med run --json` prints."""
    grouped: dict[str, list[TaskResult]] = {}
    for result in results:
        grouped.setdefault(result.system.name, []).append(result)
    return {
        "schema": 1,
        "systems": [
            {
                "name": name,
                "kind": of_system[0].system.kind,
                "tasks": {r.task.full_name: r.measures for r in of_system},
                "macro": macro_average([r.measures for r in of_system]),
                "query_weighted": query_weighted([(r.task.queries, r.measures) for r in of_system]),
                "seconds": _total_seconds(of_system),
                **_extras(of_system),
            }
            for name, of_system in grouped.items()
        ],
    }


def _extras(results: list[TaskResult]) -> dict[str, Any]:
    """What a reranker did to each task, and what must be said about the system's numbers."""
    effects = {r.task.full_name: r.notes["before_after"] for r in results if "before_after" in r.notes}
    expansions = [e for r in results if isinstance(e := r.notes.get("expansion"), dict)]
    warnings = list(dict.fromkeys(str(e["warning"]) for e in expansions if e.get("warning")))
    return {**({"before_after": effects} if effects else {}), **({"warnings": warnings} if warnings else {})}


def _total_seconds(results: list[TaskResult]) -> dict[str, float]:
    total: dict[str, float] = {}
    for result in results:
        for stage, seconds in result.seconds.items():
            total[stage] = total.get(stage, 0.0) + seconds
    return total
