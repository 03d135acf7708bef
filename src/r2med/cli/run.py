"""`r2med run`: the main job."""

from __future__ import annotations

from pathlib import Path

import click

from .common import emit, json_option, note, print_table, resolve_all, tasks_option
from .progress import progress


@click.command("run")
@tasks_option()
@click.option(
    "--retriever",
    "-r",
    "retrievers",
    multiple=True,
    metavar="NAME",
    help="A retriever, e.g. bm25, bm25-lucene, bm25:k1=1.2,b=0.75; repeatable. Default: all that are ready.",
)
@click.option("--fuse", type=click.Choice(["rrf"]), help="Also fuse the retrievers into one system.")
@click.option("--depth", default=1000, show_default=True, type=click.IntRange(min=1), help="Documents kept per query.")
@click.option("--measure", default="nDCG@10", show_default=True, help="The measure in the table; all are stored.")
@click.option(
    "--results",
    default="results",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where results are written and looked for.",
)
@click.option("--overwrite", is_flag=True, help="Run again what is already there.")
@click.option("--markdown", is_flag=True, help="Print the table in Markdown.")
@json_option
def command(
    specs: tuple[str, ...], retrievers: tuple[str, ...], fuse: str | None, depth: int, measure: str, results: Path,
    overwrite: bool, markdown: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run systems on tasks and print a table of scores.

    Without options: the built-in Mini benchmark with the default systems. What is done is not done again.
    """
    from ..pipeline import check_writable, run_experiment, systems_from
    from ..report import as_json as document
    from ..report import caption, cells, headers, score_table
    from ..report import markdown as in_markdown
    from ..results import ResultStore
    from ..scoring import Measure

    shown = Measure.parse(measure)
    refs, store = resolve_all(specs), ResultStore(results)
    systems = systems_from(list(retrievers) or ["bm25", "bm25-lucene"], fuse or "")
    check_writable(store)
    with progress(len(refs) * len(systems)) as (describe, advance):

        def notify(system: str, task: str, what: str) -> None:
            if what.startswith("stale: "):
                note(f"{system} on {task} is run again: {what.removeprefix('stale: ')}")
            elif what == "running":
                describe(f"{system} on {task}")
            else:
                advance(f"{system} on {task}")

        outcome = run_experiment(refs, systems, store, depth=depth, overwrite=overwrite, notify=notify)
    if as_json:
        emit(document(outcome.results))
        return
    table = score_table(outcome.results, shown)
    if markdown:
        click.echo(in_markdown(table))
    else:
        print_table(headers(table), cells(table), caption=caption(table))
    if outcome.kept:
        note(f"{outcome.kept} of {len(outcome.results)} results were there already (--overwrite runs them again)")
    for result in outcome.results:
        if result.missing_queries:
            where = f"{result.system.name} on {result.task.full_name}"
            note(f"{where}: {result.missing_queries} queries retrieved nothing and score 0")
    note(f"Results, runs and per-query scores: {results}/")
