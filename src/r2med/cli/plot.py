"""`r2med plot`: pictures of results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from .common import json_option
from .output import emit, note

if TYPE_CHECKING:
    from ..report.svg import Canvas

F = TypeVar("F", bound=Callable[..., Any])
Side = Literal["document", "query"]
Axis = Literal["seconds", "cost"]


def _shared(function: F) -> F:
    options = (
        click.option("--out", "-o", required=True, metavar="FILE", help="Ends in .svg or .png.",
                     type=click.Path(dir_okay=False, path_type=Path)),
        click.option("--collection", "-c", default="", metavar="NAME", help="Default: the one that has results."),
        click.option("--measure", default="nDCG@10", show_default=True, help="What is drawn."),
        click.option("--results", default="results", show_default=True, help="Where results lie.",
                     type=click.Path(file_okay=False, path_type=Path)),
    )  # fmt: skip
    function = json_option(function)
    for option in reversed(options):
        function = option(function)
    return function


systems_option = click.option(
    "--system", "-s", "systems", multiple=True, metavar="NAME", help="Only these, in this order; repeatable."
)


@click.group("plot")
def command() -> None:
    """Draw results: scores with intervals, score against time or price, two systems query by query, truncation.

    SVG needs nothing else and follows light and dark pages; PNG needs the extra `plots`.
    """


@command.command()
@_shared
@systems_option
@click.option("--resamples", default=10_000, show_default=True, type=click.IntRange(min=100), help="Of the bootstrap.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of the bootstrap.")
def scores(
    out: Path,
    collection: str,
    measure: str,
    results: Path,
    as_json: bool,
    systems: tuple[str, ...],
    resamples: int,
    seed: int,
) -> None:
    """Every system on every task, with 95 % intervals (dot plot)."""
    from ..report.collection import side_by_side, the_collection
    from ..report.pictures import draw_scores
    from ..report.svg import check_output
    from ..results import ResultIndex
    from ..scoring import Measure
    from ..scoring.intervals import Settings, score_intervals

    check_output(out)
    index, shown = ResultIndex([results]), Measure.parse(measure)
    where = the_collection(index, collection)
    found = side_by_side(index, systems, shown, collection=where).scores
    settings = Settings(resamples=resamples, seed=seed)
    _write(draw_scores(score_intervals(found, settings), shown, where, level=settings.level), out, as_json)
    if not found.complete:
        note(f"only {len(found.tasks)} of {found.of_tasks} tasks: those that every system has")


@command.command()
@_shared
@systems_option
@click.option("--x", "axis", type=click.Choice(["seconds", "cost"]), default="seconds", show_default=True)
def pareto(
    out: Path, collection: str, measure: str, results: Path, as_json: bool, systems: tuple[str, ...], axis: Axis
) -> None:
    """Score against seconds or dollars per query, with the Pareto line."""
    from ..core import UsageError
    from ..report.collection import collection_results, the_collection
    from ..report.costs import AXES, cost_points
    from ..report.pictures import draw_tradeoff
    from ..report.svg import check_output
    from ..results import ResultIndex
    from ..scoring import Measure

    check_output(out)
    index, shown = ResultIndex([results]), Measure.parse(measure)
    where = the_collection(index, collection)
    stored = index.select(systems, collection=where)
    found = collection_results(stored[0].collection, stored, strict=True)
    against = "dollars" if axis == "cost" else axis
    points, left_out = cost_points(found, found.tasks, shown, against)
    if not points:
        raise UsageError("no system is left to draw: " + "; ".join(left_out))
    _write(draw_tradeoff(points, AXES[against], shown, where, headed=True), out, as_json)
    for line in left_out:
        note(line)


@command.command()
@click.argument("first")
@click.argument("second")
@_shared
def scatter(first: str, second: str, out: Path, collection: str, measure: str, results: Path, as_json: bool) -> None:
    """Two systems, query by query: FIRST along x, SECOND along y."""
    from ..report.collection import side_by_side, the_collection
    from ..report.pictures import draw_scatter
    from ..report.svg import check_output
    from ..results import ResultIndex
    from ..scoring import Measure

    check_output(out)
    index, shown = ResultIndex([results]), Measure.parse(measure)
    where = the_collection(index, collection)
    found = side_by_side(index, [first, second], shown, collection=where)
    families = {info.full_name: info.family or info.full_name for info in found.results.infos.values()}
    _write(draw_scatter(found.scores, where, headed=True, group=lambda task: families[task]), out, as_json)


@command.command()
@_shared
@systems_option
@click.option("--side", type=click.Choice(["document", "query"]), default="document", show_default=True)
def truncation(
    out: Path, collection: str, measure: str, results: Path, as_json: bool, systems: tuple[str, ...], side: Side
) -> None:
    """Share of tokens that a model never read against its score, task by task."""
    from ..report.collection import the_collection
    from ..report.costs import cut_points
    from ..report.pictures import draw_truncation
    from ..report.svg import check_output
    from ..results import ResultIndex
    from ..scoring import Measure

    check_output(out)
    index, shown = ResultIndex([results]), Measure.parse(measure)
    where = the_collection(index, collection)
    points = cut_points([stored.result for stored in index.select(systems, collection=where)], shown, side)
    _write(draw_truncation(points, shown, where, side), out, as_json)


def _write(canvas: Canvas, out: Path, as_json: bool) -> None:
    from ..report.svg import write_picture

    write_picture(canvas, out)
    if as_json:
        emit({"file": str(out), "title": canvas.title, "width": canvas.width, "height": canvas.height})
    else:
        note(f"Written: {out}")
