"""What `r2med run` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .output import emit, note, print_table, say, show

if TYPE_CHECKING:
    from ..api import Scores
    from ..pipeline.estimate import StageEstimate
    from ..results import TaskResult


def print_outcome(outcome: Scores, *, markdown: bool) -> None:
    """The table, what rerankers did, and what a reader must know."""
    from ..report.scores import effects_table

    table, effects = outcome.table.table(), effects_table(outcome.results)
    if markdown:
        say(table.markdown(), lines=True)
    else:
        show(table)
    if effects and not markdown:
        say()
        show(effects)
    for result in outcome.results:
        _warn(result)
    for line in dict.fromkeys(line for result in outcome.results for line in _own_words(result)):
        note(line)
    if outcome.kept:
        note(f"{outcome.kept} of {len(outcome.results)} results were there already (--overwrite runs them again)")


def _own_words(result: TaskResult) -> list[str]:
    """That a system of the paper's protocol runs without the paper's words."""
    from ..results.protocols import own_words

    return [f"{result.system.name}: {said} (r2med protocol fetch r2med-paper)" for said in own_words(result.system)]


def _warn(result: TaskResult) -> None:
    for name, why in (result.notes.get("not_reused") or {}).items():  # type: ignore[attr-defined]
        note(f"{name}: {why}, so its results are never reused; give it a `version` to change that")
    where = f"{result.system.name} on {result.task.full_name}"
    if result.missing_queries:
        note(f"{where}: {result.missing_queries} queries retrieved nothing and score 0")
    if result.queries_without_positives:
        note(f"{where}: {result.queries_without_positives} queries have no positive judgment and score 0")
    if lost := result.notes.get("judgments_of_missing_documents"):
        note(f"{where}: {lost} positive judgments name documents that are not in the corpus")
    if verified := result.notes.get("verified"):
        note(f"{where}: cache verified, {verified}")
    expansion = result.notes.get("expansion")
    if isinstance(expansion, dict) and expansion.get("raw_query_used"):
        note(f"{where}: {expansion['raw_query_used']} queries had no usable expansion; the raw query was used")


def print_plan(stages: list[StageEstimate], executor: str, *, as_json: bool) -> None:
    """The stages that would run, what of them is there already, and what the rest would take."""
    from ..pipeline.estimate import totals

    total = totals(stages)
    if as_json:
        emit({"schema": 1, "executor": executor, "stages": stages, "totals": total})
        return
    rows = [
        [s.task, s.stage, s.what, s.cached, *(_count(n) for n in (s.texts, s.missing, s.tokens)), _dollars(s.dollars),
         _seconds(s.seconds), str(len(s.systems))]
        for s in stages
    ]  # fmt: skip
    titles = ["Task", "Stage", "What", "Cached", "Texts", "To do", "Tokens", "Cost", "Seconds", "Systems"]
    caption = (
        f"{total['to_do']} of {total['stages']} stages are left to do: {total['missing']:,} texts or calls, about "
        f"{total['tokens']:,} tokens, {_dollars(total['dollars'])} at most where a price is known. "
        "Tokens are estimated from the length of the texts. Nothing was encoded or sent."
    )
    print_table(titles, rows, caption=caption, left=4)


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:,.1f}"


def _dollars(cost: object) -> str:
    if not isinstance(cost, float):
        return "–"
    return f"${cost:,.2f}" if cost >= 1 or cost == 0 else f"${cost:.4f}"
