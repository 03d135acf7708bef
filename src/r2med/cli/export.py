"""`r2med export`: things for other tools."""

from __future__ import annotations

from pathlib import Path

import click

from .common import emit, json_option, note
from .export_hub import hub
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
    from ..api import resolve_tasks
    from ..pipeline.training import evaluation_refs, export_training
    from ..pipeline.training import protect as keep_out
    from ..pipeline.training_negatives import MiningSettings
    from ..retrieve import get_retriever
    from ..tasks import load

    task = load(source)
    guarded = {ref.full_name: ref for ref in (*evaluation_refs(), *(resolve_tasks(protect) if protect else ()))}
    with progress() as bar:
        bar.show("reading evaluation tasks")
        report = export_training(
            task,
            out,
            [get_retriever(name) for name in retrievers],
            keep_out(guarded.values()),
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


for exporter in (mteb, trec, beir, hub, ledger):
    command.add_command(exporter)
