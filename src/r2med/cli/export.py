"""`r2med export`: things for other tools."""

from __future__ import annotations

from pathlib import Path

import click

from .common import emit, json_option, note, resolve_all
from .export_results import beir, ledger, mteb, trec
from .progress import progress


@click.group("export")
def command() -> None:
    """Write results, tasks and training data for other tools."""


@command.command("training")
@click.argument("source", metavar="FOLDER")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="A new folder.")
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
@json_option
def training(
    source: str, out: Path, retrievers: tuple[str, ...], negatives: int, depth: int, skip: int,
    protect: tuple[str, ...], drop_overlap: bool, as_json: bool,
) -> None:  # fmt: skip
    """Training data with hard negatives: JSON lines with all positives, and rows for sentence-transformers.

    Refuses any overlap with evaluation queries or their positive passages, and audits what it writes.
    """
    from ..pipeline.training import MiningSettings, evaluation_refs, export_training, protected
    from ..retrieve import get_retriever
    from ..tasks import load

    with progress() as bar:
        bar.show("reading evaluation tasks")
        report = export_training(
            load(source),
            out,
            [get_retriever(name) for name in retrievers],
            protected([*evaluation_refs(), *resolve_all(protect)]),
            MiningSettings(negatives=negatives, depth=depth, skip=skip),
            drop_overlap=drop_overlap,
            notify=bar.show,
        )
    if as_json:
        emit(report)
        return
    click.echo(f"{report.examples:,} queries, {report.positives:,} positives, {report.negatives:,} negatives in {out}/")
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
    without --upload. The token is HF_TOKEN or the one `hf auth login` stored. HF_ENDPOINT and HF_HUB_OFFLINE mean what
    they always mean.
    """
    from ..integrations.hub import prepare, upload

    if private and not send:
        raise click.UsageError("--private goes with --upload: nothing is sent without it")
    target = out or folder.resolve().with_name(f"{folder.resolve().name}-hub")
    prepared = prepare(folder, repo, target, licence=licence)
    uploaded = upload(prepared, private=private) if send else None
    if as_json:
        facts = {"schema": 1, "repo": repo, "kind": prepared.kind, "folder": str(prepared.folder)}
        facts |= {"files": prepared.files, "bytes": prepared.size, "licence": prepared.licence}
        emit(facts | {"uploaded": uploaded._asdict() if uploaded else None})
        return
    for path, size in prepared.files.items():
        note(f"{size:>12,}  {path}")
    click.echo(f"{len(prepared.files)} files, {prepared.size:,} bytes in {prepared.folder}/")
    if uploaded:
        click.echo(f"uploaded to {uploaded.url} ({uploaded.commit[:12]})")
    else:
        note(f"nothing was uploaded; --upload sends this to {repo}")
        if not prepared.licence:
            note("the source data state no licence, or several: --upload will ask for --licence")


for exporter in (mteb, trec, beir, ledger):
    command.add_command(exporter)
