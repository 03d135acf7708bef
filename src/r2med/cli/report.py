"""`r2med report`: all pages as one file."""

from __future__ import annotations

from pathlib import Path

import click

from .common import json_option
from .output import emit, note, say
from .view import FOLDER, TASKS, open_site


@click.command("report")
@click.argument("results", nargs=-1, type=FOLDER)
@click.option("--html", "target", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The file.")
@click.option(
    "--max-size", default=24.0, show_default=True, type=click.FloatRange(min=0.5), metavar="MB",
    help="How large it may become; queries beyond that are left out, and it says so.",
)  # fmt: skip
@TASKS
@json_option
def command(results: tuple[Path, ...], target: Path, max_size: float, folders: tuple[Path, ...], as_json: bool) -> None:
    """Write what `r2med view` shows as one HTML file that needs no network and can be mailed."""
    from ..report.web.single_file import write_report

    site = open_site(results, folders)
    written = write_report(site, target, most=int(max_size * 1_000_000))
    if as_json:
        emit(written)
        return
    say(target)
    for line in (*site.problems(), *written.left_out):
        note(line)
