"""`r2med tasks`: what there is; `r2med data`: the files behind it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from .common import (
    Commands,
    Number,
    Whole,
    emit,
    json_option,
    note,
    options_from,
    pickle_option,
    print_table,
    progress,
    say,
    show,
    tasks_option,
)

if TYPE_CHECKING:
    from ..pipeline.artefact_report import ArtefactReport


@click.command("tasks")
@click.argument("collection", default="")
@json_option
def tasks(collection: str, as_json: bool) -> None:
    """List the tasks: what there is and what is on this machine."""
    from ..api import data as api
    from ..core.options import show_size

    found = api.list_tasks(collection)
    if as_json:
        emit([task._asdict() for task in found])
        return
    print_table(
        ["Task", "Family", "Queries", "Docs", "Judgments", "Here"],
        [
            [f"{t.collection}/{t.name}", t.family or "–", f"{t.queries:,}", f"{t.documents:,}", f"{t.judgments:,}",
             "–" if t.bytes is None else show_size(t.bytes)]
            for t in found
        ],
        left=2,
    )  # fmt: skip
    if not all(task.available or task.own for task in found):
        note("Get the others with r2med data download NAME; a folder of your own works wherever a task's name does.")
    for task in found:
        if task.own and not task.available:
            note(f"{task.collection}/{task.name}: {task.path} is not there any more")


@click.group("data", cls=Commands)
def data() -> None:
    """Download, add, validate, measure and convert tasks."""


@data.command("add")
@click.argument("name")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...")
@json_option
def add(name: str, folders: tuple[str, ...], as_json: bool) -> None:
    """Make folders a collection of your own, called NAME, that works wherever r2med's own collections do.

    FOLDER may be a zip, a folder of task folders, FOLDER@dev for the judgments of a split, or TASK=FOLDER to give its
    task another name than the folder's. Tasks that NAME has already stay; a folder given again is read anew. The
    texts stay where they are: R2MED_HOME keeps the places and a fingerprint of each.
    """
    from ..api import data as api

    added = api.add_collection(name, *folders)
    if as_json:
        emit([{"collection": one.collection, "state": one.state, "task": one.task} for one in added])
        return
    for one in added:
        task = one.task
        counts = f"{task.queries:,} queries, {task.documents:,} documents, {task.judgments:,} judgments"
        say(f"{one.collection}/{task.name}: {one.state}, {counts}, fingerprint {task.fingerprint}")
        if one.state == "changed":
            note(f"{one.collection}/{task.name} holds other data than before: results on it have to be run again")


@data.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_option
def remove(names: tuple[str, ...], as_json: bool) -> None:
    """Forget collections of your own (NAME), or single tasks of them (NAME/TASK); folders and results stay."""
    from ..api import data as api

    removed = api.remove_collection(*names)
    if as_json:
        emit({"removed": removed})
        return
    for full_name in removed:
        say(f"{full_name}: removed")
    note("Folders and results are left as they are.")


@data.command("download")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--force", is_flag=True, help="Fetch again what is there.")
@json_option
def download(names: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Get tasks from the Hugging Face hub: pinned revisions, resumed, hashes and counts checked.

    NAME is a collection (nano, r2med) or a task (r2med/MedQA-Diag). HF_HOME, HF_ENDPOINT, HF_TOKEN and
    HF_HUB_OFFLINE work as in huggingface_hub.
    """
    from ..api import data as api

    with progress() as bar:
        done = api.download(*names, force=force, notify=bar.step)
    failed = [one for one in done if one.error]
    if as_json:
        emit([d._asdict() for d in done])
    else:
        for one in done:
            verb = "fetched" if one.fetched else "already here"
            note(one.error or f"{one.task}: {verb}, {one.documents:,} documents, counts as published")
    if failed:
        listed = ", ".join(one.task for one in failed)
        note(f"{len(failed)} of {len(done)} tasks could not be fetched: {listed}; the same command tries them again")
        sys.exit(1)


@data.command("validate")
@click.argument("paths", nargs=-1, metavar="NAME|FOLDER...")
@tasks_option(default=())
@json_option
def validate(paths: tuple[str, ...], specs: tuple[str, ...], as_json: bool) -> None:
    """Check tasks for errors; exits with 1 where there are any."""
    from ..api import data as api
    from ..tasks.validate import lines

    reports = api.validate(*paths, *specs)
    if as_json:
        emit({"ok": all(r.ok for r in reports), "tasks": reports})
    else:
        for report in reports:
            say("\n".join(lines(report)), lines=True)
    if not all(r.ok for r in reports):
        sys.exit(1)


