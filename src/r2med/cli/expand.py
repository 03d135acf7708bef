"""`r2med expand`: generate before retrieving, and keep what was generated."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..expand import expanders
from .common import (
    Number,
    Whole,
    calls_made,
    completing,
    emit,
    json_option,
    lost_calls,
    note,
    options_from,
    pickle_option,
    print_table,
    progress,
    retry_option,
    say,
    spending,
    tasks_option,
)

if TYPE_CHECKING:
    from ..core.spec import Spec
    from ..expand import Diagnosis, Expander
    from ..pipeline.run import TaskSource

TEXT_METHODS = [entry.name for entry in expanders if getattr(entry.target, "makes_text", True)]
GENERATING = ("passages", "max_tokens", "temperature", "prompts", "protocol", "keep_prompts", "raw")
"""Options of no use where no chat model is asked."""


@click.command("expand")
@tasks_option()
@click.option(
    "--method",
    "-m",
    required=True,
    metavar="METHOD",
    shell_complete=completing("expander"),
    help=f"How queries are expanded: {', '.join(TEXT_METHODS)}, a plug-in, module:attr.",
)
@click.option(
    "--llm", "-l", metavar="NAME", default="", shell_complete=completing("chat"),
    help="A chat model of `r2med models`, openai:MODEL, any model behind OPENAI_BASE_URL, replay:FILE, published:NAME.",
)  # fmt: skip
@click.option("--limit", type=Whole(min=1), help="Only the first N queries of each task.")
@click.option("--passages", "-n", type=Whole(min=1), help="Generations a query.")
@click.option("--max-tokens", type=Whole(min=1), help="Most tokens of one answer, reasoning included.")
@click.option("--temperature", type=Number(min=0), help="Default: the method's, else the model's own.")
@click.option("--seed", type=int, default=0, show_default=True, help="Where the server takes one.")
@click.option("--prompts", type=click.Path(path_type=Path), help="A prompt file or pack instead of ours.")
@click.option("--protocol", type=click.Choice(["r2med-paper"]), help="Prompts and sampling of the paper's scripts.")
@click.option("--retriever", "-r", help="What lamer, thinkqe … search with.  [default: bm25]")
@click.option("--concurrency", default=16, show_default=True, type=Whole(min=1), help="Calls in flight.")
@click.option("--rpm", type=Whole(min=1), help="Most requests a minute.")
@click.option("--tpm", type=Whole(min=1), help="Most tokens a minute.")
@click.option("--max-cost", type=Number(min=0), help="Stop cleanly before more dollars than this are spent.")
@click.option("--dry-run", is_flag=True, help="Print calls, tokens and dollars at most; spend nothing.")
@retry_option
@click.option("--keep-prompts", is_flag=True, help="Store every prompt in full.")
@click.option("--raw", is_flag=True, help="Do not strip chatty preambles and markdown fences.")
@pickle_option
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

    Try it without key or network: r2med expand --method hyde --llm smollm2 --tasks mini --limit 2
    """
    from ..api import experiments as api
    from ..core import R2MedError
    from ..pipeline import Builder

    if judge and not diagnosed:
        raise click.UsageError("--judge needs --diagnose RETRIEVER")
    spec = expander_spec(method, llm, choices)
    refs = api.resolve_tasks(specs)
    done: list[dict[str, Any]] = []
    stopped: R2MedError | None = None
    with Builder(options_from(choices)) as builder:
        expander = builder.expander(spec)
        if expander.warning:
            note(f"Note: {expander.warning}")
        if dry_run:
            show_plan(expander, refs, limit, as_json=as_json)
            return
        usage = expander.chat.usage if expander.chat is not None else None
        try:
            with progress(len(refs)) as bar:
                tell = spending(bar)
                for ref in refs:
                    task = ref.load()
                    bar.show(task.full_name)
                    expansions = expander.expand(
                        task, limit=limit, on_progress=lambda some, total: tell(some, total, usage)
                    )
                    bar.show(task.full_name, advance=True)
                    done.append({"task": task.full_name, **expansions.summary()})
                    if diagnosed:
                        done[-1]["diagnosis"] = api.diagnose(expansions, task, diagnosed, judge=judge, build=builder)
        except R2MedError as error:
            stopped = error
    finish(expander, done, stopped, as_json=as_json)


