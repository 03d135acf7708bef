"""`r2med expand`: generate before retrieving, and keep what was generated."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .common import emit, json_option, note, print_table, published_in, resolve_all, tasks_option
from .progress import progress, spending

if TYPE_CHECKING:
    from ..core import Task
    from ..expand import Diagnosis, Expander, Expansions
    from ..llm import Chat
    from ..tasks import TaskRef

METHODS = ("hyde", "query2doc", "lamer", "search-o1", "search-r1", "concepts", "oracle")
GENERATING_OPTIONS = ("passages", "max_tokens", "temperature", "prompts", "keep_prompts", "raw")
"""Of no use where no LLM is asked."""


@click.command("expand")
@tasks_option()
@click.option("--method", "-m", required=True, type=click.Choice(METHODS), help="How queries are expanded.")
@click.option(
    "--llm", "-l", metavar="NAME", default="",
    help="local, a name of the catalogue, openai:MODEL, any model behind OPENAI_BASE_URL, replay:FILE, published:NAME.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), help="Only the first N queries of each task.")
@click.option("--passages", "-n", type=click.IntRange(min=1), help="Generations a query.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Most tokens of one answer, reasoning included.")
@click.option("--temperature", type=click.FloatRange(min=0), help="Default: the method's, else the model's own.")
@click.option("--seed", type=int, default=0, show_default=True, help="Where the server takes one.")
@click.option("--prompts", type=click.Path(path_type=Path), help="A prompt file or pack instead of ours.")
@click.option("--retriever", "-r", default="bm25", show_default=True, help="First stage of lamer, tool of search-*.")
@click.option("--concurrency", default=16, show_default=True, type=click.IntRange(min=1), help="Calls in flight.")
@click.option("--rpm", type=click.IntRange(min=1), help="Most requests a minute.")
@click.option("--tpm", type=click.IntRange(min=1), help="Most tokens a minute.")
@click.option("--max-cost", type=click.FloatRange(min=0), help="Stop cleanly before more dollars than this are spent.")
@click.option("--dry-run", is_flag=True, help="Print calls, tokens and dollars at most; spend nothing.")
@click.option("--keep-prompts", is_flag=True, help="Store every prompt in full.")
@click.option("--raw", is_flag=True, help="Do not strip chatty preambles and markdown fences.")
@click.option("--diagnose", "diagnosed", metavar="RETRIEVER", help="Also say where the gain comes from.")
@click.option(
    "--judge", metavar="LLM", help="With --diagnose: an LLM decides what names the answer (no part of --dry-run)."
)
@json_option
def command(
    specs: tuple[str, ...], method: str, llm: str, limit: int | None, diagnosed: str | None, judge: str | None,
    dry_run: bool, as_json: bool, **choices: Any,
) -> None:  # fmt: skip
    """Generate texts for the queries of tasks; resumable: no finished call is made twice.

    Try it without key or network: r2med expand --method hyde --llm local --tasks mini --limit 2
    """
    from ..core import R2MedError

    if judge and not diagnosed:
        raise click.UsageError("--judge needs --diagnose RETRIEVER")
    refs = resolve_all(specs)
    with expander_for(method, llm, refs, choices, dry_run=dry_run) as expander:
        if expander.warning:
            note(f"Note: {expander.warning}")
        if dry_run:
            show_plan(expander, refs, limit, as_json=as_json)
            return
        done: list[dict[str, object]] = []
        made: list[tuple[TaskRef, Expansions]] = []
        stopped: R2MedError | None = None
        try:
            for ref, expansions in expand_all(expander, refs, limit):
                done.append({"task": ref.full_name, **expansions.summary()})
                made.append((ref, expansions))
            if diagnosed:
                with judge_for(judge, expander, choices) as chat:
                    for row, (ref, expansions) in zip(done, made, strict=True):
                        row["diagnosis"] = diagnosis_of(expansions, ref.load(), diagnosed, chat)
        except R2MedError as error:
            stopped = error
    finish(expander, done, stopped, as_json=as_json)


@contextmanager
def expander_for(
    method: str, llm: str, refs: Sequence[TaskRef], choices: dict[str, Any], *, dry_run: bool = False
) -> Iterator[Expander]:
    """What the options ask for, with its connections closed afterwards."""
    from ..core import UsageError
    from ..expand import Settings, get_expander
    from ..llm import Options
    from ..retrieve import get_retriever

    if not llm and method in METHODS[:5]:
        raise UsageError(f"{method} needs --llm: local, gpt4, replay:FILE, …")
    if llm and method not in METHODS[:5]:
        raise UsageError(f"{method} asks no LLM: leave out --llm")
    if not llm or llm.startswith(("replay:", "published:")):
        for name in GENERATING_OPTIONS:
            if choices[name] is not None and choices[name] is not False:
                raise UsageError(f"nothing is generated here: leave out --{name.replace('_', '-')}")
    settings = Settings(
        passages=choices["passages"], max_tokens=choices["max_tokens"], temperature=choices["temperature"],
        seed=choices["seed"], prompts=choices["prompts"], keep_prompts=choices["keep_prompts"],
        clean=not choices["raw"], concurrency=choices["concurrency"],
    )  # fmt: skip
    options = Options(
        concurrency=choices["concurrency"], requests_per_minute=choices["rpm"], tokens_per_minute=choices["tpm"],
        max_cost=choices["max_cost"], dry_run=dry_run,
    )  # fmt: skip
    expander = get_expander(
        f"{method}:{llm}" if llm else method, settings=settings, options=options,
        retriever=get_retriever(choices["retriever"]), published=published_in(refs),
    )  # fmt: skip
    try:
        yield expander
    finally:
        if chat := getattr(expander, "chat", None):
            chat.close()


@contextmanager
def judge_for(llm: str | None, expander: Expander, choices: dict[str, Any]) -> Iterator[Chat | None]:
    """The LLM that judges, with what the expander left of the budget."""
    from ..llm import Options, get_llm

    if llm is None:
        yield None
        return
    left = choices["max_cost"]
    if left is not None and (chat := getattr(expander, "chat", None)):
        left = max(left - chat.usage.cost, 0.0)
    judging = get_llm(llm, Options(concurrency=choices["concurrency"], max_cost=left))
    try:
        yield judging
    finally:
        judging.close()


def expand_all(expander: Expander, refs: Sequence[TaskRef], limit: int | None) -> Iterator[tuple[TaskRef, Expansions]]:
    """Each task in turn, with rate and cost so far."""
    usage = getattr(getattr(expander, "chat", None), "usage", None)
    with progress(len(refs)) as bar:
        tell = spending(bar)
        for ref in refs:
            task = ref.load()
            bar.show(task.full_name)
            expansions = expander.expand(task, limit=limit, on_progress=lambda done, total: tell(done, total, usage))
            bar.show(task.full_name, advance=True)
            yield ref, expansions


def show_plan(expander: Expander, refs: Sequence[TaskRef], limit: int | None, *, as_json: bool) -> None:
    """What would be spent."""
    plans = [(ref.full_name, expander.plan(ref.load(), limit=limit)) for ref in refs]
    totals = {
        f: sum(getattr(p, f) for _, p in plans) for f in ("calls", "stored", "prompt_tokens", "completion_tokens")
    }
    costs = [plan.cost for _, plan in plans]
    cost = None if None in costs else sum(c for c in costs if c is not None)
    if as_json:
        rows = [{"task": name, **{f: getattr(p, f) for f in (*totals, "cost", "store")}} for name, p in plans]
        emit(
            {"schema": 1, "dry_run": True, "expander": expander.name, "tasks": rows, "total": {**totals, "cost": cost}}
        )
        return
    print_table(
        ["Task", "Calls", "Stored", "Prompt tokens", "Answer tokens ≤", "Dollars ≤"],
        [
            [
                name,
                f"{p.calls:,}",
                f"{p.stored:,}",
                f"{p.prompt_tokens:,}",
                f"{p.completion_tokens:,}",
                _dollars(p.cost),
            ]
            for name, p in [*plans]
        ]
        + [["all", *(f"{value:,}" for value in totals.values()), _dollars(cost)]],
        caption="Nothing was sent. Prompt tokens are estimated; answers cost at most what is shown.",
    )


def diagnosis_of(expansions: Expansions, task: Task, spec: str, judge: Chat | None) -> Diagnosis:
    """Raw, expanded and oracle queries through one retriever."""
    from ..core import Task
    from ..expand import diagnose, retrieve_groups, separator_for
    from ..expand.judge import judge as ask
    from ..retrieve import get_retriever
    from ..scoring import rescored

    retriever = get_retriever(spec)

    def score(searched: Any) -> dict[str, float]:
        run = retriever.retrieve(searched) if isinstance(searched, Task) else retrieve_groups(retriever, task, searched)  # type: ignore[arg-type]
        return rescored(run, task.qrels, "nDCG@10")

    card = getattr(retriever, "card", None)
    return diagnose(
        expansions,
        task,
        retriever.kind,
        score,
        separator=separator_for(card.architecture) if card else None,
        inference=ask(expansions, task, judge) if judge else None,
        judged_by=judge.name if judge else "words",
    )


def finish(expander: Expander, done: list[dict[str, Any]], stopped: Any, *, as_json: bool) -> None:
    """Print what there is, also when a budget or a server ended the work early."""
    usage = getattr(getattr(expander, "chat", None), "usage", None)
    failed = bool(done) and all(set(row["generations"]) <= {"failed", "missing"} for row in done)
    if as_json:
        emit(
            {
                "schema": 1,
                "expander": expander.name,
                "method": expander.method,
                "description": expander.describe(),
                "warning": expander.warning,
                "tasks": done,
                "usage": usage.snapshot() if usage else None,
                "stopped": str(stopped) if stopped else None,
            }
        )
    elif done:
        print_table(
            ["Task", "Queries", "Status", "Raw query used", "Tokens", "Dollars"],
            [
                [row["task"], str(row["queries"]), ", ".join(f"{k} {v}" for k, v in row["status"].items()),
                 str(row["raw_query_used"]), f"{row['prompt_tokens'] + row['completion_tokens']:,}",
                 _dollars(row["cost"])]
                for row in done
            ],
            left=1,
        )  # fmt: skip
        for row in done:
            if row.get("store"):
                note(f"{row['task']}: {row['store']}")
            if "diagnosis" in row:
                _tell(row["task"], row["diagnosis"])
    if usage and not as_json:
        note(f"This time: {usage.calls:,} calls, ${usage.cost:.4f}; what was stored before is in the table too")
    if stopped:
        click.echo(f"r2med: {stopped}", err=True)
        sys.exit(stopped.exit_code)
    if failed:
        click.echo("r2med: not one query got a text", err=True)
        sys.exit(1)


def _tell(name: str, diagnosis: Diagnosis) -> None:
    ceiling = "–" if diagnosis.oracle is None else f"{diagnosis.oracle:.4f}"
    named = "–" if diagnosis.named is None else f"{100 * diagnosis.named:.0f} %"
    click.echo(
        f"{name}: raw {diagnosis.raw:.4f}, expanded {diagnosis.expanded:.4f}, oracle {ceiling}; "
        f"{named} name the answer (by {diagnosis.judged_by})"
    )
    for verdict, group in diagnosis.groups.items():
        if group.queries and group.gain is not None:
            click.echo(f"  {verdict}: {group.queries} queries, gain {group.gain:+.4f}")


def _dollars(cost: float | None) -> str:
    return "–" if cost is None else f"{cost:.4f}"
