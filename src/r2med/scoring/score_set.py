"""Per-query scores of several systems on the same queries: what intervals and tests are computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core import DataError, UsageError
from .evaluation import Evaluation, import_pandas
from .hits import Float64
from .measures import MAIN, Measure


class TaskScores(NamedTuple):
    """One measure on one task: a row per system, a column per query."""

    name: str
    query_ids: tuple[str, ...]
    scores: Float64


@dataclass(frozen=True)
class ScoreSet:
    """Systems side by side on tasks that all of them have.

    `of_tasks` says how many tasks belong to the whole: an average over fewer is marked incomplete wherever it goes.
    """

    systems: tuple[str, ...]
    tasks: tuple[TaskScores, ...]
    of_tasks: int
    measure: Measure = MAIN

    def __post_init__(self) -> None:
        if not self.systems or not self.tasks:
            raise UsageError("there are no scores to look at")
        for kind, names in (("system", self.systems), ("task", tuple(t.name for t in self.tasks))):
            if twice := next((n for n in names if names.count(n) > 1), None):
                raise UsageError(f"{kind} {twice!r} is given twice")
        if self.of_tasks < len(self.tasks):
            raise UsageError(f"{len(self.tasks)} tasks cannot be part of {self.of_tasks}")
        for task in self.tasks:
            if task.scores.shape != (len(self.systems), len(task.query_ids)) or not task.query_ids:
                raise UsageError(
                    f"{task.name}: {len(self.systems)} systems × {len(task.query_ids)} queries "
                    f"cannot have scores of shape {task.scores.shape}"
                )
            if not np.isfinite(task.scores).all():
                system, query = (int(v[0]) for v in np.nonzero(~np.isfinite(task.scores)))
                raise DataError(
                    f"{task.name}: {self.systems[system]!r} has a score that is not a number "
                    f"for query {task.query_ids[query]!r}"
                )

    @classmethod
    def of_evaluations(cls, evaluations: Mapping[str, Mapping[str, Evaluation]], measure: Measure = MAIN) -> ScoreSet:
        """From `{system: {task: evaluation}}`: the tasks that every system has, of all that are named."""
        named = list(dict.fromkeys(task for of_system in evaluations.values() for task in of_system))
        tasks = []
        for task in named:
            if not all(task in of_system for of_system in evaluations.values()):
                continue
            (first, reference), *others = ((system, of_system[task]) for system, of_system in evaluations.items())
            rows = [reference.per_query[measure]]
            for system, other in others:
                if set(other.query_ids) != set(reference.query_ids):
                    raise DataError(f"{task}: {first!r} and {system!r} were scored on other queries")
                rows.append(other.per_query[measure][other.query_ids.positions(reference.query_ids)])
            tasks.append(TaskScores(task, tuple(reference.query_ids), np.stack(rows)))
        return cls(tuple(evaluations), tuple(tasks), len(named), measure)

    @property
    def matrices(self) -> list[Float64]:
        return [task.scores for task in self.tasks]

    @property
    def complete(self) -> bool:
        return len(self.tasks) == self.of_tasks

    @property
    def queries(self) -> int:
        return sum(len(task.query_ids) for task in self.tasks)

    def to_pandas(self) -> Any:
        """A data frame: a row per task and query, a column per system."""
        pandas = import_pandas()
        frames = {t.name: pandas.DataFrame(t.scores.T, list(t.query_ids), list(self.systems)) for t in self.tasks}
        return pandas.concat(frames, names=["task", "query_id"])

    def _repr_html_(self) -> str:
        from .tables import score_set_table

        return score_set_table(self).html()


class Weights(NamedTuple):
    """How much the mean of each task counts in the two averages."""

    macro: Float64
    by_query: Float64

    @classmethod
    def of(cls, matrices: Sequence[Float64]) -> Weights:
        """Each task alike, and each query alike."""
        sizes = np.array([m.shape[1] for m in matrices], dtype=np.float64)
        return cls(np.full(len(sizes), 1.0 / len(sizes)), sizes / sizes.sum())
