"""`r2med tasks`: what there is."""

from __future__ import annotations

import click

from .common import emit, json_option, note, print_table


@click.command("tasks")
@click.argument("collection", default="")
@json_option
def command(collection: str, as_json: bool) -> None:
    """List the tasks: what there is and what is on this machine."""
    from ..tasks import list_tasks

    found = list_tasks(collection)
    if as_json:
        emit([task._asdict() for task in found])
        return
    print_table(
        ["Task", "Family", "Queries", "Documents", "Judgments", "Here"],
        [
            [f"{t.collection}/{t.name}", t.family, f"{t.queries:,}", f"{t.documents:,}", f"{t.judgments:,}",
             "–" if t.bytes is None else f"{t.bytes / 1e6:.1f} MB"]
            for t in found
        ],
        left=2,
    )  # fmt: skip
    if not all(task.available for task in found):
        note("Get the others with r2med data download NAME; a folder of your own works wherever a task's name does.")
