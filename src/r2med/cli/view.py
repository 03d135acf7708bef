"""`r2med view`: results in the browser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import json_option
from .output import emit, note, say

if TYPE_CHECKING:
    from ..report.web import Site

FOLDER = click.Path(file_okay=False, path_type=Path)
TASKS = click.option(
    "--tasks", "-t", "folders", multiple=True, metavar="FOLDER", type=click.Path(exists=True, path_type=Path),
    help="A folder of your own that results were made on, so that its texts can be shown; repeatable.",
)  # fmt: skip


@click.command("view")
@click.argument("results", nargs=-1, type=FOLDER)
@click.option("--port", type=click.IntRange(0, 65535), help="Default: 8642, or the next one that is free.")
@click.option("--host", default="", help="Listen on this address instead of loopback: others can then look, too.")
@click.option(
    "--allow-host", "allowed", multiple=True, metavar="NAME",
    help="A name of this machine that others use for it, where --host listens on every address; repeatable.",
)  # fmt: skip
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@TASKS
@json_option
def command(
    results: tuple[Path, ...], port: int | None, host: str, allowed: tuple[str, ...], no_open: bool,
    folders: tuple[Path, ...], as_json: bool,
) -> None:  # fmt: skip
    """Look at results in the browser: leaderboard, trade-offs, tasks, queries, comparisons, a run that is going.

    Without folders, `results`. The app reads these folders and the texts of tasks, and sends nothing anywhere.
    """
    from ..report.web.server import serve

    site = open_site(results, folders)

    def announce(where: str) -> None:
        if as_json:
            emit({"url": where, "results": [str(root) for root in site.index.roots]})
        else:
            say(where)
            note("Ctrl-C stops it.")

    serve(site, host=host, allowed=allowed, port=port, browser=not no_open, announce=announce)


def open_site(results: tuple[Path, ...], folders: tuple[Path, ...]) -> Site:
    """The results to look at; a folder that was named must be there."""
    from ..core import ResultError
    from ..report.web import Site

    for root in results:
        if not root.is_dir():
            raise ResultError(f"{root}: no such folder of results (r2med run makes one)")
    return Site(results or (Path("results"),), task_folders=folders, parameters=weights)


def weights(parts: Sequence[str]) -> int | None:
    """Weights of all models of a system, as their cards state them; None where one is not known. BM25 has none."""
    from ..core import R2MedError
    from ..models import get_card

    total = 0
    for name in parts:
        if name.startswith("bm25"):
            continue
        try:
            count = get_card(name).parameters
        except R2MedError:
            return None
        if count is None:
            return None
        total += count
    return total
