"""Results, as functions: compared, ranked beside published figures, drawn."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from ..core import UsageError
from ..core.files import write_bytes
from ..core.options import Options
from ..core.table import Table, counted
from ..report.collection import (
    CollectionResults,
    SideBySide,
    check_depths,
    collection_results,
    side_by_side,
    the_collection,
)
from ..report.comparison import (
    Compared,
    aware_of,
    aware_table,
    comparison_latex,
    from_runs,
    from_store,
    holes_of,
    per_query_table,
    pool_of,
    read_flags,
    slices_of,
    with_details,
)
from ..report.costs import AXES, cost_points, cut_points
from ..report.leaderboard import Board, board
from ..report.pictures import MEAN, draw_ranks, draw_scatter, draw_scores, draw_tradeoff, draw_truncation
from ..report.svg import Canvas, check_output, write_picture
from ..results import ResultIndex, ResultStore
from ..scoring import MAIN, Evaluation, Measure
from ..scoring.compare import Comparison, standings
from ..scoring.compare import compare as compare_scores
from ..scoring.evaluation import ScoreSet, mean_judged
from ..scoring.holes import write_pool
from ..scoring.intervals import Settings, score_intervals
from ..scoring.populations import Design
from ..scoring.populations import design as design_benchmark
from ..scoring.tables import holes_table, slices_table
from ..text import get_analyzer
from ..text.duplicates import find_copies

if TYPE_CHECKING:
    from ..pipeline.run import Notify
    from ..results.ledger import Reproduction

__all__ = [
    "compare",
    "compare_stored",
    "design",
    "latex_tables",
    "leaderboard",
    "per_query",
    "plot_pareto",
    "plot_ranks",
    "plot_scatter",
    "plot_scores",
    "plot_truncation",
    "reproduce",
]
FOLDER = "results"


def compare(
    *compared: str | Mapping[str, Evaluation] | Mapping[str, Mapping[str, Evaluation]],
    results: str | Path = FOLDER,
    measure: Measure | str = MAIN,
    collection: str = "",
    tasks: Iterable[str] = (),
    settings: Settings | None = None,
    margin: float | None = None,
) -> Comparison:
    """Compare systems query by query, with intervals and paired tests.

    With a `margin`, also whether they are equivalent within it: in points of 100, so that 2 is an nDCG@10 of 0.02.

    `compare("bm25", "bge-small")` takes them from a results folder; `compare({"mine": e1, "theirs": e2})` takes
    evaluations of one task, or of several as `{"mine": {"task": e, …}, …}`.
    """
    chosen, within = settings or Settings(), None if margin is None else margin / 100
    if len(compared) == 1 and isinstance(compared[0], Mapping):
        if collection or tuple(tasks):
            raise UsageError("collection and tasks choose among stored results: give the evaluations of those alone")
        nested = {
            name: of_task if isinstance(of_task, Mapping) else {"score": of_task}
            for name, of_task in compared[0].items()
        }
        for name, of_task in nested.items():
            if not all(isinstance(e, Evaluation) for e in of_task.values()):
                raise UsageError(f"{name!r} is no evaluation: r2med.evaluate(system, task) gives one")
        scores = ScoreSet.of_evaluations(nested, Measure.parse(measure))
        judged = {
            name: mean_judged(of_task[task.name].judged_at_10 for task in scores.tasks)
            for name, of_task in nested.items()
        }
        return msgspec.structs.replace(compare_scores(scores, chosen, margin=within), judged_at_10=judged)
    named = [s for s in compared if isinstance(s, str)]
    if len(named) != len(compared) or len(named) < 2:
        raise UsageError("compare takes two or more names of stored systems, or one dictionary of evaluations")
    stored = compare_stored(*named, results=results, measure=measure, collection=collection, tasks=tasks)
    for problem in stored.problems:
        warnings.warn(problem, stacklevel=2)
    return compare_tested(stored, chosen, margin=margin)


def design(
    *systems: str,
    effect: float,
    power: float = 0.8,
    level: float = 0.95,
    compared: int = 2,
    results: str | Path = FOLDER,
    collection: str = "",
    measure: Measure | str = MAIN,
) -> Design:
    """How many queries and tasks find a difference, judging by stored systems, by default all.

    `effect` is that difference in points of 100: 2 is an nDCG@10 of 0.02. `compared` is how many systems
    will be compared together, which the test corrects for.
    """
    index = ResultIndex([Path(results)])
    where = the_collection(index, collection)
    scores = side_by_side(index, systems, Measure.parse(measure), collection=where).scores
    return design_benchmark(scores, effect=effect / 100, power=power, level=level, systems=compared)


def compare_stored(
    *systems: str,
    results: str | Path = FOLDER,
    qrels: str | Path | None = None,
    measure: Measure | str = MAIN,
    collection: str = "",
    tasks: Iterable[str] = (),
) -> Compared:
    """Scores of stored systems side by side, with their runs and texts: what slices, holes and pools are made from.

    With `qrels`, the systems are TREC run files.
    """
    chosen, tasks = Measure.parse(measure), tuple(tasks)
    if qrels is None:
        return from_store(ResultIndex([Path(results)]), systems, chosen, collection=collection, tasks=tasks)
    if collection or tasks:
        raise UsageError("a collection and tasks choose among stored results; with judgments there is one task")
    return from_runs([Path(system) for system in systems], Path(qrels), chosen)


def compare_tested(compared: Compared, settings: Settings, *, margin: float | None = None) -> Comparison:
    """Intervals and paired tests of scores side by side; `margin` as in `compare`."""
    within = None if margin is None else margin / 100
    return with_details(compare_scores(compared.scores, settings, margin=within), compared)


class Details(NamedTuple):
    """What is said about systems beside their tests: data for JSON, tables, and lines for a reader."""

    document: dict[str, object]
    tables: list[Table]
    notes: list[str]


def compare_details(
    compared: Compared, settings: Settings, *, slices: bool = False, flagged: Path | None = None, aware: bool = False,
    holes: bool = False, pool: Path | None = None, depth: int = 10, per_query: Path | None = None,
) -> Details:  # fmt: skip
    """Scores by slices, with and without flagged queries, with copies and ties told apart, and what nobody judged.

    `pool` and `per_query` are files to write: documents to judge, and a row for each query and system.
    """
    found = Details({}, [], [])
    flags = None if flagged is None else read_flags(flagged, compared.scores)
    if slices or flags is not None:
        found.document["slices"] = parts = slices_of(compared, get_analyzer("english"), settings, flags)
        found.tables.append(slices_table(parts, compared.scores.systems, settings))
    if aware:
        found.document["aware"] = both = aware_of(compared, lambda task: find_copies(task.documents))
        found.tables.append(aware_table(both))
    if holes:
        found.document["holes"] = reports = holes_of(compared, depth)
        found.tables.append(holes_table(reports, depth))
    if pool is not None:
        number = write_pool(pool_of(compared, depth), pool)
        found.document["pool"] = {"path": str(pool), "entries": number}
        found.notes.append(f"{counted(number, 'document')} to judge: {pool}")
    if per_query is not None:
        table = per_query_table(compared, flags)
        write_bytes(per_query, table.csv().encode())
        found.document["per_query"] = {"path": str(per_query), "rows": len(table.rows)}
        found.notes.append(f"{counted(len(table.rows), 'row')}, one for each query and system: {per_query}")
        if table.caption:
            found.notes.append(table.caption)
    return found


def latex_tables(comparison: Comparison) -> str:
    """A comparison as LaTeX tables for a paper: scores with intervals and marks, then every pair of systems."""
    return comparison_latex(comparison)


def per_query(
    *systems: str,
    results: str | Path = FOLDER,
    qrels: str | Path | None = None,
    measure: Measure | str = MAIN,
    collection: str = "",
    tasks: Iterable[str] = (),
) -> Table:
    """A row per query and system, with its body system, the slices it belongs to and its measures, from 0 to 1.

    `.csv()` writes it. With `qrels`, the systems are TREC run files, and nothing is known about their queries.
    """
    found = compare_stored(*systems, results=results, qrels=qrels, measure=measure, collection=collection, tasks=tasks)
    return per_query_table(found)


def leaderboard(
    results: str | Path = FOLDER,
    *,
    collection: str = "",
    published: bool = False,
    measured: bool = False,
    protocol: str = "",
    source: str = "",
    kind: str = "",
    measure: Measure | str = MAIN,
) -> Board:
    """Systems, best first: what others published beside what was measured here.

    Published figures of one protocol are shown, that of the collection unless `protocol` names another, or `all`.
    """
    if measured and (protocol or source):
        raise UsageError("protocol and source choose among published figures, and measured leaves those out")
    return board(
        results,
        collection=collection,
        published=published,
        measured=measured,
        protocol=protocol,
        source=source,
        kind=kind,
        measure=Measure.parse(measure),
        default_folder=str(results) == FOLDER,
    )


def reproduce(
    system: str = "bm25",
    *,
    collection: Literal["mini", "mini-dev", "mini@1", "nano", "r2med"] = "mini",
    tasks: Sequence[str] = (),
    protocol: str = "",
    measure: Measure | str = MAIN,
    tolerance: float | None = None,
    run: bool = True,
    ledger_file: str | Path | None = None,
    results: str | Path = FOLDER,
    options: Options | None = None,
    notify: Notify = lambda system, task, what: None,
) -> Reproduction:
    """Compare a system with what was published, task by task; what has no stored result is run, unless `run` is false.

    `tolerance` is in points of 100; by default the source's own.
    """
    from ..pipeline import check_writable
    from ..pipeline.reproduce import reproduce as compare_with_ledger
    from ..results.ledger import ledger, read_ledger
    from ..tasks import resolve

    store = ResultStore(results)
    named = [(name, ref) for name in tasks for ref in resolve(name if "/" in name else f"{collection}/{name}")]
    for name, ref in named:
        if ref.collection != collection:
            raise UsageError(f"{name} is a task of {ref.collection}, and the collection is {collection}")
    refs = [ref for _, ref in named] or resolve(collection)
    if run:
        check_writable(store)
    return compare_with_ledger(
        system,
        refs,
        store,
        read_ledger(Path(ledger_file)) if ledger_file else ledger(),
        collection=collection,
        protocol=protocol,
        measure=Measure.parse(measure),
        tolerance=tolerance,
        run=run,
        options=options,
        notify=notify,
    )


class Picture(NamedTuple):
    """A picture that was written, and what a reader of it must know."""

    canvas: Canvas
    notes: list[str]


def plot_scores(
    out: str | Path, *systems: str, results: str | Path = FOLDER, collection: str = "", measure: Measure | str = MAIN,
    settings: Settings | None = None,
) -> Picture:  # fmt: skip
    """Draw every system on every task, with intervals, as SVG or PNG."""
    check_output(Path(out))
    index, shown, chosen = ResultIndex([Path(results)]), Measure.parse(measure), settings or Settings()
    where = the_collection(index, collection)
    found = side_by_side(index, systems, shown, collection=where)
    canvas = draw_scores(score_intervals(found.scores, chosen), shown, where, level=chosen.level)
    return _written(canvas, out, _lacking(found))


def plot_ranks(
    out: str | Path, *systems: str, results: str | Path = FOLDER, collection: str = "", measure: Measure | str = MAIN,
    settings: Settings | None = None,
) -> Picture:  # fmt: skip
    """Draw the rank of every system with its interval and the chance to be the best."""
    check_output(Path(out))
    index, shown, chosen = ResultIndex([Path(results)]), Measure.parse(measure), settings or Settings()
    where = the_collection(index, collection)
    found = side_by_side(index, systems, shown, collection=where)
    scores = found.scores
    canvas = draw_ranks(scores.systems, standings(scores.matrices, chosen), shown, where, level=chosen.level)
    return _written(canvas, out, _lacking(found))


def plot_pareto(
    out: str | Path, *systems: str, results: str | Path = FOLDER, collection: str = "", measure: Measure | str = MAIN,
    axis: Literal["seconds", "cost"] = "seconds", warm: bool = False,
) -> Picture:  # fmt: skip
    """Draw score against seconds or dollars per query, with the Pareto line.

    Seconds are those of a first run, in which nothing is stored; with `warm`, those of the run itself.
    """
    if axis not in ("seconds", "cost"):
        raise UsageError(f"the axis is seconds or cost, not {axis!r}")
    if warm and axis == "cost":
        raise UsageError("warm goes with seconds: dollars are counted whenever they were paid")
    check_output(Path(out))
    shown = Measure.parse(measure)
    found = _of_collection(systems, results, collection, shown)
    against = "dollars" if axis == "cost" else "warm" if warm else axis
    points, left_out = cost_points(found, found.tasks, shown, against)
    if not points:
        raise UsageError("no system is left to draw: " + "; ".join(left_out))
    number, whole = len(found.tasks), max(len(found.whole), len(found.tasks))
    average = MEAN if number == whole else f"mean of {number} of {whole} tasks"
    canvas = draw_tradeoff(points, AXES[against], shown, found.slug, headed=True, average=average)
    lacking = [] if number == whole else [f"only {number} of {whole} tasks: those that have results"]
    return _written(canvas, out, [*lacking, *left_out, *found.problems])


def plot_scatter(
    out: str | Path, first: str, second: str, *, results: str | Path = FOLDER, collection: str = "",
    measure: Measure | str = MAIN,
) -> Picture:  # fmt: skip
    """Draw two systems query by query: the first along x, the second along y."""
    check_output(Path(out))
    index, shown = ResultIndex([Path(results)]), Measure.parse(measure)
    where = the_collection(index, collection)
    found = side_by_side(index, [first, second], shown, collection=where)
    families = {info.full_name: info.family or info.full_name for info in found.results.infos.values()}
    canvas = draw_scatter(found.scores, where, headed=True, group=lambda task: families[task])
    return _written(canvas, out, found.results.problems)


def plot_truncation(
    out: str | Path, *systems: str, results: str | Path = FOLDER, collection: str = "", measure: Measure | str = MAIN,
    side: Literal["document", "query"] = "document",
) -> Picture:  # fmt: skip
    """Draw the share of tokens that a model never read against its score, task by task."""
    if side not in ("document", "query"):
        raise UsageError(f"the side is document or query, not {side!r}")
    check_output(Path(out))
    shown = Measure.parse(measure)
    found = _of_collection(systems, results, collection, shown)
    points = cut_points([result for system in found.systems for result in found.results(system)], shown, side)
    return _written(draw_truncation(points, shown, found.slug, side), out, found.problems)


def _of_collection(
    systems: Sequence[str], results: str | Path, collection: str, measure: Measure
) -> CollectionResults:  # fmt: skip
    """The results of some systems, by default all, on one collection; rankings of unlike depth are refused."""
    index = ResultIndex([Path(results)])
    stored = index.select(systems, collection=the_collection(index, collection))
    found = collection_results(stored[0].collection, stored, strict=True)
    check_depths(found, found.tasks, measure)
    return found


def _lacking(found: SideBySide) -> list[str]:
    """What a picture of these scores does not show."""
    scores = found.scores
    lacking = f"only {len(scores.tasks)} of {scores.of_tasks} tasks: those that every system has"
    return [*([] if scores.complete else [lacking]), *found.results.problems]


def _written(canvas: Canvas, out: str | Path, notes: Sequence[str] = ()) -> Picture:
    write_picture(canvas, Path(out))
    return Picture(canvas, list(notes))
