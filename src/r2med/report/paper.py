"""Scores as tables of a paper, in LaTeX: intervals below the scores, marks of significance, the best in bold.

Marks are those that a terminal shows: the letters of the average that systems are ranked by, and the star of each line
of a pair. They come from the comparison itself; nothing is tested again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..core.table import Mark, Table, points, share
from ..results import ResultIndex, TaskResult
from ..results.store import collection_slug
from ..scoring import Measure
from ..scoring.compare import Comparison, Pair, compare
from ..scoring.intervals import Settings, SystemScores, score_intervals
from ..scoring.measures import JUDGED
from ..scoring.tables import CORRECTED, pair_table
from .comparison import from_store
from .scores import by_system, short_name

LEFT_OUT = ("p", "p t-test", "Effect", "Detectable")
"""Columns of a pair's table that a paper's has no room for."""


def stored_latex(results: Iterable[TaskResult], folder: Path, measure: Measure, settings: Settings) -> str:
    """A table for each collection of stored results."""
    results, tasks = list(results), dict[str, dict[str, None]]()
    for result in results:
        tasks.setdefault(collection_slug(result.task.collection), {})[result.task.full_name] = None
    index, systems, tables = ResultIndex([folder]), list(by_system(results)), list[str]()
    for collection, names in tasks.items():
        found = from_store(index, systems, measure, collection=collection, tasks=names)
        compared = compare(found.scores, settings) if len(systems) > 1 else None
        scored = compared.systems if compared else score_intervals(found.scores, settings)
        tables.append(scores_latex(scored, measure, settings, compared, found.judged_at_10))
    return "\n".join(tables)


def comparison_latex(comparison: Comparison) -> str:
    """The systems of a comparison, then every pair of them."""
    measure = Measure.parse(comparison.measure)
    judged = comparison.judged_at_10
    systems = scores_latex(comparison.systems, measure, comparison.settings, comparison, judged)
    return "\n".join([systems, *(pair_latex(pair, comparison) for pair in comparison.pairs)])


def scores_latex(
    systems: Sequence[SystemScores],
    measure: Measure,
    settings: Settings,
    comparison: Comparison | None,
    judged: Mapping[str, float | None],
) -> str:
    """A row per system and a column per task; without a comparison, nothing is marked.

    `judged` is the share of each system's top ten that somebody judged.
    """
    tasks, average = list(systems[0].tasks), systems[0].macro
    several = len(tasks) > 1
    collections = {task.rpartition("/")[0] for task in tasks}
    scores = [[*s.tasks.values(), *([s.macro, s.query_weighted] if several else [])] for s in systems]
    cells = [[points(estimate.value) for estimate in row] for row in scores]
    best = [max(map(float, column)) for column in zip(*cells, strict=True)]
    marks = {
        (number, 1 + column): Mark(
            bold=comparison is not None and float(cell) == best[column],
            raised=_raised(comparison, system.name, column) if comparison is not None else "",
            below=f"{points(scores[number][column].low, 1)}–{points(scores[number][column].high, 1)}",
        )
        for number, system in enumerate(systems)
        for column, cell in enumerate(cells[number])
    }
    rows = [[system.name, *row] for system, row in zip(systems, cells, strict=True)]
    macro = "Macro" if average.complete else f"Mean of {average.scope}"
    titles = [short_name(task) if len(collections) == 1 else task for task in tasks]
    titles += [macro, "By query"] if several else []
    where = f" on {next(iter(collections))}" if len(collections) == 1 and "" not in collections else ""
    note = f"Below each score: its {_percent(settings.level)} interval ({_method(settings)})."
    note += f" {macro}: mean of the tasks. By query: mean of all queries." if several else ""
    shares = ", ".join(f"{system.name} {share(judged.get(system.name))}" for system in systems)
    if any(value is not None for value in judged.values()):
        note += f" {JUDGED}, the share of the top ten that somebody judged: {shares}."
    note += _explained(comparison, several) if comparison is not None else ""
    return Table(["System", *titles], rows, note, heading=f"{measure} × 100{where}.").latex(marks)


def _raised(comparison: Comparison, system: str, column: int) -> str:
    """Letters behind the average that systems are ranked by; a star where a score differs from the first system's."""
    tasks = len(comparison.systems[0].tasks)
    if column == (tasks if tasks > 1 else 0):
        return comparison.letters[system]
    pair = next((p for p in comparison.pairs if (p.first, p.second) == (comparison.systems[0].name, system)), None)
    lines = [*pair.tasks.values(), pair.macro, pair.query_weighted] if pair is not None else []
    return "*" if lines and lines[column].different else ""


def _explained(comparison: Comparison, several: bool) -> str:
    first, level = comparison.systems[0].name, _percent(1.0 - comparison.settings.level)
    how = f"paired randomisation tests, {level}, corrected for their number by the step-down maximum"
    letters = " Bold: the best of a column. Systems that share a letter do not differ significantly"
    if not several:
        return f"{letters} ({how})."
    return f"{letters}, and * marks what differs significantly from {first}, the first row ({how})."


def pair_latex(pair: Pair, comparison: Comparison) -> str:
    """One pair: what a paper has room for of the table that a terminal shows."""
    whole = pair_table(pair, comparison)
    kept = [i for i, title in enumerate(whole.titles) if i in (2, 3) or title not in LEFT_OUT]
    rows = [[row[i].strip() for i in kept] for row in whole.rows]
    note = (
        f"Interval: {_percent(comparison.settings.level)}, of the line alone. p adjusted: paired randomisation tests, "
        f"{CORRECTED}; * differs significantly. W/T/L: queries where {pair.second} is better, equal, worse."
    )
    note += " Margin: two one-sided tests of the line alone." if pair.macro.equivalence is not None else ""
    heading = f"{Measure.parse(comparison.measure)} × 100: {pair.second} minus {pair.first}."
    return Table([whole.titles[i] for i in kept], rows, note, heading=heading).latex()


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _method(settings: Settings) -> str:
    method = "BCa" if settings.method == "bca" else "percentile"
    return f"{method}, {settings.resamples:,} resamples of queries within tasks"
