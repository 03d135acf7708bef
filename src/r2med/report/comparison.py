"""What is compared and what else can be said about it: from stored results, or from run files and judgments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..core import DataError, Qrels, Run, Task, UsageError
from ..core.table import Table, points, shortened, signed
from ..results import ResultIndex
from ..scoring import Measure, score
from ..scoring.aware import evaluate_aware
from ..scoring.compare import Comparison, Moved
from ..scoring.holes import DEPTH, HoleReport, PoolEntry, build_pool, hole_report
from ..scoring.intervals import Settings
from ..scoring.score_set import ScoreSet
from ..scoring.slices import Slice, Tokens, query_traits, slice_scores
from ..tasks import read_qrels, read_run
from .collection import side_by_side, task_behind

SNIPPET = 90


class Compared(NamedTuple):
    """Scores side by side, and functions that read what they were made from."""

    scores: ScoreSet
    left_out: tuple[str, ...]
    missing_queries: dict[str, int]
    unjudged_queries: dict[str, int]
    runs: Callable[[str], dict[str, Run]]
    qrels: Callable[[str], Qrels]
    task: Callable[[str], Task | None]

    def texts(self, task: str, what: str) -> Task:
        """The task's texts, for what cannot be done without them."""
        loaded = self.task(task)
        if loaded is None:
            raise UsageError(f"{what} needs the texts of {task}, which are not on this machine or have changed")
        return loaded


def from_store(
    index: ResultIndex, systems: Sequence[str], measure: Measure, *, collection: str = "", tasks: Iterable[str] = ()
) -> Compared:
    """Compare systems of a results folder."""
    scores, results, left_out = side_by_side(index, systems, measure, collection=collection, tasks=tasks)
    infos = {info.full_name: info for info in results.infos.values()}

    @cache
    def task(name: str) -> Task | None:
        return task_behind(infos[name])

    def qrels(name: str) -> Qrels:
        loaded = task(name)
        if loaded is None:
            raise UsageError(f"this needs the judgments of {name}, which are not on this machine or have changed")
        return loaded.qrels

    def runs(name: str) -> dict[str, Run]:
        return {system: results.systems[system][infos[name].name].whole_run() for system in scores.systems}

    compared = {t.name for t in scores.tasks}
    missing = {
        system: sum(r.missing_queries for r in results.results(system) if r.task.full_name in compared)
        for system in scores.systems
    }
    return Compared(scores, left_out, missing, dict.fromkeys(scores.systems, 0), runs, qrels, task)


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
    evaluations = {name: {judgments.name: score(run, qrels, [measure])} for name, run in runs.items()}
    return Compared(
        ScoreSet.of_evaluations(evaluations, measure),
        (),
        {name: len(e[judgments.name].missing_queries) for name, e in evaluations.items()},
        {name: sum(q not in judged for q in run.query_ids) for name, run in runs.items()},
        lambda name: runs,
        lambda name: qrels,
        lambda name: None,
    )


def with_snippets(comparison: Comparison, compared: Compared) -> Comparison:
    """The queries that moved most with the beginning of their texts, where the task is at hand."""
    pairs = [
        msgspec.structs.replace(pair, moved=[_with_snippet(moved, compared) for moved in pair.moved])
        for pair in comparison.pairs
    ]
    return msgspec.structs.replace(comparison, pairs=pairs)


def _with_snippet(moved: Moved, compared: Compared) -> Moved:
    task = compared.task(moved.task)
    query = task.query(moved.query_id) if task is not None else None
    return moved if query is None else msgspec.structs.replace(moved, snippet=shortened(query.text, SNIPPET))


def document(comparison: Comparison, compared: Compared) -> dict[str, object]:
    """What `r2med compare --json` prints."""
    return {
        "schema": 1,
        "measure": comparison.measure,
        "settings": comparison.settings,
        "left_out": compared.left_out,
        "missing_queries": compared.missing_queries,
        "unjudged_queries": compared.unjudged_queries,
        "systems": comparison.systems,
        "tie_groups": comparison.tie_groups,
        "letters": comparison.letters,
        "ranks": comparison.ranks,
        "pairs": comparison.pairs,
    }


def slices_of(
    compared: Compared, tokens: Tokens, settings: Settings, flagged: Collection[tuple[str, str]] | None = None
) -> list[Slice]:
    """Scores by groups of queries."""
    names = [t.name for t in compared.scores.tasks]
    traits = {name: query_traits(compared.texts(name, "slicing"), tokens) for name in names}
    return slice_scores(compared.scores, traits, flagged=flagged, settings=settings)


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
            flagged.update(known[line.strip()])
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
