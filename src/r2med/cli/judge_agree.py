"""`r2med judge run`, `agree` and `relabel`: chat models as judges, and how far judges agree."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import (
    Number,
    Whole,
    calls_made,
    emit,
    json_option,
    lost_calls,
    note,
    print_table,
    progress,
    retry_option,
    say,
    statuses,
    tasks_option,
)

if TYPE_CHECKING:
    from ..judge.agreement import Measured, PairAgreement
    from ..judge.relabelling import Agreement
    from ..judge.summary import Summary
    from ..llm import Cost

_PATH = click.Path(dir_okay=False, path_type=Path)
_PROJECT = click.argument("project", type=click.Path(exists=True, file_okay=False, path_type=Path))
_prompt_option = click.option("--prompt", type=_PATH, help="A prompt file instead of ours.")
_concurrency_option = click.option(
    "--concurrency", default=16, show_default=True, type=Whole(min=1), help="Calls in flight."
)
_cost_option = click.option("--max-cost", type=Number(min=0), metavar="DOLLARS", help="Stop before more is spent.")
NONE = "–"
LONGEST = 44
"""Characters of a query that the table of disputed ones shows."""


@click.command("run")
@_PROJECT
@click.option("--judge", required=True, metavar="llm:NAME", help="A chat model: llm:gpt4, llm:smollm2 …")
@click.option("--name", default="", help="The judge's name in the project; by default as given with --judge.")
@_prompt_option
@click.option("--limit", type=Whole(min=1), help="Only the first N queries.")
@click.option("--dry-run", is_flag=True, help="Print calls, tokens and dollars at most; spend nothing.")
@_cost_option
@retry_option
@_concurrency_option
@json_option
def run(
    project: Path, judge: str, name: str, prompt: Path | None, limit: int | None, dry_run: bool,
    max_cost: float | None, retry: str, concurrency: int, as_json: bool,
) -> None:  # fmt: skip
    """Let a chat model judge the pool of a project, as one more judge that is always shown as such.

    Resumable: answers are kept, and the same command goes on where it stopped. Its grades count towards no final grade
    before `r2med judge agree` has shown that it agrees with people, and then only where the project says so.
    """
    from ..api.judging import judge_plan, judge_run

    again = statuses(retry)
    if dry_run:
        planned = judge_plan(project, judge, name=name, prompt=prompt, limit=limit, retry=again)
        _show_plan(judge, planned, as_json=as_json)
        return
    with progress() as bar:
        bar.show(judge)
        found = judge_run(
            project, judge, name=name, prompt=prompt, limit=limit, concurrency=concurrency, max_cost=max_cost,
            retry=again, on_progress=bar.within,
        )  # fmt: skip
    if found.warning:
        note(f"Note: {found.warning}")
    if as_json:
        emit({"schema": 1, **_fields(found)})
    else:
        print_table(
            ["Judge", "Pairs", "Graded", "No grade", "Left", "Finished"],
            [[
                found.judge, f"{found.pooled:,}", f"{found.graded:,}", f"{sum(found.without_grade.values()):,}",
                f"{found.left:,}", "yes" if found.finished else "no",
            ]],
        )  # fmt: skip
        for problem, count in found.without_grade.items():
            say(f"  {problem}: {count:,}")
        if found.support_dropped:
            say(f"  sentences dropped that do not stand in the passage: {found.support_dropped:,}")
        if found.usage["attempts"]:
            note(f"This time: {calls_made(found.usage)}")
        if found.lost_calls:
            note(lost_calls(found.lost_calls))
    if found.failed:
        note(f"r2med: {found.failed} calls got no answer and are tried again next time ({found.first_error})")
    if found.stopped:
        note(f"r2med: {found.stopped}")
    sys.exit(found.exit_code or int(bool(found.failed and not found.graded)))


def _fields(found: object) -> dict[str, object]:
    import msgspec

    fields: dict[str, object] = msgspec.structs.asdict(found)  # type: ignore[arg-type]
    return fields


def _show_plan(judge: str, plan: Cost, *, as_json: bool) -> None:
    if as_json:
        emit({"schema": 1, "dry_run": True, "judge": judge, **_fields(plan)})
        return
    dollars = "price unknown" if plan.cost is None else f"{plan.cost:.4f}"
    counts = (plan.calls, plan.stored, plan.prompt_tokens, plan.completion_tokens)
    print_table(
        ["Judge", "Calls", "Stored", "Prompt tokens", "Answer tokens ≤", "Dollars ≤"],
        [[judge, *(f"{count:,}" for count in counts), dollars]],
        caption="Nothing was sent. Prompt tokens are estimated; answers cost at most what is shown.",
    )


@click.command("agree")
@_PROJECT
@click.option("--unfinished", is_flag=True, help="Also the grades of judges who have not finished.")
@click.option("--resamples", default=10_000, show_default=True, type=Whole(min=100), help="Of the queries.")
@click.option("--seed", default=0, show_default=True, type=Whole(min=0), help="Of the resamples.")
@json_option
def agree(project: Path, unfinished: bool, resamples: int, seed: int, as_json: bool) -> None:
    """Say how far judges agree (weighted κ, Krippendorff's α), where they differ most and what is still open.

    Nothing of a judge who has not finished is shown but how far the judge is.
    """
    from ..api.judging import judge_agree
    from ..scoring.intervals import Settings

    found = judge_agree(project, unfinished=unfinished, intervals=Settings(resamples=resamples, seed=seed))
    if as_json:
        emit({"schema": 1, **_fields(found)})
        return
    _show_judges(found)
    _show_people(found)
    _show_llms(found)
    _show_disputed(found)
    _show_open(found)


def _show_judges(found: Summary) -> None:
    print_table(
        ["Judge", "Kind", "Graded", "Skipped", "Of", "Seconds", "Finished"],
        [
            [
                j.judge, j.kind, f"{j.graded:,}", f"{j.skipped:,}", f"{j.of:,}",
                NONE if j.seconds is None else f"{j.seconds:.1f}", "yes" if j.finished else "no",
            ]
            for j in found.judges
        ],
        left=2,
        caption="Seconds: the median of a judgment.",
    )  # fmt: skip
    if found.left_out:
        say(f"Not finished, so not shown below: {', '.join(found.left_out)}")


def _show_people(found: Summary) -> None:
    say()
    _show_pairs("People", found.pairs, found)
    if len(found.people.judges) > 2:
        alpha = found.people.alpha["ordinal"]
        together = f"All {len(found.people.judges)} together, {found.people.pairs:,} pairs"
        say(f"{together}: α {_figure(alpha)}")
    for pair in found.pairs:
        _show_confusion(pair)
    if len(found.slices) > 1 and found.pairs:
        say()
        print_table(
            ["Body system", "Queries", "Pairs", "α, ordinal"],
            [
                [name, f"{part.queries:,}", f"{part.people.pairs:,}", _figure(part.people.alpha["ordinal"])]
                for name, part in found.slices.items()
            ],
            caption="Agreement of people on the queries of each body system.",
        )  # fmt: skip


def _show_pairs(title: str, pairs: Sequence[PairAgreement], found: Summary) -> None:
    if not pairs:
        say(f"{title}: no two judges to compare")
        return
    level = f"{100 * found.intervals.level:g} %"
    print_table(
        [title, "Pairs", "Equal", "κ, linear", "α, ordinal"],
        [
            [
                f"{pair.first} – {pair.second}", f"{pair.pairs:,}",
                NONE if pair.agree is None else f"{100 * pair.agree:.0f} %",
                _figure(pair.kappa["linear"]), _figure(pair.alpha["ordinal"]),
            ]
            for pair in pairs
        ],
        caption=f"κ: Cohen's with linear weights; α: Krippendorff's for an ordinal scale; {level} intervals "
        f"over queries, {found.intervals.resamples:,} resamples; {NONE} where nothing can be told apart.",
    )  # fmt: skip


def _show_confusion(pair: PairAgreement) -> None:
    if not pair.pairs:
        return
    say()
    print_table(
        [f"{pair.first} ↓ {pair.second} →", *(str(grade) for grade in range(len(pair.table)))],
        [[str(grade), *(f"{count:,}" for count in row)] for grade, row in enumerate(pair.table)],
    )


def _show_llms(found: Summary) -> None:
    for llm in found.llms:
        say()
        _show_pairs(f"{llm.judge}, an LLM", [llm.people, *llm.each], found)
        _show_confusion(llm.people)
        say(f"{llm.judge} may " + ("fill what no person judged" if llm.may_fill else f"not fill: {llm.why_not}"))


def _show_disputed(found: Summary) -> None:
    if not found.disputed:
        return
    from ..core.table import shortened

    say()
    print_table(
        ["Disputed query", "Text", "Differ", "Of", "Apart"],
        [
            [q.query_id, shortened(q.text, LONGEST), f"{q.differing:,}", f"{q.pairs:,}", f"{q.distance:.2f}"]
            for q in found.disputed
        ],
        left=2,
        caption="Apart: mean distance of two people's grades.",
    )


def _show_open(found: Summary) -> None:
    say()
    settled = found.pooled - found.final.get("open", 0)
    ways = ", ".join(f"{how} {count:,}" for how, count in found.final.items() if how != "open")
    say(f"Final grades: {settled:,} of {found.pooled:,} pairs{f' ({ways})' if ways else ''}")
    for why, count in found.open_because.items():
        say(f"  open, {why}: {count:,}")
    for judge, slots in found.forks.items():
        say(f"  {judge}: {len(slots)} pairs were judged in two clones of the project, and the later grade counts")


def _figure(measured: Measured) -> str:
    """A measure with its interval."""
    if measured.value is None:
        return NONE
    bounds = NONE if measured.low is None else f"[{measured.low:.2f}, {measured.high:.2f}]"
    return f"{measured.value:.2f} {bounds}"


@click.command("relabel")
@tasks_option(default=())
@click.option("--llm", "-l", required=True, metavar="NAME", help="local, gpt4, openai:MODEL, replay:FILE …")
@click.option("--limit", type=Whole(min=1), help="Only the first N queries of each task.")
@click.option(
    "--negatives",
    default=1,
    show_default=True,
    type=Whole(min=0),
    help="Random unjudged passages for each positive, taken to be irrelevant.",
)
@click.option("--seed", default=0, show_default=True, type=Whole(min=0), help="Of their choice.")
@click.option("--pool", type=_PATH, help="Also label this pool of `r2med compare --pool`; needs --out.")
@click.option("--out", type=_PATH, help="Where the labelled pool goes: .tsv, .jsonl.")
@_prompt_option
@_concurrency_option
@_cost_option
@retry_option
@json_option
def relabel(
    specs: tuple[str, ...], llm: str, limit: int | None, negatives: int, seed: int, pool: Path | None,
    out: Path | None, prompt: Path | None, concurrency: int, max_cost: float | None, retry: str, as_json: bool,
) -> None:  # fmt: skip
    """Let an LLM judge passages that people judged, and say how far they agree (Cohen's κ).

    With --pool it then labels what nobody judged; the agreement says what those labels are worth. Answers are kept:
    the same command goes on where it stopped. Default tasks: those of the pool, else mini.
    """
    from ..api.judging import relabel as relabel_tasks

    with progress() as bar:

        def notify(task: str, what: str) -> None:
            bar.step(task, what) if task else note(f"Note: {what}")

        found = relabel_tasks(
            llm, tasks=specs, limit=limit, negatives=negatives, seed=seed, pool=pool, out=out, prompt=prompt,
            concurrency=concurrency, max_cost=max_cost, retry=statuses(retry), notify=notify, on_progress=bar.within,
        )  # fmt: skip
    overall, entries, without = found.overall, found.pool_entries, found.pool_without_answer
    if out and (overall.kappa is None or overall.kappa <= 0):
        note(f"{llm} does not agree with the judgments beyond chance: do not use these labels")
    if as_json:
        emit({
            "schema": 1, "llm": llm, "judge": found.judge, "tasks": found.tasks, "overall": overall,
            "pool": {"path": str(out), "entries": entries, "without_answer": without} if out else None,
            "notes": found.notes, "usage": found.usage, "lost_calls": found.lost_calls, "warning": found.warning,
        })  # fmt: skip
        return
    rows = [_row(name, a) for name, a in found.tasks.items()] + ([_row("All", overall)] if len(found.tasks) > 1 else [])
    print_table(
        ["Task", "Pairs", "Assumed", "No answer", "Agree", "κ", "Both", "Only people", "Only LLM", "Neither"],
        rows,
        caption=f"{llm} against the judgments: relevant or not. Assumed: unjudged passages taken to be irrelevant. "
        "κ: Cohen's, agreement beyond chance over the answered pairs; – where one side gives one answer only.",
    )  # fmt: skip
    if out:
        note(f"{entries - without} of {entries} entries have a grade: {out}")
    if found.usage["attempts"]:
        note(f"This time: {calls_made(found.usage)}")
    if found.lost_calls:
        note(lost_calls(found.lost_calls))


def _row(name: str, found: Agreement) -> list[str]:
    kappa = "–" if found.kappa is None else f"{found.kappa:.3f}"
    counts = [str(n) for n in (found.pairs, found.assumed_negatives, found.without_answer)]
    agree = NONE if found.agree is None else f"{100 * found.agree:.1f} %"
    return [name, *counts, agree, kappa, *(str(n) for n in found.table.values())]
