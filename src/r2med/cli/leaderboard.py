"""`r2med leaderboard`: our results and published figures."""

from __future__ import annotations

from pathlib import Path

import click

from .common import json_option
from .output import emit, note, show


@click.command("leaderboard")
@click.option(
    "--collection",
    "-c",
    type=click.Choice(["r2med", "nano", "mini", "own"]),
    help="own: tasks of your own. Default: r2med with --published, else the collection that has results.",
)
@click.option("--published", is_flag=True, help="Published figures only.")
@click.option("--measured", is_flag=True, help="Our own results only.")
@click.option(
    "--protocol",
    metavar="NAME",
    help="Published figures of one protocol (r2med-paper, mteb, as-stated …) or of all. Default: the collection's own.",
)
@click.option("--source", default="", metavar="ID", help="Published figures of one source.")
@click.option("--kind", default="", metavar="KIND", help="retriever, fused, reranker, expansion, lexical, dense …")
@click.option("--measure", default="nDCG@10", show_default=True, help="The measure in the table.")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="Show only the best.")
@click.option(
    "--results",
    default="results",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where results lie.",
)
@json_option
def command(
    collection: str | None, published: bool, measured: bool, protocol: str | None, source: str, kind: str,
    measure: str, limit: int | None, results: Path, as_json: bool,
) -> None:  # fmt: skip
    """Systems, best first: what others published beside what was measured here.

    A published figure is somebody else's number under somebody else's protocol; figures of different protocols are
    not comparable, so one protocol is shown unless --protocol all asks for more. Scores are × 100.
    """
    from ..report.leaderboard import as_json as document
    from ..report.leaderboard import board, board_table
    from ..scoring import Measure

    shown = Measure.parse(measure)
    found = board(
        results, collection=collection or "", published=published, measured=measured, protocol=protocol or "",
        source=source, kind=kind, measure=shown, default_folder=str(results) == "results",
    )  # fmt: skip
    rows = found.rows[:limit] if limit else found.rows
    if as_json:
        emit(document(rows))
    else:
        show(board_table(rows, found.tasks, shown))
    for line in found.notes:
        note(line)
