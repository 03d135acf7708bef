"""`r2med judge`: from a folder of documents to a benchmark that people have judged."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
)

if TYPE_CHECKING:
    from ..judge import Asked, Rule
    from ..judge.check import Check
    from ..judge.server import Judge

ELSEWHERE = {"run": "judge_agree", "agree": "judge_agree", "relabel": "judge_agree"}
"""Sub-commands that live in modules of their own."""
ORDER = ("pool", "serve", "run", "agree", "check", "finish", "relabel")


class JudgeGroup(Commands):
    """A group of which some commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(ORDER)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        found: click.Command = getattr(importlib.import_module(f".{ELSEWHERE[cmd_name]}", __package__), cmd_name)
        return found


@click.group("judge", cls=JudgeGroup)
def command() -> None:
    """Make a benchmark: pool passages, judge them, see how judges agree, check what came out, publish it."""


@command.command("pool")
@click.argument("source", metavar="FOLDER")
@click.option("--queries", type=click.Path(path_type=Path), help="Queries, as JSON lines; by default the task's own.")
@click.option("--system", "-s", "systems", multiple=True, metavar="SPEC", help="A system to pool; repeatable.")
@click.option("--run", "runs", multiple=True, type=click.Path(path_type=Path), help="A TREC run to pool; repeatable.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The project: a new folder.")
@click.option("--depth", default=20, show_default=True, type=Whole(min=1), help="Ranks taken of each system.")
@click.option("--sample", default=0, show_default=True, type=Whole(min=0), help="Random passages per query.")
@click.option(
    "--near", default=0.9, show_default=True, type=Number(0.5, 1), help="Texts at least this alike are judged once."
)
@click.option("--seed", default=0, show_default=True, type=Whole(min=0), help="Of samples and orders.")
@click.option("--pool-known", is_flag=True, help="Judge again what came with judgments, whoever finds it.")
@click.option("--name", default="", help="Name of the project; by default that of the corpus.")
@click.option("--question", default="", help="What is asked about each passage.")
@click.option("--grade", "grades", multiple=True, metavar="MEANING", help="What a grade means, from 0; repeatable.")
@click.option(
    "--relevant-from", default=1, show_default=True, type=Whole(min=1), metavar="GRADE",
    help="The lowest grade that counts as relevant.",
)  # fmt: skip
@click.option("--reason", default="optional", show_default=True, type=click.Choice(["no", "optional", "required"]))
@click.option(
    "--support", default="optional", show_default=True, type=click.Choice(["no", "optional", "required"]),
    help="Whether judges mark the sentence that supports a grade above 0.",
)  # fmt: skip
@click.option("--answer-first", is_flag=True, help="Judges answer each query before they see passages.")
@click.option("--judges", default=2, show_default=True, type=Whole(min=1), help="Judges of each passage.")
@click.option(
    "--rule", default="adjudicated", show_default=True, help="How the final grade comes from several.",
    type=click.Choice(["adjudicated", "majority", "median", "lowest", "highest"]),
)  # fmt: skip
@click.option("--llm-counts", is_flag=True, help="Grades of LLM judges count like those of people.")
@click.option("--term", "terms", multiple=True, metavar="WORD", help="A word marked in all passages; repeatable.")
@click.option("--licence", default="", help="Terms of the corpus, for the datasheet.")
@click.option("--language", default="", metavar="CODE", help="Language of the texts, for the datasheet.")
@click.option("--description", default="", help="What the benchmark is for, for the datasheet.")
@pickle_option
@json_option
def pool(
    source: str, queries: Path | None, systems: tuple[str, ...], runs: tuple[Path, ...], out: Path, depth: int,
    sample: int, near: float, seed: int, pool_known: bool, name: str, question: str, grades: tuple[str, ...],
    relevant_from: int, reason: Asked, support: Asked, answer_first: bool, judges: int, rule: Rule,
    llm_counts: bool, terms: tuple[str, ...], licence: str, language: str, description: str, allow_pickle: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Rank a corpus with unlike systems and write a judging project of what they find.

    FOLDER is a task in any layout, with or without queries and judgments, or documents alone: a folder with a
    corpus.jsonl, or such a file.
    """
    from ..api import judging
    from ..judge import GRADES

    with progress() as bar:
        made = judging.judge_pool(
            source, *systems, out=out, queries=queries, runs=runs, depth=depth, sample=sample, near=near, seed=seed,
            pool_known=pool_known, name=name, question=question, grades=grades or GRADES, relevant_from=relevant_from,
            reason=reason, support=support, answer_first=answer_first, judges=judges, rule=rule,
            llm_counts=llm_counts, terms=terms, licence=licence, language=language, description=description,
            options=options_from({"allow_pickle": allow_pickle}, bar), notify=bar.show,
        )  # fmt: skip
    if as_json:
        emit({"schema": 1, **{field: getattr(made, field) for field in made.__struct_fields__}})
        return
    rows = [[system.name, f"{system.pairs:,}", f"{system.alone:,}"] for system in made.systems]
    print_table(["System", "Pairs", "Found alone"], rows)
    say(
        f"{made.pairs:,} pairs to judge: {made.queries:,} queries × {float(made.pairs) / made.queries:.1f} passages "
        f"({made.sampled:,} drawn at random); {made.copies:,} copies get the grade of a passage"
    )
    if made.known:
        note(f"{made.known:,} pairs came with a judgment, which is kept beside them")
    if made.judgments_left_out:
        note(f"{made.judgments_left_out:,} judgments are of other queries, or of documents that are not there")
    if made.empty_queries:
        note(f"{len(made.empty_queries)} queries have nothing to judge, such as {made.empty_queries[0]}")
    note(f"r2med judge serve {out}", whole=True)


@command.command("serve")
@click.argument("project", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.option(
    "--judge", "judges", multiple=True, metavar="NAME", help="Who judges; repeatable. Default: your login name."
)
@click.option("--adjudicator", default="", metavar="NAME", help="Who decides where judges differ.")
@click.option("--port", type=Whole(0, 65535), help="Default: 8642, or the next one that is free.")
@click.option("--host", default="", help="Listen on this address instead of loopback, for a team; needs --judge.")
@click.option(
    "--allow-host", "allowed", multiple=True, metavar="NAME",
    help="A name of this machine that others use for it, where --host listens on every address; repeatable.",
)  # fmt: skip
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@json_option
def serve(
    project: Path, judges: tuple[str, ...], adjudicator: str, port: int | None, host: str, allowed: tuple[str, ...],
    no_open: bool, as_json: bool,
) -> None:  # fmt: skip
    """Judge the passages of a project in the browser, or decide where judges differ.

    Prints an address for each judge. It holds a secret that lets in that judge alone, and changes with every start:
    give each judge only their own. Each judgment is on disk before the page says that it is saved.
    """
    from ..api.judging import judge_serve

    def announce(found: Sequence[Judge]) -> None:
        if as_json:
            emit({"project": str(project), "judges": [judge._asdict() for judge in found]})
            return
        for judge in found:
            if len(found) > 1:
                note(f"{judge.name} ({judge.kind}):")
            say(judge.url)
        note("Ctrl-C stops it.")

    judge_serve(
        project, judges=judges, adjudicator=adjudicator, port=port, host=host, allowed=allowed, browser=not no_open,
        announce=announce,
    )  # fmt: skip


@command.command("check")
@click.argument("project", type=click.Path(path_type=Path))
@click.option("--unfinished", is_flag=True, help="Count judges who have not finished, too.")
@click.option("--corpus", metavar="FOLDER", help="Where the corpus lies now; by default where it was pooled from.")
@json_option
def check(project: Path, unfinished: bool, corpus: str | None, as_json: bool) -> None:
    """Say how good the benchmark is that the final grades give.

    What systems outside the pool would have lost, how deep the pool had to be, which queries nobody or everybody
    solves or which go against the others, how small a difference these queries can show, and whether documents can be
    told relevant without the query.
    """
    from ..api import judging
    from ..pipeline.artefact_report import findings_table

    found = judging.judge_check(project, unfinished=unfinished, corpus=corpus)
    if as_json:
        emit({"schema": 1, **{field: getattr(found, field) for field in found.__struct_fields__}})
        return
    _show_systems(found)
    say()
    print_table(
        ["Judge", "Kind", "Graded", "Skipped", "Seconds each"],
        [
            [j.name, j.kind + ("" if j.finished else ", not finished"), f"{j.graded:,}", f"{j.skipped:,}",
             "–" if j.seconds is None else f"{j.seconds:.0f}"]
            for j in found.judges
        ],
        left=2,
    )  # fmt: skip
    if found.artefacts:
        say()
        show(findings_table(found.artefacts))
    say()
    say(f"{found.queries:,} queries, {found.graded:,} of {found.pairs:,} pairs graded, {found.copies:,} copies")
    for remark in found.verdicts:
        say(f"{'  ok  ' if remark.level == 'ok' else '! '} {remark.text}".strip())


def _show_systems(found: Check) -> None:
    rows = []
    for s in found.systems:
        outside = ["–"] * 4
        if s.ndcg_outside is not None and s.judged_outside is not None:
            lost = 100 * (s.ndcg - s.ndcg_outside)
            outside = [
                f"{100 * s.ndcg_outside:.2f}",
                f"{lost:.2f}",
                f"{100 * s.judged_outside:.0f} %",
                f"{s.rank_outside}",
            ]
        rows.append([s.system, f"{100 * s.ndcg:.2f}", str(s.rank), *outside])
    print_table(
        ["System", "nDCG@10", "Rank", "Not pooled", "Lost", "Judged", "Rank"],
        rows,
        caption="nDCG@10 × 100, as judged, and as if it and what is made from it had not been pooled. Judged: share of "
        "its first ten.",
    )
    if not found.depths:
        return
    say()
    print_table(
        ["Depth", "Judgments", "τ", "Order"],
        [[str(d.depth), f"{d.pairs:,}", f"{d.tau:.2f}", "same" if d.same_order else "other"] for d in found.depths],
        caption="The order of systems had the pool been shallower, against the order by all judgments.",
    )


@command.command("finish")
@click.argument("project", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The task: a new folder.")
@click.option("--corpus", metavar="FOLDER", help="Where the corpus lies now; by default where it was pooled from.")
@click.option("--keep-empty", is_flag=True, help="Keep queries for which nothing relevant was found.")
@click.option("--partial", is_flag=True, help="Keep queries of which a passage has no final grade.")
@json_option
def finish(project: Path, out: Path, corpus: str | None, keep_empty: bool, partial: bool, as_json: bool) -> None:
    """Write the task in R2MED's layout: the corpus, the queries, graded judgments, and a datasheet."""
    from ..api import judging

    made = judging.judge_finish(project, out, corpus=corpus, keep_empty=keep_empty, partial=partial)
    if as_json:
        emit({"folder": str(out), **{field: getattr(made, field) for field in made.__struct_fields__}})
        return
    counts = made.counts
    say(
        f"{made.name}: {counts.queries:,} queries, {counts.documents:,} documents, {counts.judgments:,} judgments "
        f"({counts.relevant:,} relevant)"
    )
    if counts.left_out_open:
        note(f"{counts.left_out_open} queries left out: a passage of theirs has no final grade (--partial keeps them)")
    if counts.left_out_without_relevant:
        note(
            f"{counts.left_out_without_relevant} queries left out: nothing relevant was found (--keep-empty keeps them)"
        )
    note(f"Datasheet: {out}/README.md; r2med data validate {out}")
