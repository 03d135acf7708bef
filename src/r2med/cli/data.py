"""`r2med data`: the files behind the tasks."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .common import emit, json_option, note, options_from, pickle_option, print_table, resolve_all, tasks_option
from .progress import progress


@click.group("data")
def command() -> None:
    """Download, validate, measure and convert tasks."""


@command.command("download")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--force", is_flag=True, help="Fetch again what is there.")
@json_option
def download(names: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Get tasks from the Hugging Face hub: pinned revisions, resumed, hashes and counts checked.

    NAME is a collection (nano, r2med) or a task (r2med/MedQA-Diag). HF_HOME, HF_ENDPOINT, HF_TOKEN and
    HF_HUB_OFFLINE mean what they always mean.
    """
    from ..tasks import find_tasks
    from ..tasks.download import download as fetch

    entries = list({e.full_name: e for name in names for e in find_tasks(name)}.values())
    done = []
    with progress(len(entries)) as bar:
        for entry in entries:
            bar.show(entry.full_name)
            done.append(fetch(entry, force=force))
            bar.show(entry.full_name, advance=True)
            if not as_json:
                verb = "fetched" if done[-1].fetched else "already here"
                note(f"{entry.full_name}: {verb}, {done[-1].documents:,} documents, counts as published")
    if as_json:
        emit([d._asdict() for d in done])


@command.command("validate")
@click.argument("paths", nargs=-1, metavar="NAME|FOLDER...")
@tasks_option(default=())
@json_option
def validate(paths: tuple[str, ...], specs: tuple[str, ...], as_json: bool) -> None:
    """Check tasks for errors; exits with 1 where there are any."""
    from ..tasks.validate import lines
    from ..tasks.validate import validate as check

    reports = [check(ref) for ref in resolve_all((*paths, *specs) or ("mini",))]
    if as_json:
        emit({"ok": all(r.ok for r in reports), "tasks": reports})
    else:
        for report in reports:
            click.echo("\n".join(lines(report)))
    if not all(r.ok for r in reports):
        sys.exit(1)


@command.command("stats")
@click.argument("paths", nargs=-1, metavar="NAME|FOLDER...")
@tasks_option(default=())
@json_option
def stats(paths: tuple[str, ...], specs: tuple[str, ...], as_json: bool) -> None:
    """The figures people quote about a task."""
    from ..tasks import stats as measure

    measured = [measure(ref.load()) for ref in resolve_all((*paths, *specs) or ("mini",))]
    if as_json:
        emit(measured)
        return
    print_table(
        ["Task", "#Q", "#D", "Pos.", "min/med/max", ">1 pos.", "Q words", "D words", "Q chars", "D chars"],
        [
            [s.task, f"{s.queries:,}", f"{s.documents:,}", f"{s.positives_mean:.1f}",
             f"{s.positives_min}/{s.positives_median:g}/{s.positives_max}", f"{100 * s.multi_positive_share:.0f} %",
             f"{s.query_words_mean:.1f}", f"{s.document_words_mean:.1f}",
             f"{s.query_chars_mean:.0f}", f"{s.document_chars_mean:.0f}"]
            for s in measured
        ],
        caption="Pos.: mean positives a query; words are separated by white space.",
    )  # fmt: skip


class FormatOption(click.Option):
    """An option whose help names every layout there is; they are looked up when somebody asks for help."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from ..tasks.formats import layouts

        self.help = f"One of {', '.join(layouts())}."
        return super().get_help_record(ctx)


@command.command("convert")
@click.argument("source", metavar="NAME|FOLDER")
@click.argument("destination", type=click.Path(path_type=Path))
@click.option("--to", "layout", required=True, metavar="FORMAT", cls=FormatOption)
@click.option("--compress", type=click.Choice(["none", "gz", "zst"]), default="none", help="Compress JSON lines.")
@json_option
def convert(source: str, destination: Path, layout: str, compress: str, as_json: bool) -> None:
    """Write a task in another layout; ids and texts survive byte for byte."""
    from ..tasks import convert as write

    written = write(resolve_all([source]), destination, to=layout, compress=compress)
    if as_json:
        emit([w._asdict() for w in written])
    else:
        for one in written:
            note(f"{one.task} → {one.path} ({layout}), fingerprint {one.fingerprint}")
            if lost := one.expansions_left_out:
                note(f"{one.task}: {layout} has no place for generated texts ({lost} of them left out)")


@command.command("audit")
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
@click.option("--threshold", default=0.8, show_default=True, type=click.FloatRange(0.5, 1), help="What is a near copy.")
@click.option("--width", default=5, show_default=True, type=click.IntRange(2, 20), help="Words in a compared run.")
@pickle_option
@json_option
def audit(
    paths: tuple[str, ...], against: tuple[Path, ...], few_shot: tuple[Path, ...], retrievers: tuple[str, ...],
    runs: tuple[Path, ...], threshold: float, width: int, allow_pickle: bool, as_json: bool,
) -> None:  # fmt: skip
    """Look for leaks and copies: flagged queries with evidence, and scores with and without them."""
    from ..core.untrusted import printable
    from ..pipeline.audit import audit_tasks
    from ..tasks.audit import AuditSettings

    scored = audit_tasks(
        resolve_all(paths),
        against=against,
        few_shot=few_shot,
        retrievers=retrievers,
        runs=runs,
        settings=AuditSettings(threshold=threshold, width=width),
        options=options_from({"allow_pickle": allow_pickle}),
    )
    if as_json:
        emit(scored.document())
        return
    for found, scores in zip(scored.report.tasks, scored.scores, strict=True):
        click.echo("\n".join(map(printable, found.lines())))
        rows = [
            [s.system, name, str(part.queries), "–" if part.measures is None else f"{part.measures['ndcg_at_10']:.4f}"]
            for s in scores
            for name, part in {"all queries": s.all, **{f"without {k}": v for k, v in s.without.items()}}.items()
        ]
        print_table(["System", "Scored on", "Queries", "nDCG@10"], rows, left=2)
    for pair in scored.report.across:
        click.echo(
            printable(
                f"{pair.tasks[0]} and {pair.tasks[1]} share {pair.documents_exact + pair.documents_near:,} documents "
                f"({pair.documents_exact:,} word for word) and {pair.queries} queries"
            )
        )
    note("Every flag with its evidence: --json")
