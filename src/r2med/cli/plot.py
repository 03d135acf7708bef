"""`r2med plot`: pictures of results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from .common import Commands, Whole, emit, json_option, note

if TYPE_CHECKING:
    from ..api.results import Picture

F = TypeVar("F", bound=Callable[..., Any])
Side = Literal["document", "query"]
Axis = Literal["seconds", "cost"]


def _shared(function: F) -> F:
    options = (
        click.option("--out", "-o", default=f"{function.__name__}.svg", show_default=True, metavar="FILE",
                     help="Ends in .svg or .png.", type=click.Path(dir_okay=False, path_type=Path)),
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


@click.group("plot", cls=Commands)
def command() -> None:
    """Draw results: scores with intervals, score against time or price, two systems query by query, truncation.

    SVG needs nothing else and follows light and dark pages; PNG needs the extra `plots`.
    """


@command.command()
@_shared
@systems_option
@click.option("--resamples", default=10_000, show_default=True, type=Whole(min=100), help="Of the bootstrap.")
@click.option("--seed", default=0, show_default=True, type=Whole(min=0), help="Of the bootstrap.")
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
    from ..api.results import plot_scores
    from ..scoring.intervals import Settings

    settings = Settings(resamples=resamples, seed=seed)
    made = plot_scores(out, *systems, results=results, collection=collection, measure=measure, settings=settings)
    _tell(made, out, as_json)


@command.command()
@_shared
@systems_option
@click.option("--resamples", default=10_000, show_default=True, type=Whole(min=100), help="Of the bootstrap.")
@click.option("--seed", default=0, show_default=True, type=Whole(min=0), help="Of the random numbers.")
def ranks(
    out: Path,
    collection: str,
    measure: str,
    results: Path,
    as_json: bool,
    systems: tuple[str, ...],
    resamples: int,
    seed: int,
) -> None:
    """The rank of every system with its interval, its letters and the chance to be the best."""
    from ..api.results import plot_ranks
    from ..scoring.intervals import Settings

    settings = Settings(resamples=resamples, seed=seed)
    made = plot_ranks(out, *systems, results=results, collection=collection, measure=measure, settings=settings)
    _tell(made, out, as_json)


@command.command()
@_shared
@systems_option
@click.option("--x", "axis", type=click.Choice(["seconds", "cost"]), default="seconds", show_default=True)
@click.option("--warm", is_flag=True, help="Seconds of the run itself, in which what was stored took no time.")
def pareto(
    out: Path, collection: str, measure: str, results: Path, as_json: bool, systems: tuple[str, ...], axis: Axis,
    warm: bool,
) -> None:  # fmt: skip
    """Score against seconds or dollars per query, with the Pareto line; seconds as if nothing had been stored."""
    from ..api.results import plot_pareto

    made = plot_pareto(out, *systems, results=results, collection=collection, measure=measure, axis=axis, warm=warm)
    _tell(made, out, as_json)


@command.command()
@click.argument("first")
@click.argument("second")
@_shared
def scatter(first: str, second: str, out: Path, collection: str, measure: str, results: Path, as_json: bool) -> None:
    """Two systems, query by query: FIRST along x, SECOND along y."""
    from ..api.results import plot_scatter

    made = plot_scatter(out, first, second, results=results, collection=collection, measure=measure)
    _tell(made, out, as_json)


@command.command()
@_shared
@systems_option
@click.option("--side", type=click.Choice(["document", "query"]), default="document", show_default=True)
def truncation(
    out: Path, collection: str, measure: str, results: Path, as_json: bool, systems: tuple[str, ...], side: Side
) -> None:
    """Share of tokens that a model never read against its score, task by task."""
    from ..api.results import plot_truncation

    made = plot_truncation(out, *systems, results=results, collection=collection, measure=measure, side=side)
    _tell(made, out, as_json)


def _tell(made: Picture, out: Path, as_json: bool) -> None:
    canvas = made.canvas
    if as_json:
        emit({"file": str(out), "title": canvas.title, "width": canvas.width, "height": canvas.height})
    else:
        note(f"Written: {out}")
    for line in made.notes:
        note(line)
