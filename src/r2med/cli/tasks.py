"""`r2med tasks`: what there is."""

from __future__ import annotations

import click

from .common import emit, json_option, note, print_table


@click.command("tasks")
@click.argument("collection", required=False)
@json_option
def command(collection: str | None, as_json: bool) -> None:
    """List the tasks: what there is and what is on this machine."""
    from ..tasks import collections, find_tasks
    from ..tasks.places import locate, size_on_disk

    entries = find_tasks(collection) if collection else [e for c in collections().values() for e in c.tasks]
    rows = []
    for entry in entries:
        path = locate(entry)
        rows.append(
            {
                "name": entry.name,
                "collection": entry.collection,
                "family": entry.family,
                "queries": entry.queries,
                "documents": entry.documents,
                "judgments": entry.judgments,
                "revision": entry.revision,
                "available": path is not None,
                "path": str(path) if path else None,
                "bytes": size_on_disk(path) if path else None,
            }
        )
    if as_json:
        emit(rows)
        return
    print_table(
        ["Task", "Family", "Queries", "Documents", "Judgments", "Here"],
        [
            [f"{r['collection']}/{r['name']}", str(r["family"]), f"{r['queries']:,}", f"{r['documents']:,}",
             f"{r['judgments']:,}", _size(r["bytes"])]
            for r in rows
        ],
        left=2,
    )  # fmt: skip
    if any(not r["available"] for r in rows):
        note("Get the others with r2med data download NAME; a folder of your own works wherever a task's name does.")


def _size(size: object) -> str:
    return f"{size / 1e6:.1f} MB" if isinstance(size, int) else "–"