@data.command("stats")
@click.argument("paths", nargs=-1, metavar="NAME|FOLDER...")
@tasks_option(default=())
@json_option
def stats(paths: tuple[str, ...], specs: tuple[str, ...], as_json: bool) -> None:
    """The figures people quote about a task."""
    from ..api import data as api

    measured = api.stats(*paths, *specs)
    if as_json:
        emit(measured)
        return
    print_table(
        ["Task", "#Q", "#D", "Pos.", "min/med/max", ">1 pos.", "D used", "Q words", "D words", "Q chars", "D chars"],
        [
            [s.task, f"{s.queries:,}", f"{s.documents:,}", f"{s.positives_mean:.1f}",
             f"{s.positives_min}/{s.positives_median:g}/{s.positives_max}", f"{100 * s.multi_positive_share:.0f} %",
             f"{100 * s.relevant_documents / s.documents:.0f} %",
             f"{s.query_words_mean:.1f}", f"{s.document_words_mean:.1f}",
             f"{s.query_chars_mean:.0f}", f"{s.document_chars_mean:.0f}"]
            for s in measured
        ],
        caption="Pos.: mean positives a query; D used: documents that are relevant to some query; "
        "words are separated by white space.",
    )  # fmt: skip


class FormatOption(click.Option):
    """An option whose help names every layout there is; they are looked up when somebody asks for help."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from ..tasks.formats import layouts

        self.help = f"One of {', '.join(layouts())}."
        return super().get_help_record(ctx)


@data.command("convert")
@click.argument("source", metavar="NAME|FOLDER")
@click.argument("destination", type=click.Path(path_type=Path))
@click.option("--to", "layout", required=True, metavar="FORMAT", cls=FormatOption)
@click.option("--compress", type=click.Choice(["none", "gz", "zst"]), default="none", help="Compress JSON lines.")
@json_option
def convert(source: str, destination: Path, layout: str, compress: Literal["none", "gz", "zst"], as_json: bool) -> None:
    """Write a task in another layout; ids and texts survive byte for byte."""
    from ..api import data as api

    written = api.convert(source, destination, to=layout, compress=compress)
    if as_json:
        emit([w._asdict() for w in written])
    else:
        for one in written:
            note(f"{one.task} → {one.path} ({layout}), fingerprint {one.fingerprint}")
            if lost := one.expansions_left_out:
                note(f"{one.task}: {layout} has no place for generated texts ({lost} of them left out)")


def _show_artefacts(report: ArtefactReport) -> None:
    from ..pipeline.artefact_report import CALIBRATION_LEGEND, LEGEND

    for table in report.tables():
        say()
        show(table)
    for line in ("", *LEGEND, *(CALIBRATION_LEGEND if report.calibration else ())):
        say(line)


@data.command("audit")
@click.argument("paths", nargs=-1, required=True, metavar="NAME|FOLDER...")
@click.option(
    "--against", multiple=True, type=click.Path(path_type=Path),
    help="Training data: JSON lines, tab-separated or plain text, or a task's folder; repeatable.",
)  # fmt: skip
@click.option(
    "--few-shot", multiple=True, type=click.Path(path_type=Path), help="Examples used in prompts; repeatable."
)
@click.option(
    "--retriever", "-r", "retrievers", multiple=True, metavar="NAME", help="Systems to score. Default: bm25-lucene."
)
@click.option("--run", "runs", multiple=True, type=click.Path(path_type=Path), help="A TREC run to score; repeatable.")
@click.option("--threshold", default=0.8, show_default=True, type=Number(0.5, 1), help="What is a near copy.")
@click.option("--width", default=5, show_default=True, type=Whole(2, 20), help="Words in a compared run.")
@click.option("--artefacts", is_flag=True, help="Also: can documents be told relevant without the query?")
@click.option("--seed", type=Whole(min=0), help="Of --artefacts.  [default: 0]")
@pickle_option
@json_option
def audit(
    paths: tuple[str, ...], against: tuple[Path, ...], few_shot: tuple[Path, ...], retrievers: tuple[str, ...],
    runs: tuple[Path, ...], threshold: float, width: int, artefacts: bool, seed: int | None, allow_pickle: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Look for leaks and copies: flagged queries with evidence, and scores with and without them."""
    from ..api import data as api
    from ..core.table import points

    if seed is not None and not artefacts:
        raise click.UsageError("--seed belongs to --artefacts: nothing else is drawn")
    scored = api.audit(
        *paths, against=against, few_shot=few_shot, retrievers=retrievers, runs=runs, threshold=threshold, width=width,
        artefacts=artefacts, seed=seed or 0, options=options_from({"allow_pickle": allow_pickle}),
    )  # fmt: skip
    if as_json:
        emit(scored.document())
        return
    for found, scores in zip(scored.report.tasks, scored.scores, strict=True):
        for line in found.lines():
            say(line)
        rows = [
            [s.system, name, str(part.queries), points(None if part.measures is None else part.measures["ndcg_at_10"])]
            for s in scores
            for name, part in {"all queries": s.all, **{f"without {k}": v for k, v in s.without.items()}}.items()
        ]
        print_table(["System", "Scored on", "Queries", "nDCG@10"], rows, caption="nDCG@10 × 100.", left=2)
    for pair in scored.report.across:
        say(
            f"{pair.tasks[0]} and {pair.tasks[1]} share {pair.documents_exact + pair.documents_near:,} documents "
            f"({pair.documents_exact:,} word for word) and {pair.queries} queries"
        )
    if scored.artefacts:
        _show_artefacts(scored.artefacts)
    note("Every flag with its evidence: --json")