def expander_spec(method: str, llm: str, choices: dict[str, Any]) -> Spec:
    """The expander that the options ask for."""
    from ..core import UsageError
    from ..core.options import content_at

    entry = expanders.find(method)
    if len(expanders.split(method)) > 1:
        raise UsageError(
            f"{method} is a chain: generate with one method after the other, then r2med run --expand {method}"
        )
    if entry is not None and not getattr(entry.target, "makes_text", True):
        raise UsageError(f"{method} makes no texts that could be kept: r2med run --expand {method}")
    if entry is None:
        expanders.parse(method)  # which refuses what is neither a name nor module:attr
    asks = entry is not None and bool(entry.argument)
    if not llm and asks:
        raise UsageError(f"{method} needs --llm: smollm2, gpt4, replay:FILE, …")
    if llm and not asks:
        raise UsageError(f"{method} asks no chat model: leave out --llm")
    generates = bool(llm) and not llm.startswith(("replay:", "published:"))
    searches = generates and entry is not None and "retriever" in entry.parameters
    _refuse_unused(choices, generates=generates, searches=searches)
    spec = expanders.parse(f"{method}:{llm}" if llm else method)
    if not generates:
        return spec
    prompts = content_at(str(choices["prompts"]), "prompts") if choices["prompts"] else None
    given = {key: choices[key] for key in ("passages", "max_tokens", "temperature", "seed", "protocol")}
    if searches:
        given["retriever"] = choices["retriever"] or "bm25"
    return expanders.changed(spec, prompts=prompts, raw=choices["raw"] or None, **given)


def _refuse_unused(choices: dict[str, Any], *, generates: bool, searches: bool) -> None:
    """Options of no use here are refused, not ignored."""
    from ..core import UsageError

    for name in () if generates else GENERATING:
        if choices[name] is not None and choices[name] is not False:
            raise UsageError(f"nothing is generated here: leave out --{name.replace('_', '-')}")
    if choices["retriever"] and not searches:
        raise UsageError("nothing is searched before texts are generated here: leave out --retriever")


def show_plan(expander: Expander, refs: Sequence[TaskSource], limit: int | None, *, as_json: bool) -> None:
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
        [[name, *(f"{getattr(p, field):,}" for field in totals), _dollars(p.cost)] for name, p in plans]
        + [["all", *(f"{value:,}" for value in totals.values()), _dollars(cost)]],
        caption="Nothing was sent. Prompt tokens are estimated; answers cost at most what is shown.",
    )


def finish(expander: Expander, done: list[dict[str, Any]], stopped: Any, *, as_json: bool) -> None:
    """Print what there is, also when a budget or a server ended the work early."""
    usage = expander.chat.usage if expander.chat is not None else None
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
                 "–" if usage is None else _dollars(row["cost"])]
                for row in done
            ],
            left=1,
        )  # fmt: skip
        for row in done:
            if row.get("store"):
                note(f"{row['task']}: {row['store']}")
            if trouble := _trouble(row):
                note(f"{row['task']}: {trouble}")
            if "diagnosis" in row:
                _tell(row["task"], row["diagnosis"])
    if usage and not as_json:
        note(f"This time: {calls_made(usage.snapshot())}; what was stored before is in the table too")
    if stopped:
        note(f"r2med: {stopped}")
        sys.exit(stopped.exit_code)
    if failed:
        note("r2med: not one query got a text")
        sys.exit(1)


def _trouble(row: dict[str, Any]) -> str:
    """What went wrong with the calls behind the texts of a task."""
    from ..core.table import counted

    parts = []
    if row["retries"]:
        parts.append(f"{counted(row['retries'], 'retry', 'retries')} in all")
    if row["rate_limits"]:
        parts.append(f"rate limited {counted(row['rate_limits'], 'time')}")
    if lost := row.get("lost_calls"):
        parts.append(lost_calls(lost))
    return ", ".join(parts)


def _tell(name: str, diagnosis: Diagnosis) -> None:
    from ..core.table import counted, points, signed

    named = "–" if diagnosis.named is None else f"{100 * diagnosis.named:.0f} %"
    say(
        f"{name}: nDCG@10 × 100 is {points(diagnosis.raw)} with raw queries, {points(diagnosis.expanded)} expanded, "
        f"{points(diagnosis.oracle)} with the answers; the texts of {named} of the queries name the answer (by "
        f"{diagnosis.judged_by})"
    )
    for verdict, group in diagnosis.groups.items():
        if group.queries and group.gain is not None:
            say(f"  {verdict}: {counted(group.queries, 'query', 'queries')}, gain {signed(group.gain)}")


def _dollars(cost: float | None) -> str:
    return "price unknown" if cost is None else f"{cost:.4f}"
