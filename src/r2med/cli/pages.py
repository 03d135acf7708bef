"""`r2med pages`: task and group pages."""

from __future__ import annotations

from pathlib import Path

import click

from .common import json_option, resolve_all
from .output import emit, note, say
from .progress import progress


@click.command("pages")
@click.argument("paths", nargs=-1, required=True, metavar="NAME|FOLDER...")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Where pages go. Default: pages/ in a given folder."
)
@click.option(
    "--against",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Training data to look for leaks from; repeatable.",
)
@json_option
def command(paths: tuple[str, ...], out: Path | None, against: tuple[Path, ...], as_json: bool) -> None:
    """Write a page per task and one for the group, from data: figures, failures, leakage, examples.

    Meant for Nano folders, whose candidates are scored; another task gets BM25 candidates on the way.
    """
    from ..pipeline.audit import inspect
    from ..report.task_page import write_pages
    from ..tasks.audit.outside import read_outside

    refs = resolve_all(paths)
    first = Path(paths[0])
    folder = out or (first / "pages" if first.is_dir() else Path("pages"))
    outside = [read_outside(path) for path in against]
    looked_at = []
    with progress(len(refs)) as bar:
        for ref in refs:
            bar.show(ref.full_name)
            looked_at.append(inspect(ref, against=outside))
            bar.show(ref.full_name, advance=True)
    name = first.resolve().name if first.exists() else paths[0]
    written = write_pages(name, looked_at, folder)
    if as_json:
        emit({"folder": str(folder), "tasks": [p.split for p in looked_at], "files": [str(path) for path in written]})
        return
    for path in written:
        if path.suffix == ".md":
            say(path)
    note("The figures behind each page lie beside it as JSON.")
