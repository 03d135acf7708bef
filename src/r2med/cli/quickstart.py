"""`r2med quickstart`: from nothing to the published row beside ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from .common import json_option, options_from, pickle_option
from .output import emit, note, print_table, progress, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..pipeline.quickstart import Beside, Quickstart

WORDS = {"matches": "matches", "drifts": "drifts", "protocol differs": "differs"}
"""Verdicts of `r2med reproduce`, short enough for a column."""

CAPTION = (
    "nDCG@10 × 100. Verdicts: matches (within the tolerance), drifts (the same settings give other scores), "
    "differs (other settings than those published)."
)


@click.command("quickstart")
@click.argument("collection", type=click.Choice(["r2med", "nano"]), default="r2med")
@click.option(
    "--dense", default="auto", show_default=True, metavar="NAME",
    help="The dense model: a name, none, or auto for the best published one that fits the GPU here; without a GPU the "
         "embedded one.",
)  # fmt: skip
@click.option("--gpu-memory", metavar="SIZE", help="Of your GPU, such as 24GB.  [default: what its driver says]")
@click.option("--device", help="cpu, cuda, cuda:1 …; default: every GPU there is, else the CPU.")
@click.option(
    "--results", default="results", show_default=True, type=click.Path(file_okay=False, path_type=Path),
    help="Where results are written and looked for.",
)  # fmt: skip
@click.option("--plan", "--dry-run", "dry_run", is_flag=True, help="Check and say what would be done; do nothing.")
@pickle_option
@json_option
def command(
    collection: Literal["r2med", "nano"], dense: str, gpu_memory: str | None, device: str | None, results: Path,
    dry_run: bool, allow_pickle: bool, as_json: bool,
) -> None:  # fmt: skip
    """Check this machine, download R2MED (or NanoR2MED), run BM25 and a dense model, and show the published scores.

    Extras, disk and network are checked first, and where something is missing the one command is named that gets it.
    A task that cannot be downloaded is left out. The same command goes on where an earlier one ended.
    """
    from ..api.machine import quickstart

    def looked(found: Quickstart) -> None:
        if not (as_json or dry_run):
            _print_plan(found, note)

    with progress() as bar:
        options = options_from({"device": device, "allow_pickle": allow_pickle}, bar)
        found = quickstart(
            collection, dense=dense, gpu_memory=gpu_memory, results=results, dry_run=dry_run, options=options,
            looked=looked, notify=bar.step,
        )  # fmt: skip
    if as_json:
        emit(found)
    elif dry_run:
        _print_plan(found, say)
    elif found.ready:
        _print_outcome(found)
    if not (as_json or found.ready):
        first = next(check for check in found.checks if not check.ok)
        note(f"r2med: nothing was begun: the check of {first.name} failed; type this, then the same command again:")
        note(f"  {first.command}", whole=True)
    if not found.ok:
        sys.exit(1)


def _print_outcome(found: Quickstart) -> None:
    """What could not be had, what was measured, and what to type next."""
    for one in found.downloads:
        if one.error:
            note(one.error)
    failed = [one.task for one in found.downloads if one.error]
    if failed:
        note(f"{len(failed)} of {len(found.downloads)} tasks are left out: {', '.join(failed)}")
        note("the same command tries them again")
    if found.systems:
        _print_rows(found.systems)
    if found.problem and found.dense is not None:
        note(f"{found.dense.name} was not run: {found.problem}")
    if found.next:
        say("Next:")
    for line in found.next:
        say(f"  {line}", whole=True)


def _print_plan(found: Quickstart, tell: Callable[[str], None]) -> None:
    """The checks and what is to be done, before any of it is."""
    from ..core.parameters import show_size
    from ..core.table import counted

    for check in found.checks:
        tell(f"{'ok     ' if check.ok else 'MISSING'}  {check.name}: {check.detail}")
    tasks = f"{counted(len(found.to_download), 'task')} of {found.collection}, about {show_size(found.download_bytes)}"
    tell(f"Download: {tasks if found.to_download else 'nothing, all tasks are here'}")
    tell("Run: bm25")
    if found.dense is None:
        return
    dense = found.dense
    how = "weights are here" if dense.fetched else f"about {show_size(dense.weights_bytes)} of weights are downloaded"
    tell(f"Run: {dense.name}, {dense.why}; {how}")
    if dense.index_seconds is not None:
        took = f"about {_duration(dense.index_seconds)} to encode all documents, once, on {dense.on}"
        tell(f"  {took}; --dense none leaves it out")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _print_rows(rows: list[Beside]) -> None:
    """Published and measured, one below the other, with a verdict on each task."""
    from ..core.table import points
    from ..report.scores import short_name

    tasks = list(dict.fromkeys(task for row in rows for task in (*row.published, *row.measured)))
    table = []
    for row in rows:
        both = [("published", row.published)] if row.published else []
        for what, scores in (*both, ("here", row.measured)):
            mean = sum(scores.values()) / len(tasks) if len(scores) == len(tasks) else None
            table.append([f"{row.name}, {what}", *(points(scores.get(task)) for task in tasks), points(mean)])
        if row.verdicts:
            said = [WORDS.get(row.verdicts.get(task, ""), "–") for task in tasks]
            table.append([f"{row.name}, verdict", *said, ""])
    print_table(["System", *map(short_name, tasks), "Macro"], table, caption=CAPTION)
    for row in rows:
        if not row.published:
            note(f"{row.name}: nobody published a row of it here")
            continue
        allowed = "" if row.tolerance is None else f", within {row.tolerance:g} points"
        note(f"{row.name}: published by {row.source} under protocol {row.protocol}{allowed}")
        for reason in row.notes:
            note(f"  differs: {reason}")
