"""`r2med relabel`: an LLM as judge, and how far it agrees with people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import emit, json_option, note, print_table, resolve_all, tasks_option
from .progress import progress

if TYPE_CHECKING:
    from ..pipeline.relabelling import Agreement, Label
    from ..scoring.holes import PoolEntry

_PATH = click.Path(dir_okay=False, path_type=Path)


@click.command("relabel")
@tasks_option(default=())
@click.option("--llm", "-l", required=True, metavar="NAME", help="local, gpt4, openai:MODEL, replay:FILE …")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N queries of each task.")
@click.option(
    "--negatives",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    help="Random unjudged passages for each positive, taken to be irrelevant.",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of their choice.")
@click.option("--pool", type=_PATH, help="Also label this pool of `r2med compare --pool`; needs --out.")
@click.option("--out", type=_PATH, help="Where the labelled pool goes: .tsv, .jsonl.")
@click.option("--prompt", type=_PATH, help="A prompt file instead of ours.")
@click.option("--concurrency", default=16, show_default=True, type=click.IntRange(min=1), help="Calls in flight.")
@click.option("--max-cost", type=click.FloatRange(min=0), metavar="DOLLARS", help="Stop before more is spent.")
@json_option
def command(
    specs: tuple[str, ...], llm: str, limit: int | None, negatives: int, seed: int, pool: Path | None,
    out: Path | None, prompt: Path | None, concurrency: int, max_cost: float | None, as_json: bool,
) -> None:  # fmt: skip
    """Let an LLM judge passages that people judged, and say how far they agree (Cohen's κ).

    With --pool it then labels what nobody judged; the agreement says what those labels are worth. Answers are kept:
    the same command goes on where it stopped. Default tasks: those of the pool, else mini.
    """
    from ..core.budget import Budget
    from ..core.options import Options
    from ..llm import get_llm
    from ..pipeline.relabelling import LlmJudge, agreement, label_pool, relabel_task
    from ..scoring.holes import write_pool

    entries = _open_pool(pool, out)
    refs = resolve_all(specs or dict.fromkeys(e.task for e in entries) or ("mini",))
    for ref in refs:
        ref.present()
    chat = get_llm(llm, Options(concurrency=concurrency, budget=None if max_cost is None else Budget(max_cost)))
    try:
        judge = LlmJudge(chat, prompt=prompt)
        if chat.warning:
            note(f"Note: {chat.warning}")
        labels: dict[str, list[Label]] = {}
        with progress(len(refs) + bool(entries)) as bar:
            for ref in refs:
                bar.show(ref.full_name)
                labels[ref.full_name] = relabel_task(
                    judge, ref.load(), negatives=negatives, limit=limit, seed=seed, on_progress=bar.within
                )
                bar.show(ref.full_name, advance=True)
            if out:
                bar.show(str(pool))
                entries = label_pool(judge, entries, bar.within)
                write_pool(entries, out)
        usage = chat.usage.snapshot()
    finally:
        chat.close()
    found = {name: agreement(of_task) for name, of_task in labels.items()}
    overall = agreement([label for of_task in labels.values() for label in of_task])
    if out and (overall.kappa is None or overall.kappa <= 0):
        note(f"{llm} does not agree with the judgments beyond chance: do not use these labels")
    open_ = sum(e.grade is None for e in entries)
    if as_json:
        emit({
            "schema": 1, "llm": llm, "judge": judge.describe(), "tasks": found, "overall": overall,
            "pool": {"path": str(out), "entries": len(entries), "without_answer": open_} if out else None,
            "notes": judge.notes, "usage": usage, "warning": chat.warning,
        })  # fmt: skip
        return
    rows = [_row(name, a) for name, a in found.items()] + ([_row("All", overall)] if len(found) > 1 else [])
    print_table(
        ["Task", "Pairs", "Assumed", "No answer", "Agree", "κ", "Both", "Only people", "Only LLM", "Neither"],
        rows,
        caption=f"{llm} against the judgments: relevant or not. Assumed: unjudged passages taken to be irrelevant. "
        "κ: Cohen's, agreement beyond chance over the answered pairs; – where one side gives one answer only.",
    )  # fmt: skip
    if out:
        note(f"{len(entries) - open_} of {len(entries)} entries have a grade: {out}")


def _open_pool(pool: Path | None, out: Path | None) -> list[PoolEntry]:
    """The pool to label, checked before the first paid call."""
    from ..core import UsageError
    from ..scoring.holes import check_pool_name, read_pool

    if pool is None and out is None:
        return []
    if pool is None or out is None:
        raise UsageError("--pool names the pool to label and --out where it goes: give both or neither")
    check_pool_name(out)
    entries = read_pool(pool)
    if not entries:
        raise UsageError(f"{pool}: has no entries")
    if not all(entry.query and entry.passage for entry in entries):
        raise UsageError(f"{pool}: has entries without texts; make it from stored results, not from run files")
    return entries


def _row(name: str, found: Agreement) -> list[str]:
    kappa = "–" if found.kappa is None else f"{found.kappa:.3f}"
    counts = [str(n) for n in (found.pairs, found.assumed_negatives, found.without_answer)]
    return [name, *counts, f"{100 * found.agree:.1f} %", kappa, *(str(n) for n in found.table.values())]
