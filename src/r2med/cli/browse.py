"""`r2med leaderboard`, `view`, `report` and `pages`: results and tasks, shown."""

from __future__ import annotations

from pathlib import Path

import click

from .common import Number, Whole, emit, json_option, latex_option, note, one_form, progress, say, show

CONFLICTS = 5
"""Differences between sources that the table explains below itself."""
FOLDER = click.Path(file_okay=False, path_type=Path)
TASKS = click.option(
    "--tasks", "-t", "folders", multiple=True, metavar="FOLDER", type=click.Path(exists=True, path_type=Path),
    help="A folder that results were made on and that was moved since, so that its texts can be shown; repeatable.",
)  # fmt: skip


@click.command("leaderboard")
@click.option(
    "--collection",
    "-c",
    default="",
    metavar="NAME",
    help="r2med, nano, mini, one of yours, or own: folders that are in none. Default: r2med with --published, else the "
    "one that has results.",
)
@click.option("--published", is_flag=True, help="Published figures only.")
@click.option("--measured", is_flag=True, help="Our own results only.")
@click.option(
    "--protocol",
    metavar="NAME",
    help="Published figures of one protocol (r2med-paper, mteb, as-stated …) or of all. Default: the collection's own.",
)
@click.option("--source", default="", metavar="ID", help="Published figures of one source.")
@click.option("--kind", default="", metavar="KIND", help="retriever, fused, reranker, expansion, lexical, dense …")
@click.option("--measure", default="nDCG@10", show_default=True, help="The measure in the table.")
@click.option("--limit", "-n", type=Whole(min=1), help="Show only the best.")
@click.option(
    "--results",
    default="results",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where results lie.",
)
@latex_option
@json_option
def leaderboard(
    collection: str, published: bool, measured: bool, protocol: str | None, source: str, kind: str,
    measure: str, limit: int | None, results: Path, latex: bool, as_json: bool,
) -> None:  # fmt: skip
    """Systems, best first: what others published beside what was measured here.

    A published figure is somebody else's number under somebody else's protocol; figures of different protocols are
    not comparable, so one protocol is shown unless --protocol all asks for more. Scores are × 100.
    """
    from ..api import results as api
    from ..core.table import counted
    from ..report.leaderboard import as_json as document
    from ..report.leaderboard import board_table, conflict_lines
    from ..scoring import Measure

    one_form(as_json=as_json, latex=latex)
    found = api.leaderboard(
        results, collection=collection, published=published, measured=measured, protocol=protocol or "",
        source=source, kind=kind, measure=measure,
    )  # fmt: skip
    rows = found.rows[:limit] if limit else found.rows
    if as_json:
        emit(document(rows))
    else:
        table = board_table(rows, found.tasks, Measure.parse(measure))
        if latex:
            say(table.latex(), lines=True)
        else:
            show(table)
        lines = conflict_lines(rows)
        for line in lines[:CONFLICTS]:
            note(f"≠ {line}")
        if len(lines) > CONFLICTS:
            more = counted(len(lines) - CONFLICTS, "more difference", "more differences")
            note(f"≠ {more} between sources: --json has them all, under conflicts")
    for line in found.notes:
        note(line)


@click.command("view")
@click.argument("results", nargs=-1, type=FOLDER)
@click.option("--port", type=Whole(0, 65535), help="Default: 8642, or the next one that is free.")
@click.option("--host", default="", help="Listen on this address instead of loopback: others can then look, too.")
@click.option(
    "--allow-host", "allowed", multiple=True, metavar="NAME",
    help="A name of this machine that others use for it, where --host listens on every address; repeatable.",
)  # fmt: skip
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@TASKS
@json_option
def view(
    results: tuple[Path, ...], port: int | None, host: str, allowed: tuple[str, ...], no_open: bool,
    folders: tuple[Path, ...], as_json: bool,
) -> None:  # fmt: skip
    """Look at results in the browser: leaderboard, trade-offs, tasks, queries, comparisons, a run that is going.

    Without folders, `results`. The app reads these folders and the texts of tasks, and sends nothing anywhere. On its
    page Try it, systems that run on this machine search for a query of your own, which is kept nowhere.
    """
    from ..api import publish as api

    def announce(where: str) -> None:
        if as_json:
            emit({"url": where, "results": [str(root) for root in results or (Path("results"),)]})
        else:
            say(where)
            note("Ctrl-C stops it.")

    api.view(*results, tasks=folders, port=port, host=host, allowed=allowed, browser=not no_open, announce=announce)


@click.command("report")
@click.argument("results", nargs=-1, type=FOLDER)
@click.option(
    "--html", "target", default="report.html", show_default=True, type=click.Path(dir_okay=False, path_type=Path),
    help="The file.",
)  # fmt: skip
@click.option(
    "--max-size", default=24.0, show_default=True, type=Number(min=0.5), metavar="MB",
    help="How large it may become; queries beyond that are left out, and it says so.",
)  # fmt: skip
@TASKS
@json_option
def report(results: tuple[Path, ...], target: Path, max_size: float, folders: tuple[Path, ...], as_json: bool) -> None:
    """Write what `r2med view` shows as one HTML file that needs no network and can be mailed."""
    from ..api.publish import write_report

    written = write_report(target, *results, tasks=folders, max_bytes=int(max_size * 1_000_000))
    if as_json:
        emit(written)
        return
    say(target)
    for line in written.left_out:
        note(line)


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
@click.option("--html", is_flag=True, help="Write linked HTML with pictures beside the Markdown.")
@json_option
def pages(paths: tuple[str, ...], out: Path | None, against: tuple[Path, ...], html: bool, as_json: bool) -> None:
    """Write a page per task and one for the group, from data: figures, failures, leakage, examples.

    Meant for Nano folders, whose candidates are scored; another task gets BM25 candidates on the way.
    """
    from ..api.data import write_pages

    with progress() as bar:
        made = write_pages(*paths, out=out, against=against, html=html, notify=bar.step)
    if as_json:
        files = [str(path) for path in made.files]
        emit({"folder": str(made.folder), "tasks": [page.split for page in made.tasks], "files": files})
        return
    for path in made.files:
        if path.suffix == (".html" if html else ".md"):
            say(path)
    note("The figures behind each page lie beside it as JSON.")
