"""What is compared and what else can be said about it: from stored results, or from run files and judgments.

A comparison is also written as tables of a paper, in LaTeX: intervals below the scores, marks of significance, the best
in bold. Marks are those that a terminal shows: the letters of the average that systems are ranked by, and the star of
each line of a pair. They come from the comparison itself; nothing is tested again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ..core import DataError, Qrels, Run, Task, UsageError
from ..core.table import Mark, Table, points, share, shortened, signed
from ..results import ResultIndex, TaskResult
from ..results.store import collection_slug
from ..scoring import Measure, score
from ..scoring.aware import evaluate_aware
from ..scoring.compare import Comparison, Moved, Pair, compare
from ..scoring.evaluation import ScoreSet, mean_judged
from ..scoring.holes import DEPTH, HoleReport, PoolEntry, build_pool, hole_report
from ..scoring.intervals import Settings, SystemScores, score_intervals
from ..scoring.measures import JUDGED, USUAL
from ..scoring.slices import GROUPS, Slice, Tokens, query_traits, slice_labels, slice_scores
from ..scoring.tables import CORRECTED, pair_table
from ..tasks import read_qrels, read_run
from .collection import side_by_side, task_behind
from .scores import by_system, short_name

SNIPPET = 90
LEFT_OUT = ("p", "p t-test", "Effect", "Detectable")
"""Columns of a pair's table that a paper's has no room for."""


class Compared(NamedTuple):
    """Scores side by side, and functions that read what they were made from."""

    scores: ScoreSet
    left_out: tuple[str, ...]
    missing_queries: dict[str, int]
    unjudged_queries: dict[str, int]
    judged_at_10: dict[str, float | None]  # The share of the top ten that somebody judged, mean of the tasks.
    runs: Callable[[str], dict[str, Run]]
    task: Callable[[str], Task | None]
    evaluated: Callable[[str, str, Sequence[Measure]], Mapping[str, Sequence[float]]]
    # Task and system to the measures of each query, in order; NaN where one was not stored.
    judgments: Qrels | None = None  # Those of a file; else a task has its own.
    problems: tuple[str, ...] = ()  # Results that are left out, and why.

    def texts(self, task: str, what: str) -> Task:
        """The task's texts, for what cannot be done without them."""
        loaded = self.task(task)
        if loaded is None:
            raise UsageError(f"{what} of {task}, which are not on this machine or have changed")
        return loaded

    def qrels(self, task: str) -> Qrels:
        return self.texts(task, "this needs the judgments").qrels if self.judgments is None else self.judgments


def from_store(
    index: ResultIndex, systems: Sequence[str], measure: Measure, *, collection: str = "", tasks: Iterable[str] = ()
) -> Compared:
    """Compare systems of a results folder."""
    scores, results, left_out = side_by_side(index, systems, measure, collection=collection, tasks=tasks)
    infos = {info.full_name: info for info in results.infos.values()}

    @cache
    def task(name: str) -> Task | None:
        return task_behind(infos[name]).task

    def runs(name: str) -> dict[str, Run]:
        return {system: results.systems[system][infos[name].name].whole_run() for system in scores.systems}

    def evaluated(name: str, system: str, measures: Sequence[Measure]) -> dict[str, list[float]]:
        columns = results.systems[system][infos[name].name].scores([m.key for m in measures])
        return dict(zip(columns.query_ids, columns.values.T.tolist(), strict=True))

    compared = {t.name for t in scores.tasks}
    behind = {system: [r for r in results.results(system) if r.task.full_name in compared] for system in scores.systems}
    return Compared(
        scores,
        left_out,
        {system: sum(r.missing_queries for r in found) for system, found in behind.items()},
        dict.fromkeys(scores.systems, 0),
        {system: mean_judged(r.judged_at_10 for r in found) for system, found in behind.items()},
        runs,
        task,
        evaluated,
        problems=results.problems,
    )


