"""Which system to run: `r2med recommend` and `r2med tune`, and the experiments that come with r2med.

`r2med run @` lists those, `r2med run @NAME --plan` says what one needs, and `r2med run --plan` what any run would take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from .common import (
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
    tasks_option,
)

if TYPE_CHECKING:
    from ..api.machine import ShippedExperiment
    from ..fuse import Normalisation
    from ..pipeline.estimates import Needs
    from ..pipeline.recommend import Recommendation
    from ..pipeline.stages import StageEstimate


@click.command("recommend")
@click.option("--gpu-memory", default="0", show_default="no GPU", metavar="SIZE", help="Of your GPU, such as 24GB.")
@click.option(
    "--dollars",
    default=0.0,
    show_default=True,
    type=Number(min=0),
    help="What services may cost for R2MED once: its 876 queries and, for embeddings, its documents.",
)
@click.option(
    "--seconds-per-query",
    type=Number(min=0, min_open=True),
    help="How long a query may take when many are asked at once; services, whose time is not known, are left out.",
)
@click.option(
    "--gpu-speed",
    default=1.0,
    show_default=True,
    type=Number(min=0, min_open=True),
    help="Your GPU's share of an H200's speed, for which times are estimated.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Also what is not on the Pareto front, and models without a card."
)
@click.option("--limit", "-n", default=10, show_default=True, type=Whole(min=1), help="Show only the best.")
@json_option
def recommend(
    gpu_memory: str, dollars: float, seconds_per_query: float | None, gpu_speed: float, everything: bool, limit: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Say which pipelines fit a budget, best first: those that no cheaper one beats, with the exact commands.

    Scores are averages over R2MED that others published, the lowest where sources differ; memory and time are
    estimated from the number of parameters and measured speed. Nothing is run.
    """
    from ..api.machine import recommend

    found = recommend(
        gpu_memory=gpu_memory, dollars=dollars, seconds_per_query=seconds_per_query, gpu_speed=gpu_speed,
        everything=everything,
    )  # fmt: skip
    if as_json:
        emit(found)
        return
    shown = [*found.pipelines[:limit], *found.unranked]
    titles = ["System", "R2MED", "Published by", "Ours elsewhere", "GPU memory", "Dollars", "s/query"]
    ranked = f"all {len(found.pipelines)} that have a score"
    if not everything:
        ranked = f"the {len(found.pipelines)} that no other of the same or less cost beats"
    caption = (
        f"{found.fitting} of {found.considered} pipelines fit; ranked are {ranked}. R2MED: published nDCG@10 × 100, "
        "mean of the eight tasks, not measured by us. Ours elsewhere: mean over five other collections, measured by "
        "us. Dollars: at most, for R2MED once. GPU memory and s/query are estimates."
    )
    print_table(titles, [_cells(one) for one in shown], caption=caption, left=1)
    for one in shown:
        say()
        say(one.system)
        for line in one.commands:
            say(f"  {line}", whole=True)
        for line in one.needs.how:
            say(f"  estimate: {line}")
        for line in one.not_measured:
            say(f"  not measured here: {line}")
    for line in found.notes:
        note(line)
    if found.not_runnable:
        note(f"published with a higher score, but r2med lacks a part of each: {', '.join(found.not_runnable[:5])}")


def _cells(one: Recommendation) -> list[str]:
    from ..pipeline.estimates import memory_text

    need, own, seconds = one.needs, one.measured, one.needs.seconds_per_query
    scores = " / ".join(f"{score.ndcg_at_10:g}" for score in one.published)
    return [
        one.system,
        scores or "–",
        " / ".join(score.source for score in one.published) or "nobody",
        f"{sum(own.values()) / len(own):.1f}" if own else "–",
        memory_text(need.gpu_memory),
        "–" if need.dollars is None else f"{need.dollars:,.2f}",
        "–" if seconds is None else "<0.01" if seconds < 0.005 else f"{seconds:,.2f}",
    ]


