"""`r2med compare`: whether one system is better than another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import Number, Whole, emit, json_option, latex_option, note, one_form, say, show

if TYPE_CHECKING:
    from ..report.comparison import Compared
    from ..scoring.intervals import Method


@click.command("compare")
@click.argument("systems", nargs=-1, required=True, metavar="A B [C …]")
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Their folder.")
@click.option("--qrels", type=click.Path(path_type=Path), help="Judgments: the arguments are then TREC run files.")
@click.option("--collection", default="", help="Which collection, where the systems share several.")
@click.option("--task", "tasks", multiple=True, metavar="NAME", help="Only this task, e.g. mini/Biology; repeatable.")
@click.option("--measure", default="nDCG@10", show_default=True, help="What is compared.")
@click.option(
    "--level",
    default=0.95,
    show_default=True,
    type=Number(0.5, 1, max_open=True),
    help="Of the intervals; tests use its complement.",
)
@click.option(
    "--method", type=click.Choice(["percentile", "bca"]), default="bca", show_default=True, help="Intervals of scores."
)
@click.option(
    "--resamples",
    default=10_000,
    show_default=True,
    type=Whole(min=100),
    help="Of the bootstrap; ten times as many sign flips are drawn.",
)
@click.option("--seed", default=0, show_default=True, type=Whole(min=0), help="Of the random numbers.")
@click.option(
    "--margin", type=Number(0, 100, min_open=True), metavar="POINTS",
    help="Also whether systems are equivalent within this margin; 2 is an nDCG@10 of 0.02.",
)  # fmt: skip
@click.option("--slices", is_flag=True, help="Also by family, body system, positives, length and difficulty.")
@click.option(
    "--flagged",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Also with and without these queries: ids, one a line.",
)
@click.option("--aware", is_flag=True, help="Also with copies credited once and ties averaged.")
@click.option("--holes", is_flag=True, help="Also how unjudged documents could change the order.")
@click.option(
    "--pool", type=click.Path(path_type=Path), help="Write the unjudged documents for labelling: .tsv, .jsonl."
)
@click.option("--depth", type=Whole(min=1), help="How deep --holes and --pool look.  [default: 10]")
@click.option(
    "--per-query", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE.csv",
    help="Write a row per query and system: body system, slices, measures.",
)  # fmt: skip
@latex_option
@json_option
def command(
    systems: tuple[str, ...], results: Path, qrels: Path | None, collection: str, tasks: tuple[str, ...], measure: str,
    level: float, method: Method, resamples: int, seed: int, margin: float | None, slices: bool, flagged: Path | None,
    aware: bool, holes: bool, pool: Path | None, depth: int | None, per_query: Path | None, latex: bool, as_json: bool,
) -> None:  # fmt: skip
    """Compare systems on the same queries, per task and overall.

    Systems are named as in the results folder, or given as TREC run files with --qrels. Each difference comes with a
    paired randomisation test, the interval that belongs to it, a correction for the number of tests, a t-test and the
    difference that these queries could detect. Systems come with letters (those that share one do not differ), ranks
    and intervals.
    """
    from ..api.results import compare_details, compare_stored, compare_tested, latex_tables
    from ..report import comparison as what
    from ..scoring.intervals import Settings
    from ..scoring.tables import comparison_tables

    one_form(as_json=as_json, latex=latex)
    if depth is not None and not (holes or pool):
        raise click.UsageError("--depth is how deep --holes and --pool look: add one of them")
    if per_query is not None and per_query.suffix != ".csv":
        raise click.BadParameter(f"{per_query}: per-query scores are written as a .csv file", param_hint="--per-query")
    settings = Settings(level=level, method=method, resamples=resamples, seed=seed)
    compared = compare_stored(
        *systems, results=results, qrels=qrels, measure=measure, collection=collection, tasks=tasks
    )
    found = compare_tested(compared, settings, margin=margin)
    details = compare_details(
        compared, settings, slices=slices, flagged=flagged, aware=aware, holes=holes, pool=pool, depth=depth or 10,
        per_query=per_query,
    )  # fmt: skip
    for line in (*details.notes, *_notes(compared)):
        note(line)
    if as_json:
        emit(what.document(found, compared) | details.document)
        return
    if latex:
        say("\n".join([latex_tables(found), *(table.latex() for table in details.tables)]), lines=True)
        return
    for table in (*comparison_tables(found), *details.tables):
        show(table)
        say()


@click.command("design")
@click.argument("systems", nargs=-1, metavar="[A B …]")
@click.option(
    "--effect",
    required=True,
    type=Number(0, 100, min_open=True),
    metavar="POINTS",
    help="The difference to be found; 2: an nDCG@10 of 0.02.",
)
@click.option(
    "--power",
    default=0.8,
    show_default=True,
    type=Number(0, 1, min_open=True, max_open=True),
    help="How often it is to be found.",
)
@click.option(
    "--level",
    default=0.95,
    show_default=True,
    type=Number(0, 1, min_open=True, max_open=True),
    help="The star's complement.",
)
@click.option(
    "--compared",
    default=2,
    show_default=True,
    type=Whole(min=2),
    metavar="N",
    help="Systems that will be compared together.",
)
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Their folder.")
@click.option("--collection", default="", help="Which collection, where there are several.")
@click.option("--measure", default="nDCG@10", show_default=True, help="What is compared.")
@json_option
def design(
    systems: tuple[str, ...], effect: float, power: float, level: float, compared: int, results: Path, collection: str,
    measure: str, as_json: bool,
) -> None:  # fmt: skip
    """Say how many queries and tasks a benchmark needs to find a difference.

    How much differences vary, between queries and between tasks, is taken from stored results: of the systems named,
    or of all.
    """
    from ..api.results import design as design_for
    from ..scoring.tables import design_table

    found = design_for(
        *systems,
        effect=effect,
        power=power,
        level=level,
        compared=compared,
        results=results,
        collection=collection,
        measure=measure,
    )
    if as_json:
        emit(found)
        return
    show(design_table(found))


def _notes(compared: Compared) -> Iterator[str]:
    """What a reader of the numbers must know."""
    from ..core.table import counted

    scores = compared.scores
    yield from compared.problems
    if not scores.complete:
        lacking = f"; left out: {', '.join(compared.left_out)}" if compared.left_out else ""
        yield f"averages cover only {len(scores.tasks)} of {scores.of_tasks} tasks{lacking}"
    for system, number in compared.missing_queries.items():
        if number:
            yield f"{system}: {counted(number, 'query', 'queries')} without results scored 0"
    for system, number in compared.unjudged_queries.items():
        if number:
            yield f"{system}: {counted(number, 'query', 'queries')} without judgments did not count"
