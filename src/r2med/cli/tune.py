"""`r2med tune`: the weights of a fusion, chosen on tasks that nothing is reported on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .common import json_option, options_from, pickle_option, tasks_option
from .output import emit, progress, say

if TYPE_CHECKING:
    from ..fuse import Normalisation


@click.command("tune")
@click.argument("retrievers", nargs=-1, required=True, metavar="RETRIEVER RETRIEVER…")
@tasks_option(default=("mini-dev",))
@click.option(
    "--norm", default="min-max", show_default=True, type=click.Choice(["min-max", "z-score", "rank"]),
    help="How scores are put on a common scale.",
)  # fmt: skip
@click.option(
    "--steps", default=10, show_default=True, type=click.IntRange(min=1), help="Steps of the grid of weights."
)
@pickle_option
@json_option
def command(
    retrievers: tuple[str, ...], specs: tuple[str, ...], norm: Normalisation, steps: int, allow_pickle: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Choose the weights of a fusion, and print it as a system that runs on any other task.

    Weights that were chosen on the queries of a score make that score too good: choose on mini-dev, report on mini.
    """
    from ..api import experiments

    with progress() as bar:
        found = experiments.tune(
            *retrievers, tasks=specs, norm=norm, steps=steps, options=options_from({"allow_pickle": allow_pickle}, bar)
        )
    system = f"{'+'.join(retrievers)}.{found.spec}"
    if as_json:
        emit({"schema": 1, "system": system, **found._asdict()})
        return
    say(
        f"{found.spec}: nDCG@10 × 100 is {100 * found.score:.2f} on {', '.join(specs)} ({found.queries} queries), "
        f"{100 * found.equal:.2f} with equal weights"
    )
    say(f"r2med run --system {system}", whole=True)
