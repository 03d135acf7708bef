"""`r2med relabel`: an LLM as judge, and how far it agrees with people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import json_option, tasks_option
from .output import emit, note, print_table, progress

if TYPE_CHECKING:
    from ..pipeline.relabelling import Agreement

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
    from ..api.results import relabel

    with progress() as bar:

        def notify(task: str, what: str) -> None:
            bar.step(task, what) if task else note(f"Note: {what}")

        found = relabel(
            llm, tasks=specs, limit=limit, negatives=negatives, seed=seed, pool=pool, out=out, prompt=prompt,
            concurrency=concurrency, max_cost=max_cost, notify=notify, on_progress=bar.within,
        )  # fmt: skip
    overall, entries, without = found.overall, found.pool_entries, found.pool_without_answer
    if out and (overall.kappa is None or overall.kappa <= 0):
        note(f"{llm} does not agree with the judgments beyond chance: do not use these labels")
    if as_json:
        emit({
            "schema": 1, "llm": llm, "judge": found.judge, "tasks": found.tasks, "overall": overall,
            "pool": {"path": str(out), "entries": entries, "without_answer": without} if out else None,
            "notes": found.notes, "usage": found.usage, "warning": found.warning,
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


def _row(name: str, found: Agreement) -> list[str]:
    kappa = "–" if found.kappa is None else f"{found.kappa:.3f}"
    counts = [str(n) for n in (found.pairs, found.assumed_negatives, found.without_answer)]
    return [name, *counts, f"{100 * found.agree:.1f} %", kappa, *(str(n) for n in found.table.values())]
