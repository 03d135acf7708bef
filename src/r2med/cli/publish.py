"""What others get: `r2med export` for other tools, `r2med bundle` and `r2med board` for other people.

A bundle is one file of results that verifies itself, and a board is a site of such files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.table import counted
from .common import Commands, Whole, emit, json_option, note, options_from, pickle_option, print_table, progress, say

if TYPE_CHECKING:
    from ..integrations.exporting import Exported

out_option = click.option(
    "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="A new folder."
)
systems_option = click.option(
    "--system", "-s", "systems", multiple=True, metavar="NAME", help="Only this system; repeatable."
)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
RESULTS = click.option(
    "--results", type=click.Path(file_okay=False, path_type=Path), default=Path("results"), show_default=True,
    help="The results folder.",
)  # fmt: skip
TASKS = click.option(
    "--tasks", "folders", multiple=True, type=click.Path(exists=True, path_type=Path),
    help="A folder or zip of tasks to look for judgments in, besides those that are known here; repeatable.",
)  # fmt: skip
MOST_WORKERS = 8  # Unless more are asked for: each holds the judgments and some libraries.
STATUS = {"verified": "verified", "differs": "scores differ", "unverified": "cannot be verified"}


@click.group("export", cls=Commands)
def export() -> None:
    """Write results, tasks and training data for other tools."""


@export.command("training")
@click.argument("source", metavar="FOLDER")
@out_option
@click.option(
    "--retriever", "-r", "retrievers", multiple=True, default=("bm25",), show_default=True, metavar="NAME",
    help="Where hard negatives are mined; repeatable.",
)  # fmt: skip
@click.option("--negatives", default=7, show_default=True, type=Whole(min=1), help="Negatives a query.")
@click.option("--depth", default=100, show_default=True, type=Whole(min=1), help="Ranks looked at.")
@click.option("--skip", default=0, show_default=True, type=Whole(min=0), help="Ranks passed over at the top.")
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


@export.command("hub")
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


@export.command("mteb")
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


@export.command("ledger")
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


@export.command("trec")
@click.argument("source", metavar="RESULTS|TASK")
@out_option
@systems_option
@json_option
def trec(source: str, out: Path, systems: tuple[str, ...], as_json: bool) -> None:
    """TREC files: runs of results, judgments and topics of tasks.

    With runs come the judgments of every task that is on this machine and unchanged.
    """
    from ..api.publish import export_trec

    _tell(export_trec(source, out, systems=systems), out, as_json)


@export.command("beir")
@click.argument("source", metavar="RESULTS|TASK")
@out_option
@systems_option
@json_option
def beir(source: str, out: Path, systems: tuple[str, ...], as_json: bool) -> None:
    """BEIR's files: a folder for a task, JSON for the runs of results.

    The JSON is what BEIR's evaluation takes: `{query: {document: score}}`.
    """
    from ..api.publish import export_beir

    _tell(export_beir(source, out, systems=systems), out, as_json)


def _results_of(results: int, models: int) -> str:
    return f"{counted(results, 'result')} of {counted(models, 'model')}"


def _tell(written: list[Exported], out: Path, as_json: bool) -> None:
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


@click.group("bundle", cls=Commands)
def bundle() -> None:
    """Pack results as one file that verifies itself; check and add such files."""


@bundle.command("pack")
@click.argument("systems", nargs=-1, metavar="[SYSTEM]...")
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The file to write.")
@RESULTS
@click.option("--collection", default="", help="Only results on this collection.")
@click.option("--title", default="", help="What the submission is called.")
@click.option("--authors", default="", help="Who made it; nothing is filled in by itself.")
@click.option("--url", default="", help="A paper or a repository.")
@click.option("--note", "said", default="", help="A remark for readers.")
@click.option("--date", default="", metavar="YYYY-MM-DD", help="Its date. Default: that of its newest result.")
@click.option("--incomplete", is_flag=True, help="Pack also where answers of chat models are no longer kept.")
@json_option
def pack_command(
    systems: tuple[str, ...], out: Path, results: Path, collection: str, title: str, authors: str, url: str,
    said: str, date: str, incomplete: bool, as_json: bool,
) -> None:  # fmt: skip
    """Write results, runs, per-query scores and used generations of systems, by default all, as one file.

    No texts of documents, no judgments, no keys and no paths of this machine are in it.
    """
    from ..api.publish import pack_bundle

    packed = pack_bundle(
        out, *systems, results=results, collection=collection, title=title, authors=authors, url=url, note=said,
        date=date, incomplete=incomplete,
    )  # fmt: skip
    manifest = packed.manifest
    if as_json:
        facts = {"bundle": str(packed.path), "id": packed.id, "bytes": packed.path.stat().st_size}
        emit({**facts, "date": manifest.date, "systems": manifest.systems, "notes": packed.notes})
        return
    say(packed.path)
    results_in = sum(name.startswith("results/") and name.endswith(".json") for name in manifest.members)
    held = f"{counted(len(manifest.systems), 'system')}, {counted(results_in, 'result')}"
    note(f"{held}, {packed.path.stat().st_size:,} bytes, id {packed.id[:16]}")
    for line in packed.notes:
        note(line)


@bundle.command("check")
@click.argument("path", metavar="FILE", type=FILE)
@TASKS
@click.option("--strict", is_flag=True, help="Exit with 1 also where a result cannot be verified.")
@json_option
def check_command(path: Path, folders: tuple[Path, ...], strict: bool, as_json: bool) -> None:
    """Score every run of a bundle again and compare with what it states; exits with 1 where a score is not true."""
    from ..api.publish import check_bundle

    with progress() as bar:
        bar.show("results scored again")
        checked = check_bundle(path, tasks=folders, on_progress=bar.within)
    if as_json:
        emit(checked)
    else:
        why = any(v.reason for v in checked.results)
        rows = [[v.system, v.task, STATUS[v.status], *([v.reason] if why else [])] for v in checked.results]
        print_table(["System", "Task", "Result", *(["Why"] if why else [])], rows, left=4)
        for system in checked.systems:
            if not system.replays:
                note(f"{system.name}: lacks answers of chat models, so it does not run again without a key")
        counts = f"{checked.verified} verified, {checked.differ} differ, {checked.unverified} cannot be verified"
        note(f"{counts}; times and costs are as stated")
    if checked.differ or (strict and checked.unverified):
        sys.exit(1)


@bundle.command("add")
@click.argument("path", metavar="FILE", type=FILE)
@RESULTS
@TASKS
@json_option
def add_command(path: Path, results: Path, folders: tuple[Path, ...], as_json: bool) -> None:
    """Put a bundle into a results folder, and its answers of chat models into the store here.

    It is checked first. Something different of the same name is not overwritten: then nothing is added.
    """
    from ..api.publish import add_bundle

    with progress() as bar:
        bar.show("results scored again")
        added = add_bundle(path, results=results, tasks=folders, on_progress=bar.within)
    if as_json:
        emit(added._asdict())
        return
    for system, task in added.results:
        say(f"{system} on {task}")
    there = f", {len(added.there)} were there" if added.there else ""
    kept = ""
    if added.answers or added.answers_there:
        kept = f"; {added.answers:,} answers of chat models added, {added.answers_there:,} were there"
    note(f"{counted(len(added.results), 'result')} added to {results}{there}{kept}")


@click.group("board", cls=Commands)
def board() -> None:
    """Write the static site of a public leaderboard from bundles."""


@board.command("build")
@click.argument("bundles", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="The folder to write.")
@click.option("--title", default="Leaderboard", show_default=True, help="What the board is called.")
@click.option("--url", default="", help="Where the site will lie; the feed names it.")
@TASKS
@click.option("--own-texts", is_flag=True, help="Show texts of tasks that are not R2MED's, Nano's or Mini's, too.")
@click.option(
    "--workers", type=Whole(min=1), metavar="N",
    help="Processes that check bundles.  [default: one a core, at most 8]",
)  # fmt: skip
@json_option
def build_command(
    bundles: tuple[Path, ...], out: Path, title: str, url: str, folders: tuple[Path, ...], own_texts: bool,
    workers: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Check bundles (files, or folders of them) and write the site that shows them.

    Exits with 1 where scores are not true: such results are left out, and the site is written without them.
    """
    from ..api.publish import build_board
    from ..retrieve.sparse import available_cores

    with progress() as bar:
        bar.show("bundles checked")
        written = build_board(
            *bundles, out=out, title=title, url=url, tasks=folders, own_texts=own_texts, on_progress=bar.within,
            workers=workers or min(available_cores(), MOST_WORKERS),
        )  # fmt: skip
    if as_json:
        emit(written)
    else:
        say(out)
        for line in written.left_out:
            note(line)
        submissions = f"{counted(written.submissions, 'submission')}, {written.verified} of them verified"
        note(f"{submissions}, {counted(written.systems, 'system')}, {counted(written.pages, 'page')}")
    if written.false:
        sys.exit(1)
