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
        emit([task.facts() for task in found])
        return
    print_table(
        ["Task", "Family", "Queries", "Documents", "Judgments", "Here"],
        [
            [e.full_name, e.family, f"{e.queries:,}", f"{e.documents:,}", f"{e.judgments:,}",
             "–" if size is None else f"{size / 1e6:.1f} MB"]
            for e, _, size in found
        ],
        left=2,
    )  # fmt: skip
    if any(task.path is None for task in found):
        note("Get the others with r2med data download NAME; a folder of your own works wherever a task's name does.")
