"""`r2med export`: things for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import Commands, emit, json_option, note, options_from, pickle_option, progress, say

if TYPE_CHECKING:
    from ..integrations.exporting import Exported

out_option = click.option(
    "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="A new folder."
)
systems_option = click.option(
    "--system", "-s", "systems", multiple=True, metavar="NAME", help="Only this system; repeatable."
)


@click.group("export", cls=Commands)
def command() -> None:
    """Write results, tasks and training data for other tools."""


@command.command("training")
@click.argument("source", metavar="FOLDER")
@out_option
@click.option(
    "--retriever", "-r", "retrievers", multiple=True, default=("bm25",), show_default=True, metavar="NAME",
    help="Where hard negatives are mined; repeatable.",
)  # fmt: skip
@click.option("--negatives", default=7, show_default=True, type=click.IntRange(min=1), help="Negatives a query.")
@click.option("--depth", default=100, show_default=True, type=click.IntRange(min=1), help="Ranks looked at.")
@click.option("--skip", default=0, show_default=True, type=click.IntRange(min=0), help="Ranks passed over at the top.")
@click.option(
    "--protect", multiple=True, metavar="NAME|FOLDER",
    help="Evaluation tasks to keep out, beside every catalogue task on this machine; repeatable.",
)  # fmt: skip
@click.option("--drop-overlap", is_flag=True, help="Leave out what overlaps an evaluation task instead of refusing.")
@pickle_option
@json_option
def training(
    source: str, out: Path, retrievers: tuple[str, ...], negatives: int, depth: int, skip: int,
    protect: tuple[str, ...], drop_overlap: bool, allow_pickle: bool, as_json: bool,
) -> None:  # fmt: skip
    """Training data with hard negatives: JSON lines with all positives, and rows for sentence-transformers.

    Refuses any overlap with evaluation queries or their positive passages, and audits what it writes.
    """
    from ..api.data import export_training

    with progress() as bar:
        report = export_training(
            source, out, retrievers=retrievers, negatives=negatives, depth=depth, skip=skip, protect=protect,
            drop_overlap=drop_overlap, notify=bar.show, options=options_from({"allow_pickle": allow_pickle}),
        )  # fmt: skip
    if as_json:
        emit(report)
        return
    say(f"{report.examples:,} queries, {report.positives:,} positives, {report.negatives:,} negatives in {out}/")
    if report.examples_without_all_negatives:
        note(f"{report.examples_without_all_negatives} queries have fewer than {negatives} negatives: JSON lines only")
    if report.overlap_dropped:
        note(f"left out as overlapping: {', '.join(f'{n} {kind}' for kind, n in report.overlap_dropped.items())}")
    note(f"audited against {len(report.protected)} evaluation tasks: no overlap")
    if report.not_compared:
        absent = ", ".join(dict.fromkeys(name.partition("/")[0] for name in report.not_compared))
        note(
            f"not compared with {len(report.not_compared)} tasks of {absent}: not on this machine (r2med data download)"
        )


@command.command("hub")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--repo", required=True, metavar="ORG/NAME", help="The dataset repository.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Default: FOLDER-hub.")
@click.option("--licence", default="", metavar="NAME", help="Terms of the source data, where they are not known.")
@click.option("--upload", "send", is_flag=True, help="Upload; without it nothing leaves this machine.")
@click.option("--private", is_flag=True, help="With --upload: make the repository private.")
@json_option
def hub(folder: Path, repo: str, out: Path | None, licence: str, send: bool, private: bool, as_json: bool) -> None:
    """A Nano dataset or results, ready for the Hugging Face hub.

    FOLDER is what `r2med nano build` or `r2med run` wrote. It is copied with a card; nothing leaves this machine
    without --upload. The token is HF_TOKEN or the one `hf auth login` stored. HF_ENDPOINT and HF_HUB_OFFLINE work as
    in huggingface_hub.
    """
    from ..api.publish import export_hub

    prepared, uploaded = export_hub(folder, repo, out=out, licence=licence, send=send, private=private)
    if as_json:
        facts = {"schema": 1, "repo": repo, "kind": prepared.kind, "folder": str(prepared.folder)}
        facts |= {"files": prepared.files, "bytes": prepared.size, "licence": prepared.licence}
        emit(facts | {"uploaded": uploaded._asdict() if uploaded else None})
        return
    for path, size in prepared.files.items():
        note(f"{size:>12,}  {path}")
    say(f"{len(prepared.files)} files, {prepared.size:,} bytes in {prepared.folder}/")
    if uploaded:
        say(f"uploaded to {uploaded.url} ({uploaded.commit[:12]})")
    else:
        note(f"nothing was uploaded; --upload sends this to {repo}")
        if not prepared.licence:
            note("the source data state no licence, or several: --upload will ask for --licence")


@command.command("mteb")
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
    from ..api.publish import export_mteb

    written = export_mteb(results, out, systems=systems, model=model, revision=revision)
    if as_json:
        emit({"schema": 1, "folder": str(out), "results": [w._asdict() for w in written]})
        return
    for one in written:
        note(f"{one.system} on {one.task} → {one.path}")
    say(f"{_results_of(len(written), len({w.model for w in written}))} in {out}/results/")


@command.command("ledger")
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
    from ..api.publish import export_ledger

    found = export_ledger(folder, out, source=source, title=title, url=url, date=date)
    models = sorted({one.model for one in found})
    if as_json:
        emit({"schema": 1, "path": str(out), "results": len(found), "models": models})
    else:
        say(f"{_results_of(len(found), len(models))} in {out}")


@command.command("trec")
@click.argument("source", metavar="RESULTS|TASK")
@out_option
@systems_option
@json_option
def trec(source: str, out: Path, systems: tuple[str, ...], as_json: bool) -> None:
    """TREC files: runs of results, judgments and topics of tasks.

    With runs come the judgments of every task that is on this machine and unchanged.
    """
    from ..api.publish import export_trec

    _say(export_trec(source, out, systems=systems), out, as_json)


@command.command("beir")
@click.argument("source", metavar="RESULTS|TASK")
@out_option
@systems_option
@json_option
def beir(source: str, out: Path, systems: tuple[str, ...], as_json: bool) -> None:
    """BEIR's files: a folder for a task, JSON for the runs of results.

    The JSON is what BEIR's evaluation takes: `{query: {document: score}}`.
    """
    from ..api.publish import export_beir

    _say(export_beir(source, out, systems=systems), out, as_json)


def _results_of(results: int, models: int) -> str:
    from ..core.table import counted

    return f"{counted(results, 'result')} of {counted(models, 'model')}"


def _say(written: list[Exported], out: Path, as_json: bool) -> None:
    from ..core.table import counted

    if as_json:
        emit({"schema": 1, "folder": str(out), "files": [w._asdict() for w in written]})
        return
    for one in written:
        note(f"{one.of} → {one.path}")
    folders = sum(Path(one.path).is_dir() for one in written)
    made = [counted(folders, "folder")] * bool(folders) + [counted(len(written) - folders, "file")] * (
        len(written) > folders
    )
    say(f"{' and '.join(made)} in {out}/")
