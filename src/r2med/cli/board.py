"""`r2med board`: the static site of a public leaderboard."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .common import Commands, json_option
from .output import emit, note, progress, say


@click.group("board", cls=Commands)
def command() -> None:
    """Write the static site of a public leaderboard from bundles."""


@command.command("build")
@click.argument("bundles", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="The folder to write.")
@click.option("--title", default="Leaderboard", show_default=True, help="What the board is called.")
@click.option("--url", default="", help="Where the site will lie; the feed names it.")
@click.option(
    "--tasks", "folders", multiple=True, type=click.Path(exists=True, path_type=Path),
    help="A folder or zip of tasks to look for judgments in, besides those that are known here; repeatable.",
)  # fmt: skip
@click.option("--own-texts", is_flag=True, help="Show texts of tasks that are not R2MED's, Nano's or Mini's, too.")
@click.option(
    "--workers", type=click.IntRange(min=1), metavar="N", help="Processes that check bundles.  [default: one a core]"
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
            workers=workers or available_cores(),
        )  # fmt: skip
    if as_json:
        emit(written)
    else:
        say(out)
        for line in written.left_out:
            note(line)
        counts = f"{written.submissions} submissions, {written.verified} of them verified, {written.systems} systems"
        note(f"{counts}, {written.pages} pages")
    if written.false:
        sys.exit(1)
