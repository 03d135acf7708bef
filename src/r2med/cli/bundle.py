"""`r2med bundle` and `r2med board`: results as one file that verifies itself, and a site of such files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..core.table import counted
from .common import Commands, emit, json_option, note, print_table, progress, say

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
RESULTS = click.option(
    "--results", type=click.Path(file_okay=False, path_type=Path), default=Path("results"), show_default=True,
    help="The results folder.",
)  # fmt: skip
TASKS = click.option(
    "--tasks", "folders", multiple=True, type=click.Path(exists=True, path_type=Path),
    help="A folder or zip of tasks to look for judgments in, besides those that are known here; repeatable.",
)  # fmt: skip
MOST_WORKERS = 8  # Unless more are asked for: each holds the judgments and some libraries.
STATUS = {"verified": "verified", "differs": "scores differ", "unverified": "cannot be verified"}


@click.group("bundle", cls=Commands)
def bundle() -> None:
    """Pack results as one file that verifies itself; check and add such files."""


@bundle.command("pack")
@click.argument("systems", nargs=-1, metavar="[SYSTEM]...")
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The file to write.")
@RESULTS
@click.option("--collection", default="", help="Only results on this collection.")
@click.option("--title", default="", help="What the submission is called.")
@click.option("--authors", default="", help="Who made it; nothing is filled in by itself.")
@click.option("--url", default="", help="A paper or a repository.")
@click.option("--note", "said", default="", help="A remark for readers.")
@click.option("--date", default="", metavar="YYYY-MM-DD", help="Its date. Default: that of its newest result.")
@click.option("--incomplete", is_flag=True, help="Pack also where answers of chat models are no longer kept.")
@json_option
def pack_command(
    systems: tuple[str, ...], out: Path, results: Path, collection: str, title: str, authors: str, url: str,
    said: str, date: str, incomplete: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write results, runs, per-query scores and used generations of systems, by default all, as one file.

    No texts of documents, no judgments, no keys and no paths of this machine are in it.
    """
    from ..api.bundles import pack_bundle

    packed = pack_bundle(
        out, *systems, results=results, collection=collection, title=title, authors=authors, url=url, note=said,
        date=date, incomplete=incomplete,
    )  # fmt: skip
    manifest = packed.manifest
    if as_json:
        facts = {"bundle": str(packed.path), "id": packed.id, "bytes": packed.path.stat().st_size}
        emit({**facts, "date": manifest.date, "systems": manifest.systems, "notes": packed.notes})
        return
    say(packed.path)
    results_in = sum(name.startswith("results/") and name.endswith(".json") for name in manifest.members)
    held = f"{counted(len(manifest.systems), 'system')}, {counted(results_in, 'result')}"
    note(f"{held}, {packed.path.stat().st_size:,} bytes, id {packed.id[:16]}")
    for line in packed.notes:
        note(line)


@bundle.command("check")
@click.argument("path", metavar="FILE", type=FILE)
@TASKS
@click.option("--strict", is_flag=True, help="Exit with 1 also where a result cannot be verified.")
@json_option
def check_command(path: Path, folders: tuple[Path, ...], strict: bool, as_json: bool) -> None:
    """Score every run of a bundle again and compare with what it states; exits with 1 where a score is not true."""
    from ..api.bundles import check_bundle

    with progress() as bar:
        bar.show("results scored again")
        checked = check_bundle(path, tasks=folders, on_progress=bar.within)
    if as_json:
        emit(checked)
    else:
        why = any(v.reason for v in checked.results)
        rows = [[v.system, v.task, STATUS[v.status], *([v.reason] if why else [])] for v in checked.results]
        print_table(["System", "Task", "Result", *(["Why"] if why else [])], rows, left=4)
        for system in checked.systems:
            if not system.replays:
                note(f"{system.name}: lacks answers of chat models, so it does not run again without a key")
        counts = f"{checked.verified} verified, {checked.differ} differ, {checked.unverified} cannot be verified"
        note(f"{counts}; times and costs are as stated")
    if checked.differ or (strict and checked.unverified):
        sys.exit(1)


@bundle.command("add")
@click.argument("path", metavar="FILE", type=FILE)
@RESULTS
@TASKS
@json_option
def add_command(path: Path, results: Path, folders: tuple[Path, ...], as_json: bool) -> None:
    """Put a bundle into a results folder, and its answers of chat models into the store here.

    It is checked first. Something different of the same name is not overwritten: then nothing is added.
    """
    from ..api.bundles import add_bundle

    with progress() as bar:
        bar.show("results scored again")
        added = add_bundle(path, results=results, tasks=folders, on_progress=bar.within)
    if as_json:
        emit(added._asdict())
        return
    for system, task in added.results:
        say(f"{system} on {task}")
    there = f", {len(added.there)} were there" if added.there else ""
    kept = ""
    if added.answers or added.answers_there:
        kept = f"; {added.answers:,} answers of chat models added, {added.answers_there:,} were there"
    note(f"{counted(len(added.results), 'result')} added to {results}{there}{kept}")


@click.group("board", cls=Commands)
def board() -> None:
    """Write the static site of a public leaderboard from bundles."""


@board.command("build")
@click.argument("bundles", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="The folder to write.")
@click.option("--title", default="Leaderboard", show_default=True, help="What the board is called.")
@click.option("--url", default="", help="Where the site will lie; the feed names it.")
@TASKS
@click.option("--own-texts", is_flag=True, help="Show texts of tasks that are not R2MED's, Nano's or Mini's, too.")
@click.option(
    "--workers", type=click.IntRange(min=1), metavar="N",
    help="Processes that check bundles.  [default: one a core, at most 8]",
)  # fmt: skip
@json_option
def build_command(
    bundles: tuple[Path, ...], out: Path, title: str, url: str, folders: tuple[Path, ...], own_texts: bool,
    workers: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Check bundles (files, or folders of them) and write the site that shows them.

    Exits with 1 where scores are not true: such results are left out, and the site is written without them.
    """
    from ..api.bundles import build_board
    from ..retrieve.sparse import available_cores

    with progress() as bar:
        bar.show("bundles checked")
        written = build_board(
            *bundles, out=out, title=title, url=url, tasks=folders, own_texts=own_texts, on_progress=bar.within,
            workers=workers or min(available_cores(), MOST_WORKERS),
        )  # fmt: skip
    if as_json:
        emit(written)
    else:
        say(out)
        for line in written.left_out:
            note(line)
        submissions = f"{counted(written.submissions, 'submission')}, {written.verified} of them verified"
        note(f"{submissions}, {counted(written.systems, 'system')}, {counted(written.pages, 'page')}")
    if written.false:
        sys.exit(1)
