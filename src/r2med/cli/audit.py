"""`r2med data audit`: leakage and hygiene."""

from __future__ import annotations

from pathlib import Path

import click

from .common import emit, json_option, note, print_table, resolve_all


@click.command("audit")
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
@json_option
def command(
    paths: tuple[str, ...], against: tuple[Path, ...], few_shot: tuple[Path, ...], retrievers: tuple[str, ...],
    runs: tuple[Path, ...], threshold: float, width: int, as_json: bool,
) -> None:  # fmt: skip
    """Look for leaks and copies: flagged queries with evidence, and scores with and without them."""
    from ..core import UsageError
    from ..pipeline.audit import audit_document, built_in_examples, score_audit
    from ..retrieve import get_retriever
    from ..tasks import read_run
    from ..tasks.audit import AuditSettings, audit, read_outside

    tasks = [ref.load() for ref in resolve_all(paths)]
    if runs and len(tasks) != 1:
        raise UsageError("--run needs exactly one task")
    examples = [read_outside(path) for path in few_shot]
    report = audit(
        tasks,
        against=[read_outside(path) for path in against],
        few_shot=[*examples, *([built] if (built := built_in_examples()) else [])],
        settings=AuditSettings(threshold=threshold, width=width),
    )
    named = retrievers or (() if runs else ("bm25-lucene",))
    scores = []
    for task, found in zip(tasks, report.tasks, strict=True):
        ranked = [get_retriever(name).retrieve(task) for name in named] + [read_run(path) for path in runs]
        scores.append(score_audit(task, found, ranked))
    if as_json:
        emit(audit_document(report, scores))
        return
    for found, of_task in zip(report.tasks, scores, strict=True):
        click.echo(f"{found.task}: {found.flagged_queries:,} of {found.queries:,} queries flagged")
        for kind, count in found.by_kind.items():
            first = next(flag for flag in found.flags if flag.kind == kind)
            click.echo(f"  {kind}: {count:,}, e.g. {first.query}: {first.evidence} ({first.others[0]})")
        for title, copies in (("exact", found.exact_copies), ("near", found.near_copies)):
            click.echo(f"  {title} copies: {copies.documents:,} documents in {copies.groups:,} groups")
        for remark in found.notes:
            click.echo(f"  {remark}")
        rows = [
            [s.system, name, str(part.queries), "–" if part.measures is None else f"{part.measures['ndcg_at_10']:.4f}"]
            for s in of_task
            for name, part in {"all queries": s.all, **{f"without {k}": v for k, v in s.without.items()}}.items()
        ]
        print_table(["System", "Scored on", "Queries", "nDCG@10"], rows, left=2)
    for pair in report.across.pairs:
        click.echo(
            f"{pair.tasks[0]} and {pair.tasks[1]} share {pair.documents_exact + pair.documents_near:,} documents "
            f"({pair.documents_exact:,} word for word) and {pair.queries} queries"
        )
    note("Every flag with its evidence: --json")
