"""`r2med quickstart`, `reproduce` and `protocol`: our scores beside published ones, and the settings behind those."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from .common import Commands, Number, emit, json_option, note, options_from, pickle_option, print_table, progress, say

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
def quickstart(
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
    from ..core.options import show_size
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
@click.option("--tolerance", type=Number(min=0), help="Points of 100 that still match; else the source's own.")
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
def reproduce(
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


@click.group("protocol", cls=Commands, invoke_without_command=True)
@json_option
@click.pass_context
def protocol(context: click.Context, as_json: bool) -> None:
    """List the protocols: named sets of the settings that change scores."""
    if context.invoked_subcommand is not None:
        return
    from ..api.machine import list_protocols

    rows = list_protocols()
    if as_json:
        emit(rows)
        return
    lines = [[row["name"], row["fingerprint"][:8], row["pack"] or "–", row["summary"]] for row in rows]
    print_table(["Protocol", "Settings", "Prompt pack", "What it is"], lines, left=4)


@protocol.command("show")
@click.argument("name", metavar="NAME|FILE")
@json_option
def show_command(name: str, as_json: bool) -> None:
    """Print all that a protocol sets, and whether its instructions are on this machine."""
    from ..api.machine import describe_protocol

    found = describe_protocol(name)
    if as_json:
        emit(found)
        return
    rows = [[key, value] for key, value in _flat("", found)]
    print_table(["Setting", "Value"], rows, left=2)


@protocol.command("fetch")
@click.argument("name", metavar="NAME|FILE")
@click.option(
    "--from",
    "folder",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A clone of the repository, or a folder with its files, instead of the network.",
)
@json_option
def fetch_command(name: str, folder: Path | None, as_json: bool) -> None:
    """Read a protocol's instructions and prompts from their repository into R2MED_HOME.

    The files are those of one commit, compared with known hashes, and read as data: nothing of them is run.
    """
    from ..api.machine import fetch_protocol

    done = fetch_protocol(name, folder)
    if as_json:
        emit(done)
        return
    if not done.tasks:  # a prompt for whatever task
        method = next(iter(done.methods))
        note(f"{done.protocol}: the prompt of {method}, commit {done.commit[:7]}, in {done.path}")
        note(f"use it as --rerank {method}:LLM,prompt={done.path}")
        return
    rows = [
        [task, str(len(held["query"])), str(len(held["document"])), ", ".join(held["prompts"]) or "–"]
        for task, held in done.tasks.items()
    ]
    print_table(["Task", "Query instructions", "Document instructions", "Prompts"], rows, left=1)
    note(
        f"{done.protocol}: {len(done.models)} models, {len(done.tasks)} tasks, commit {done.commit[:7]}, in {done.path}"
    )


def _flat(prefix: str, table: dict[str, object]) -> list[tuple[str, str]]:
    """Nested settings as `a.b.c` and a value."""
    found: list[tuple[str, str]] = []
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found += _flat(f"{name}.", value)
        else:
            found.append((name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)))
    return found
