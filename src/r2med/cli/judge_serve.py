"""`r2med judge serve`: judging in the browser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import json_option
from .output import emit, note, say

if TYPE_CHECKING:
    from ..judge.server import Judge


@click.command("serve")
@click.argument("project", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.option(
    "--judge", "judges", multiple=True, metavar="NAME", help="Who judges; repeatable. Default: your login name."
)
@click.option("--adjudicator", default="", metavar="NAME", help="Who decides where judges differ.")
@click.option("--port", type=click.IntRange(0, 65535), help="Default: 8642, or the next one that is free.")
@click.option("--host", default="", help="Listen on this address instead of loopback, for a team; needs --judge.")
@click.option(
    "--allow-host", "allowed", multiple=True, metavar="NAME",
    help="A name of this machine that others use for it, where --host listens on every address; repeatable.",
)  # fmt: skip
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@json_option
def serve(
    project: Path, judges: tuple[str, ...], adjudicator: str, port: int | None, host: str, allowed: tuple[str, ...],
    no_open: bool, as_json: bool,
) -> None:  # fmt: skip
    """Judge the passages of a project in the browser, or decide where judges differ.

    Prints an address for each judge. It holds a secret that lets in that judge alone, and changes with every start:
    give each judge only their own. Each judgment is on disk before the page says that it is saved.
    """
    from ..api.judging import judge_serve

    def announce(found: Sequence[Judge]) -> None:
        if as_json:
            emit({"project": str(project), "judges": [judge._asdict() for judge in found]})
            return
        for judge in found:
            if len(found) > 1:
                note(f"{judge.name} ({judge.kind}):")
            say(judge.url)
        note("Ctrl-C stops it.")

    judge_serve(
        project, judges=judges, adjudicator=adjudicator, port=port, host=host, allowed=allowed, browser=not no_open,
        announce=announce,
    )  # fmt: skip
