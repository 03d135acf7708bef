"""`r2med reproduce`: our scores against the published ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from .common import json_option, options_from, pickle_option
from .output import emit, note, print_table, progress

Collection = Literal["mini", "mini-dev", "mini@1", "nano", "r2med"]


@click.command("reproduce")
@click.option("--system", "-s", default="bm25", show_default=True, metavar="NAME", help="A system of the ledger.")
@click.option(
    "--collection",
    "-c",
    default="mini",
    show_default=True,
    type=click.Choice(["mini", "mini-dev", "mini@1", "nano", "r2med"]),
    help="What it is run on.",
)
@click.option("--task", "-t", "tasks", multiple=True, metavar="NAME", help="Only this task; repeatable.")
@click.option(
    "--protocol",
    "-p",
    default="",
    metavar="NAME",
    help="default, r2med-paper, mteb, nano-profile. Default: that of the collection's main figures.",
)
@click.option("--measure", default="nDCG@10", show_default=True, help="What is compared.")
@click.option(
    "--tolerance", type=click.FloatRange(min=0), help="Points of 100 that still match; else the source's own."
)
@click.option("--run/--no-run", "run", default=True, help="Run what has no stored result, or only read.")
@click.option("--ledger", "book", type=click.Path(path_type=Path), help="A ledger file of your own instead of ours.")
@click.option(
    "--results",
    default="results",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where results are written and looked for.",
)
@pickle_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, system: str, collection: Collection, tasks: tuple[str, ...], protocol: str, measure: str,
    tolerance: float | None, run: bool, book: Path | None, results: Path, allow_pickle: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run or read a system and compare it with what was published, task by task.

    Each task matches (within the tolerance), drifts, or its protocol differs, with the reason. The exit code is 0 only
    when every task matches.
    """
    import msgspec

    from ..api.results import reproduce
    from ..core.table import points
    from ..scoring import Measure

    with progress() as bar:

        def notify(name: str, task: str, what: str) -> None:
            bar.show(f"{task}: {name}", advance=what in ("done", "kept"))

        outcome = reproduce(
            system, collection=collection, tasks=tasks, protocol=protocol, measure=measure, tolerance=tolerance,
            run=run, ledger_file=book, results=results, notify=notify,
            options=options_from({"allow_pickle": allow_pickle}),
        )  # fmt: skip
    if as_json:
        emit(msgspec.to_builtins(outcome) | {"ok": outcome.ok})
    else:
        print_table(
            ["Task", "Verdict", "Published", "Here", "Difference"],
            [
                [t.task, t.verdict, points(t.published), points(t.measured), _difference(t.difference)]
                for t in outcome.tasks
            ],
            caption=f"{Measure.parse(measure)} × 100; {outcome.source} ({outcome.date}), protocol {outcome.protocol} "
            f"[{outcome.protocol_fingerprint[:8]}], tolerance {outcome.tolerance:g} points.",
            left=2,
        )  # fmt: skip
        for reason in dict.fromkeys(r for t in outcome.tasks for r in t.reasons):
            note(f"protocol differs: {reason}")
        for line in outcome.notes:
            note(line)
    for task in outcome.missing:
        note(f"{task}: no result")
    ctx.exit(0 if outcome.ok else 1)


def _difference(value: float) -> str:
    """A difference × 100; what rounds to nothing has no sign."""
    from ..core.table import points, signed

    return signed(value) if float(points(value)) else "0.00"
