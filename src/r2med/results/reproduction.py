"""A repetition against what was published: task by task, matches, drifts or protocol differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from ..core import ResultError
from .ledger import Figure
from .schema import TaskResult

Verdict = Literal["matches", "drifts", "protocol differs"]


class TaskVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One task. Scores are in 0–1."""

    task: str
    verdict: Verdict
    published: float
    measured: float
    difference: float
    reasons: list[str]
    # Why the protocol differs.


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """One system on one collection."""

    system: str
    collection: str
    protocol: str
    protocol_fingerprint: str
    measure: str
    source: str
    date: str
    tolerance: float
    # In points of 100.
    tasks: list[TaskVerdict]
    missing: list[str]
    # Published tasks that were not run.
    notes: list[str] = []

    @property
    def ok(self) -> bool:
        """Every published task was run and matches."""
        return bool(self.tasks) and not self.missing and all(t.verdict == "matches" for t in self.tasks)


def verdicts(
    figure: Figure,
    results: Iterable[TaskResult],
    measure: str,
    *,
    tolerance: float,
    reasons: Mapping[str, list[str]],
) -> list[TaskVerdict]:
    """Judge each result whose task was published; `reasons` holds, by task, how its making differs."""
    published = figure.tasks(measure)
    data = dict(zip(figure.source.tasks, figure.source.fingerprints, strict=False))
    judged = []
    for result in results:
        name = result.task.name
        if name not in published:
            continue
        if measure not in result.measures:
            raise ResultError(f"{result.system.name} on {result.task.full_name} has no {measure}")
        why = list(reasons.get(name, []))
        if name in data and data[name] != result.task.fingerprint:
            why.append("the task's data are not those of the published figure")
        difference = result.measures[measure] - published[name]
        within = abs(difference) * 100 <= tolerance + 1e-9
        judged.append(
            TaskVerdict(
                task=result.task.full_name,
                verdict="protocol differs" if why else "matches" if within else "drifts",
                published=published[name],
                measured=result.measures[measure],
                difference=difference,
                reasons=why,
            )
        )
    return judged