def from_runs(paths: Sequence[Path], judgments: Path, measure: Measure) -> Compared:
    """Compare TREC runs; queries that a run lacks score 0 and are counted."""
    qrels = read_qrels(judgments)
    if not qrels.positives:
        raise DataError("has no positive judgment, so every score would be 0", path=judgments)
    short = [path.name for path in paths]
    names = short if len(set(short)) == len(short) else [str(path) for path in paths]
    runs = {name: read_run(path).renamed(name) for name, path in zip(names, paths, strict=True)}
    if len(runs) < len(paths):
        raise UsageError(f"run {next(n for n in names if names.count(n) > 1)!r} is given twice")
    judged = frozenset(qrels.query_ids)
    for path, run in zip(paths, runs.values(), strict=True):
        if judged.isdisjoint(run.query_ids):
            raise DataError(f"answers none of the {len(judged)} judged queries of {judgments}", path=path)

    def evaluated(name: str, system: str, measures: Sequence[Measure]) -> dict[str, list[float]]:
        found = score(runs[system], qrels, measures)
        rows = np.stack([found.per_query[m] for m in measures]).T.tolist()
        return dict(zip(found.query_ids, rows, strict=True))

    evaluations = {name: {judgments.name: score(run, qrels, [measure])} for name, run in runs.items()}
    return Compared(
        ScoreSet.of_evaluations(evaluations, measure),
        (),
        {name: len(e[judgments.name].missing_queries) for name, e in evaluations.items()},
        {name: sum(q not in judged for q in run.query_ids) for name, run in runs.items()},
        {name: e[judgments.name].judged_at_10 for name, e in evaluations.items()},
        lambda name: runs,
        lambda name: None,
        evaluated,
        qrels,
    )


def with_details(comparison: Comparison, compared: Compared) -> Comparison:
    """Adds the beginning of texts to the queries that moved most, where the task is at hand, and what was judged."""

    def begun(moved: Moved) -> Moved:
        task = compared.task(moved.task)
        query = task.query(moved.query_id) if task is not None else None
        return moved if query is None else msgspec.structs.replace(moved, snippet=shortened(query.text, SNIPPET))

    pairs = [msgspec.structs.replace(pair, moved=list(map(begun, pair.moved))) for pair in comparison.pairs]
    return msgspec.structs.replace(comparison, pairs=pairs, judged_at_10=compared.judged_at_10)


def document(comparison: Comparison, compared: Compared) -> dict[str, object]:
    """What `r2med compare --json` prints."""
    said = {name: getattr(compared, name) for name in ("left_out", "missing_queries", "unjudged_queries")}
    return {"schema": 1, **said, **msgspec.structs.asdict(comparison)}


def slices_of(
    compared: Compared, tokens: Tokens, settings: Settings, flagged: Collection[tuple[str, str]] | None = None
) -> list[Slice]:
    """Scores by groups of queries."""
    names = [t.name for t in compared.scores.tasks]
    traits = {name: query_traits(compared.texts(name, "slicing needs the texts"), tokens) for name in names}
    return slice_scores(compared.scores, traits, flagged=flagged, settings=settings)


def per_query_table(compared: Compared, flagged: Collection[tuple[str, str]] | None = None) -> Table:
    """A row per query and system: task, query, the groups that it belongs to, and measures from 0 to 1.

    Groups are those of `slices_of`; without the texts of every task they are empty, and the caption says so.
    """
    from ..text import get_analyzer

    scores, tokens = compared.scores, get_analyzer("english")
    measures = list(dict.fromkeys((scores.measure, *USUAL)))
    order = [(task.name, query_id) for task in scores.tasks for query_id in task.query_ids]
    texts = {task.name: compared.task(task.name) for task in scores.tasks}
    lacking = [name for name, task in texts.items() if task is None]
    traits = {name: query_traits(task, tokens) for name, task in texts.items() if task is not None}
    labels = slice_labels(scores, traits, flagged) if not lacking else dict.fromkeys(GROUPS, [""] * len(order))
    found = {
        (task.name, system): compared.evaluated(task.name, system, measures)
        for task in scores.tasks
        for system in scores.systems
    }
    rows = [
        [task, query_id, *groups, system, *("" if math.isnan(v) else repr(v) for v in found[task, system][query_id])]
        for (task, query_id), groups in zip(order, zip(*labels.values(), strict=True), strict=True)
        for system in scores.systems
    ]
    said = f"no groups: the texts of {', '.join(lacking)} are not on this machine or have changed" if lacking else ""
    words = ["Task", "Query", *(by.capitalize() for by in labels), "System"]
    return Table([*words, *map(str, measures)], rows, said, left=len(words))


