"""`r2med nano`: small tasks with candidates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from .common import (
    Commands,
    Whole,
    emit,
    json_option,
    note,
    one_form,
    options_from,
    pickle_option,
    print_table,
    progress,
    say,
    show,
)

if TYPE_CHECKING:
    from ..tasks.nano import Fill


@click.group("nano", cls=Commands)
def command() -> None:
    """Build small tasks with ranked candidates, profile them, and see how faithful they are."""


@command.command("build")
@click.argument("paths", nargs=-1, required=True, metavar="NAME|FOLDER...")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="A new folder.")
@click.option("--docs", default=10_000, show_default=True, type=Whole(min=1), help="Documents in a pool.")
@click.option(
    "--fill",
    default="source-order",
    show_default=True,
    type=click.Choice(["source-order", "hard", "random"]),
    help="What fills the pool behind the positives: the first documents, what retrievers mistake for relevant, or any.",
)
@click.option("--seed", default=0, show_default=True, type=Whole(min=0), help="Of everything that is drawn.")
@click.option("--bm25", "bm25_spec", default="bm25-nano", show_default=True, help="Retriever of the BM25 profile.")
@click.option(
    "--safeguard", default="first", show_default=True, type=click.Choice(["first", "random"]),
    help="The positive that a hybrid list without one gets: the first judged, or one drawn, as in NanoR2MED.",
)  # fmt: skip
@click.option(
    "--dense", "dense_spec", default="auto", show_default=True,
    help="Retriever of the dense profile, or none. auto: harrier where it is on this machine, else bge-small.",
)  # fmt: skip
@click.option("--name", default="", help="Name of the task (its split); by default that of its source.")
@click.option("--title", default="", metavar="NAME", help="Name of the set, for its pages; by default from its tasks.")
@click.option("--language", default="", metavar="CODE", help="Language of the texts, for its pages.")
@click.option("--description", default="", help="What the task asks, for its page.")
@click.option("--licence", default="", help="Terms of the source's data, for the card and the page.")
@pickle_option
@json_option
def build(
    paths: tuple[str, ...], out: Path, docs: int, fill: Fill, seed: int, bm25_spec: str,
    safeguard: Literal["first", "random"], dense_spec: str, name: str, title: str, language: str,
    description: str, licence: str, allow_pickle: bool, as_json: bool,
) -> None:  # fmt: skip
    """Make Nano tasks from tasks in any format: every positive, a fixed number of documents, ranked candidates.

    All tasks given become one group with one manifest and one page. Two builds with one seed give the same bytes.
    """
    from ..api import data
    from ..core.table import counted

    with progress() as bar:
        built = data.build_nano(
            *paths, out=out, docs=docs, fill=fill, seed=seed, bm25=bm25_spec, dense=dense_spec,
            safeguard=safeguard, name=name, title=title, language=language, description=description, licence=licence,
            options=options_from({"allow_pickle": allow_pickle}, bar), notify=bar.step,
        )  # fmt: skip
    if built.dense is None and dense_spec == "auto":
        note("No dense model can run here, so there are no dense and hybrid candidates: r2med models fetch bge-small")
    elif built.dense is not None:
        note(f"Dense candidates by {built.dense}.")
    if as_json:
        tasks = {b.split: b.summary() for b in built.tasks}
        emit({"schema": 1, "folder": str(out), "tasks": tasks, "pages": list(map(str, built.pages))})
        return
    for one in built.tasks:
        m = one.manifest
        parts = ", ".join(f"{count:,} {by}" for by, count in sorted(m.admitted.items(), key=lambda i: -i[1]))
        queries, documents = counted(m.queries, "query", "queries"), counted(m.documents, "document")
        say(f"{one.split}: {queries}, {documents} ({parts}), {counted(m.positives, 'positive')}")
        if m.documents < docs:
            note(f"{one.split}: the source has no more than {m.documents:,} different documents")
        if m.judgments_of_missing_documents:
            note(f"{one.split}: {len(m.judgments_of_missing_documents)} positives are not in the source's corpus")
    note(f"Candidates, manifest and card: {out}/; the group's page: {out}/pages/index.md")
    folder = out if out.parent.name else f"./{out}"  # a bare name may be a collection of the catalogue
    note(f"r2med pages {folder} adds the audit to the pages")


@command.command("profile")
@click.argument("paths", nargs=-1, metavar="NAME|FOLDER...")
@click.option("--published", is_flag=True, help="The figures NanoR2MED publishes, instead of a folder's.")
@click.option(
    "--bm25", "bm25_spec", default="", metavar="NAME",
    help="Run this retriever for the BM25 profile, such as bm25, instead of reading the lists that lie there.",
)  # fmt: skip
@click.option("--markdown", is_flag=True, help="Print the table in Markdown.")
@json_option
def profile(paths: tuple[str, ...], published: bool, bm25_spec: str, markdown: bool, as_json: bool) -> None:
    """The table of a Nano group: counts, the nDCG@10 of its candidates, and the means over all queries."""
    from ..api import data
    from ..report.group_page import group_table

    one_form(as_json=as_json, markdown=markdown)
    found = data.nano_profile(*paths, published=published, bm25=bm25_spec)
    if as_json:
        emit(found)
        return
    table = group_table(found, in_points=True)
    if markdown:
        say(table.markdown(), lines=True)
    else:
        show(table)
    if published:
        note("Published by hakari-bench/NanoR2MED; not computed here.")


@command.command("fidelity")
@click.argument("full", metavar="FULL")
@click.argument("small", metavar="NANO")
@click.option("--retriever", "-r", "retrievers", multiple=True, metavar="NAME", help="A system to rank; repeatable.")
@click.option("--measure", default="nDCG@10", show_default=True, help="The measure that ranks the systems.")
@pickle_option
@json_option
def fidelity(
    full: str, small: str, retrievers: tuple[str, ...], measure: str, allow_pickle: bool, as_json: bool
) -> None:
    """Rank the same systems on a full task and on its Nano, and say how well the two orders agree."""
    from ..api import data
    from ..core.table import counted, points, signed
    from ..scoring import Measure

    options = options_from({"allow_pickle": allow_pickle})
    found = data.nano_fidelity(full, small, *retrievers, measure=measure, options=options)
    if as_json:
        emit(found)
        return
    rows = [[s.name, points(s.full), points(s.nano), signed(s.nano - s.full)] for s in found.systems]
    caption = f"{Measure.parse(measure)} × 100, each task on all its queries."
    print_table(["System", "Full", "Nano", "Inflation"], rows, caption=caption)
    for title, value in {"Spearman": found.spearman, "Kendall": found.kendall, "τ_AP": found.tau_ap}.items():
        if value is not None:
            say(f"{title}: {value.value:.3f} (95 % interval {value.low:.3f} to {value.high:.3f})")
    more, shared = found.inflation, counted(found.queries, "shared query", "shared queries")
    bounds = f"95 % interval {signed(more.low)} to {signed(more.high)}"
    say(f"Inflation × 100 on {shared}: {signed(more.value)} ({bounds})")
    say(
        f"{found.reversals} of {found.pairs} pairs are ordered differently, {found.significant_reversals} of the "
        f"{found.significant_pairs} that differ significantly on the full task"
    )
    if found.note:
        note(found.note)
