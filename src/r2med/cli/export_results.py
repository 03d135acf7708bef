"""`r2med export mteb`, `trec`, `beir` and `ledger`: results and tasks in the files of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import emit, json_option, note
from .output import say

if TYPE_CHECKING:
    from ..integrations.exporting import Exported

out_option = click.option(
    "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="A new folder."
)
systems_option = click.option(
    "--system", "-s", "systems", multiple=True, metavar="NAME", help="Only this system; repeatable."
)


@click.command("mteb")
@click.argument("results", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="A folder, new or not.")
@systems_option
@click.option("--model", default="", metavar="ORG/NAME", help="Name a single system as MTEB should.")
@click.option("--revision", default="", metavar="REVISION", help="And its revision.")
@json_option
def mteb(results: Path, out: Path, systems: tuple[str, ...], model: str, revision: str, as_json: bool) -> None:
    """Results in MTEB's layout and keys, which its own loaders read.

    R2MED's tasks go under MTEB's names (R2MEDBiologyRetrieval), those of Mini and Nano under names of their own.
    """
    from ..integrations.mteb_results import export_mteb
    from ..results import ResultIndex

    chosen = [stored.result for stored in ResultIndex([results]).select(systems)]
    written = export_mteb(chosen, out, model=model, revision=revision)
    if as_json:
        emit({"schema": 1, "folder": str(out), "results": [w._asdict() for w in written]})
        return
    for one in written:
        note(f"{one.system} on {one.task} → {one.path}")
    say(f"{_results_of(len(written), len({w.model for w in written}))} in {out}/results/")


@click.command("ledger")
@click.argument("folder", metavar="MTEB_FOLDER", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="A ledger file (.toml).")
@click.option("--source", default="mteb-import", show_default=True, metavar="ID", help="What the source is called.")
@click.option("--title", default="MTEB results", show_default=True, help="What people read.")
@click.option("--url", default="", help="Where the results come from.")
@click.option("--date", default="", metavar="YYYY-MM", help="When they were read.")
@json_option
def ledger(folder: Path, out: Path, source: str, title: str, url: str, date: str, as_json: bool) -> None:
    """A ledger file from MTEB's result folders.

    It holds MTEB's figures on tasks of R2MED, for `r2med reproduce --ledger FILE`.
    """
    from ..core.atomic import write_bytes
    from ..integrations.mteb_ledger import ledger_text, read_mteb

    found = read_mteb(folder)
    write_bytes(out, ledger_text(found, source=source, title=title, url=url, date=date).encode())
    models = sorted({one.model for one in found})
    if as_json:
        emit({"schema": 1, "path": str(out), "results": len(found), "models": models})
    else:
        say(f"{_results_of(len(found), len(models))} in {out}")


@click.command("trec")
@click.argument("source", metavar="RESULTS|TASK")
@out_option
@systems_option
@json_option
def trec(source: str, out: Path, systems: tuple[str, ...], as_json: bool) -> None:
    """TREC files: runs of results, judgments and topics of tasks.

    With runs come the judgments of every task that is on this machine and unchanged.
    """
    from ..integrations.exporting import export_trec

    _say(export_trec(source, out, systems=systems), out, as_json)


@click.command("beir")
@click.argument("source", metavar="RESULTS|TASK")
@out_option
@systems_option
@json_option
def beir(source: str, out: Path, systems: tuple[str, ...], as_json: bool) -> None:
    """BEIR's files: a folder for a task, JSON for the runs of results.

    The JSON is what BEIR's evaluation takes: `{query: {document: score}}`.
    """
    from ..integrations.exporting import export_beir

    _say(export_beir(source, out, systems=systems), out, as_json)


def _results_of(results: int, models: int) -> str:
    return f"{results} result{'s' * (results != 1)} of {models} model{'s' * (models != 1)}"


def _say(written: list[Exported], out: Path, as_json: bool) -> None:
    if as_json:
        emit({"schema": 1, "folder": str(out), "files": [w._asdict() for w in written]})
        return
    for one in written:
        note(f"{one.of} → {one.path}")
    say(f"{len(written)} {'file' if len(written) == 1 else 'files'} in {out}/")