def read_flags(path: Path, scores: ScoreSet) -> set[tuple[str, str]]:
    """Query ids, one a line, after their task and a tab where the id alone is not enough."""
    known: dict[str, list[tuple[str, str]]] = {}
    for task in scores.tasks:
        for query_id in task.query_ids:
            known.setdefault(query_id, []).append((task.name, query_id))
            known[f"{task.name}\t{query_id}"] = [(task.name, query_id)]
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", path=path) from None
    flagged: set[tuple[str, str]] = set()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            if line.strip() not in known:
                raise DataError(f"no compared task has a query {line.strip()!r}", path=path, line=number)
            if len(meant := known[line.strip()]) > 1:
                tasks = ", ".join(task for task, _ in meant)
                raise DataError(
                    f"{line.strip()!r} is a query of {tasks}: write the task and a tab before it",
                    path=path,
                    line=number,
                )
            flagged.update(meant)
    return flagged


class AwareScore(msgspec.Struct, frozen=True, kw_only=True):
    """One system on one task: the strict score, the aware one, and what made the difference."""

    task: str
    system: str
    strict: float
    aware: float
    copies_dropped: int
    copies_known: bool
    tied_queries: int


def aware_of(compared: Compared, copies: Callable[[Task], Mapping[str, str]]) -> list[AwareScore]:
    """Strict and aware scores side by side; without texts, copies cannot be known and only ties are averaged."""
    measure, found = compared.scores.measure, []
    for name in (t.name for t in compared.scores.tasks):
        task = compared.task(name)
        known = copies(task) if task is not None else {}
        for system, run in compared.runs(name).items():
            scored = evaluate_aware(run, compared.qrels(name), [measure], copies=known)
            found.append(
                AwareScore(
                    task=name,
                    system=system,
                    strict=scored.strict.mean(measure),
                    aware=scored.aware.mean(measure),
                    copies_dropped=scored.copies_dropped,
                    copies_known=task is not None,
                    tied_queries=scored.tied_queries,
                )
            )
    return found


def aware_table(scores: Sequence[AwareScore]) -> Table:
    """Strict and aware scores side by side."""
    rows = [
        [
            s.task, s.system, points(s.strict), points(s.aware), signed(s.aware - s.strict),
            str(s.copies_dropped) if s.copies_known else "unknown", str(s.tied_queries),
        ]
        for s in scores
    ]  # fmt: skip
    titles = ["Task", "System", "Strict", "Aware", "Difference", "Copies dropped", "Queries with ties"]
    return Table(titles, rows, "Aware: copies of a passage count once, equal scores are averaged over orders.", 2)


def holes_of(compared: Compared, depth: int = DEPTH) -> dict[str, list[HoleReport]]:
    """Holes and bounds of every task."""
    measure = compared.scores.measure
    names = [t.name for t in compared.scores.tasks]
    return {name: hole_report(compared.runs(name), compared.qrels(name), measure, depth=depth) for name in names}


def pool_of(compared: Compared, depth: int = DEPTH) -> list[PoolEntry]:
    """The unjudged documents of all systems and tasks."""
    return [
        entry
        for name in (t.name for t in compared.scores.tasks)
        for entry in build_pool(
            compared.runs(name), compared.qrels(name), depth=depth, task=compared.task(name), name=name
        )
    ]


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