@click.command("tune")
@click.argument("retrievers", nargs=-1, required=True, metavar="RETRIEVER RETRIEVER…")
@tasks_option(default=("mini-dev",))
@click.option(
    "--norm", default="min-max", show_default=True, type=click.Choice(["min-max", "z-score", "rank"]),
    help="How scores are put on a common scale.",
)  # fmt: skip
@click.option("--steps", default=10, show_default=True, type=Whole(min=1), help="Steps of the grid of weights.")
@pickle_option
@json_option
def tune(
    retrievers: tuple[str, ...], specs: tuple[str, ...], norm: Normalisation, steps: int, allow_pickle: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Choose the weights of a fusion, and print it as a system that runs on any other task.

    Weights that were chosen on the queries of a score make that score too good: choose on mini-dev, report on mini.
    """
    from ..api import experiments

    with progress() as bar:
        found = experiments.tune(
            *retrievers, tasks=specs, norm=norm, steps=steps, options=options_from({"allow_pickle": allow_pickle}, bar)
        )
    system = f"{'+'.join(retrievers)}.{found.spec}"
    if as_json:
        emit({"schema": 1, "system": system, **found._asdict()})
        return
    say(
        f"{found.spec}: nDCG@10 × 100 is {100 * found.score:.2f} on {', '.join(specs)} ({found.queries} queries), "
        f"{100 * found.equal:.2f} with equal weights"
    )
    say(f"r2med run --system {system}", whole=True)


def print_experiments(*, as_json: bool) -> None:
    """All of them, best published score first."""
    from ..api.machine import list_experiments
    from ..pipeline.estimates import memory_text

    found = list_experiments()
    if as_json:
        emit(found)
        return
    rows = [
        [f"@{e.name}", f"{e.published:.1f}", ", ".join(e.systems), memory_text(max(n.gpu_memory or 0 for n in e.needs)),
         "yes" if e.ready else "no"]
        for e in found
    ]  # fmt: skip
    caption = (
        "Published: nDCG@10 × 100, mean of R2MED's eight tasks, by others. Complete: whether this r2med has all its "
        "parts. r2med run @NAME --plan says what one needs."
    )
    print_table(["Experiment", "Published", "System", "GPU memory", "Complete"], rows, caption=caption, left=1)


def print_needs(name: str, plan: Callable[[list[str]], list[StageEstimate]], executor: str, *, as_json: bool) -> None:
    """What an experiment needs and would cost on R2MED; the stages too, where its data and parts are here."""
    from ..api.machine import list_experiments
    from ..core import R2MedError

    (found,) = list_experiments(name)
    stages, missing = None, found.missing
    if not missing:
        try:
            stages = plan(found.systems)
        except R2MedError as error:
            missing = str(error)
    if as_json:
        emit({"schema": 1, "experiment": found, "stages": stages, "missing": missing})
        return
    _print_needs(found)
    if stages is None:
        note(f"no plan by stages: {missing}")
    else:
        print_plan(stages, executor, as_json=False)


def _print_needs(found: ShippedExperiment) -> None:
    from ..pipeline.estimates import memory_text

    say(f"@{found.name}: {found.title}")
    say(f"published: {found.published:.1f} ({found.source}, {found.url})")
    for need in found.needs:
        say(f"system: {need.system}")
        titles = ["Model", "For", "Source", "Parameters", "GPU memory", "Licence", "How to get it"]
        rows = [
            [m.name, m.role, m.source, "unknown" if m.parameters is None else f"{m.parameters / 1e9:.3g} B",
             "none" if m.api else memory_text(m.gpu_memory), m.licence or "unknown", m.get or "nothing to do"]
            for m in need.models
        ]  # fmt: skip
        print_table(titles, rows, left=len(titles))
        chat = "yes, OpenAI-compatible (OPENAI_BASE_URL)" if any(m.chat for m in need.models) else "none"
        say(f"chat endpoint: {chat}")
        alone, together = memory_text(need.gpu_memory), memory_text(need.gpu_memory_together)
        say(f"GPU memory: {alone} stage by stage, {together} all at once")
        say(f"on R2MED once: {_asked(need)}")
        served = any(m.chat and not m.api for m in need.models)
        dollars = "unknown" if need.dollars is None else f"{need.dollars:,.2f} at most"
        say(f"dollars for services: {dollars}{' if you serve the chat model yourself' if served else ''}")
        if need.service_dollars is not None:
            say(f"dollars with the chat model at a service: {need.service_dollars:,.2f} at most")
        say(f"time: {_time(need.index_seconds)} to index, {_time(need.seconds_per_query)} a query at most")
        for line in need.how:
            say(f"estimate: {line}")
    for line in found.differs:
        say(f"differs from what was published: {line}")


def _asked(need: Needs) -> str:
    from ..core.table import counted

    if need.chat_calls is None:
        return "how many calls and tokens depends on the answers"
    tokens = {"prompts": need.prompt_tokens, "answers at most": need.answer_tokens}
    counts = (f"{what} {'unknown' if n is None else f'{n / 1e6:,.1f} million tokens'}" for what, n in tokens.items())
    return f"{counted(need.chat_calls, 'call')}; {', '.join(counts)}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "an unknown time"
    return f"{seconds / 60:,.0f} minutes" if seconds > 120 else f"{seconds:,.2f} s"


def print_plan(stages: list[StageEstimate], executor: str, *, as_json: bool) -> None:
    """The stages that would run, what of them is there already, and what the rest would take."""
    from ..core.table import NONE
    from ..pipeline.stages import totals

    total = totals(stages)
    if as_json:
        emit({"schema": 1, "executor": executor, "stages": stages, "totals": total})
        return
    left = [s for s in stages if s.cached != "yes"]
    finished = f"{total['stages'] - len(left)} of {total['stages']} stages are finished"
    if not left:
        say(f"{finished}: nothing is left to do.")
        return
    alike: dict[tuple[str, str, str], list[StageEstimate]] = {}  # the same stage of several tasks
    for stage in left:
        alike.setdefault((stage.stage, stage.what, stage.cached), []).append(stage)
    titles = ["Stage", "What", "Cached", "On", "Texts", "To do", "Tokens", "Cost", "Seconds", "Systems"]
    rows = [[*same, *_together(parts)] for same, parts in alike.items()]
    shown = [i for i in range(len(titles)) if any(row[i] != NONE for row in rows)]
    unknown = sum(stage.cached == "unknown" for stage in left)
    later = f" {unknown} of them cannot be estimated before others have run." if unknown else ""
    caption = (
        f"{total['to_do']} of {total['stages']} stages are left to do: {total['missing']:,} texts or calls, about "
        f"{total['tokens']:,} tokens, {_dollars(total['dollars'])} at most where a price is known.{later} "
        "Tokens are estimated from the length of the texts. Nothing was encoded or sent."
    )
    print_table([titles[i] for i in shown], [[row[i] for i in shown] for row in rows], caption=caption, left=4)
    if len(left) < len(stages):
        note(f"{finished} and not listed (--json lists every stage of every task)")


def _together(stages: list[StageEstimate]) -> list[str]:
    """Where a stage runs, and what is known of its parts, added up."""
    from ..core.table import NONE

    tasks = list(dict.fromkeys(stage.task for stage in stages))
    sums = []
    for name in ("texts", "missing", "tokens", "dollars", "seconds"):
        known = [number for stage in stages if (number := getattr(stage, name)) is not None]
        sums.append(sum(known) if known else None)
    *counts, cost, seconds = sums
    return [
        tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks",
        *(NONE if number is None else f"{number:,}" for number in counts),
        NONE if cost is None else _dollars(cost),
        NONE if seconds is None else f"{seconds:,.1f}",
        str(len({system for stage in stages for system in stage.systems})),
    ]


def _dollars(cost: float) -> str:
    return f"${cost:,.2f}" if cost >= 1 or cost == 0 else f"${cost:.4f}"
