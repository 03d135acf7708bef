"""Where the gain comes from: was the inference right, what did right and wrong ones do, how far is the ceiling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from ..core import Task, UsageError
from .answers import names_answer
from .oracle import Oracle
from .policy import Piece, apply, get_policy, policy_for
from .values import Expansions

RIGHT, WRONG, UNKNOWN = "right", "wrong", "unknown"
Searchable = Task | list[tuple[Piece, ...]]
Score = Callable[[Searchable], Mapping[str, float]]
"""Retrieves with what it is given and returns one score per query id."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Queries whose inference went the same way."""

    queries: int
    raw: float | None
    # Mean score of the queries as they are; None for no queries.
    expanded: float | None
    gain: float | None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one task with one retriever."""

    task: str
    method: str
    policy: str
    oracle_policy: str
    inference: dict[str, str]
    # right, wrong or unknown (no answer to compare with, or no usable text), by query id.
    named: float | None
    # Share of right inferences among the queries that have an answer.
    judged_by: str
    # "words", or the name of the LLM.
    raw: float
    expanded: float
    oracle: float | None
    # The ceiling: expanded with the true answer.
    groups: dict[str, Group]


def infer(expansions: Expansions, task: Task) -> dict[str, str]:
    """For each expanded query whether its texts name the answer; one that fell back to the raw query is `unknown`."""
    verdicts = {}
    for query in task.queries:
        item = expansions.of(query.id)
        if item is None:
            continue
        if not query.answer or not item.usable:
            verdicts[query.id] = UNKNOWN
        else:
            verdicts[query.id] = RIGHT if names_answer(item.texts, query.answer) else WRONG
    return verdicts


def named_share(task: Task, inference: Mapping[str, str]) -> float | None:
    """Share of queries with an answer whose expansion names it; a failed generation names nothing."""
    asked = [query.id for query in task.queries if query.answer and query.id in inference]
    return sum(inference[i] == RIGHT for i in asked) / len(asked) if asked else None


def gains(inference: Mapping[str, str], raw: Mapping[str, float], expanded: Mapping[str, float]) -> dict[str, Group]:
    """Scores before and after, separately for right, wrong and unknown inferences."""
    groups = {}
    for verdict in (RIGHT, WRONG, UNKNOWN):
        ids = [i for i, v in inference.items() if v == verdict and i in raw]
        before, after = _mean([raw[i] for i in ids]), _mean([expanded.get(i, 0.0) for i in ids])
        gain = None if before is None or after is None else after - before
        groups[verdict] = Group(queries=len(ids), raw=before, expanded=after, gain=gain)
    return groups


def diagnose(
    expansions: Expansions,
    task: Task,
    kind: str,
    score: Score,
    *,
    policy: str | None = None,
    separator: str | None = None,
    inference: Mapping[str, str] | None = None,
    judged_by: str = "words",
) -> Diagnosis:
    """Compare raw, expanded and oracle queries; `inference` holds verdicts of another judge than word matching."""
    chosen = policy_for(expansions, kind, policy)
    verdicts = dict(infer(expansions, task) if inference is None else inference)

    def scored(searched: Searchable) -> dict[str, float]:
        return {i: value for i, value in score(searched).items() if expansions.of(i) is not None}

    raw = scored(task)
    expanded = scored(apply(expansions, task, kind, policy=chosen, separator=separator))
    ceiling = None
    if any(query.answer for query in task.queries):
        ceiling = scored(apply(Oracle().expand(task), task, kind, separator=separator))
    whole, after = _mean(list(raw.values())), _mean(list(expanded.values()))
    if whole is None or after is None:
        raise UsageError(f"{task.full_name} has no scored queries")
    return Diagnosis(
        task=task.full_name,
        method=expansions.method,
        policy=chosen.name,
        oracle_policy=get_policy("oracle", kind).name,
        inference=verdicts,
        named=named_share(task, verdicts),
        judged_by=judged_by,
        raw=whole,
        expanded=after,
        oracle=None if ceiling is None else _mean(list(ceiling.values())),
        groups=gains(verdicts, raw, expanded),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
