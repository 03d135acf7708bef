"""Scores of a run: one value per query and measure, and their means; what a reranker changed; systems side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from ..core import NO_DOCUMENT, DataError, IdTable, MissingExtra, Qrels, Run, Task, UsageError
from .measures import (
    CUTOFFS,
    EMPTY,
    MAIN,
    STANDARD,
    USUAL,
    Float64,
    HitsAt,
    Measure,
    exact_hits,
    grades_along,
    parse_measures,
)

V = TypeVar("V")
SAME = 1e-9  # Differences of a query's score below this are rounding.


class ByMeasure(Mapping[str, V]):
    """Values by measure, under its printed name: `means["nDCG@10"]`.

    The key in JSON (`ndcg_at_10`), any other spelling and the `Measure` itself find the value too.
    """

    def __init__(self, values: Mapping[Measure, V]) -> None:
        self._values = dict(values)

    def __getitem__(self, measure: str | Measure) -> V:
        try:
            return self._values[Measure.parse(measure)]
        except (KeyError, UsageError):
            raise KeyError(str(measure)) from None

    def __iter__(self) -> Iterator[str]:
        return map(str, self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(dict(self))

    @property
    def measures(self) -> tuple[Measure, ...]:
        return tuple(self._values)

    def by_key(self) -> dict[str, V]:
        """The same under the keys of JSON."""
        return {measure.key: value for measure, value in self._values.items()}


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Every judged query has a row; one that the run lacks scores 0 and is counted, never dropped."""

    query_ids: IdTable
    per_query: ByMeasure[Float64]
    missing_queries: tuple[str, ...]
    without_positives: int
    micro_recall: dict[str, float]
    """By its key in JSON: the share of all relevant documents, whichever query they belong to."""
    judged_at_10: float | None = None
    """The mean share of the first ten documents that somebody judged; None where ties were averaged."""

    @property
    def means(self) -> ByMeasure[float]:
        """Mean over all judged queries of each measure."""
        return ByMeasure({m: float(self.per_query[m].mean()) for m in self.per_query.measures})

    def mean(self, measure: Measure | str = MAIN) -> float:
        """Mean of one measure."""
        asked = Measure.parse(measure)
        if asked not in self.per_query.measures:
            raise UsageError(f"{asked} was not computed here; ask for it: measures=[{str(asked)!r}]")
        return float(self.per_query[asked].mean())

    def to_dict(self) -> dict[str, float]:
        """Means and micro-averaged recall under the keys of JSON: what a result file holds."""
        return self.means.by_key() | self.micro_recall

    def to_pandas(self) -> Any:
        """A data frame: a row per query, a column per measure."""
        index = import_pandas().Index(list(self.query_ids), name="query_id")
        return import_pandas().DataFrame(dict(self.per_query), index=index)

    def __repr__(self) -> str:
        shown = [m for m in USUAL if m in self.per_query.measures] or self.per_query.measures[: len(USUAL)]
        scores = ", ".join(f"{m} {self.mean(m):.4f}" for m in shown)
        lost = f", {len(self.missing_queries)} without results score 0" if self.missing_queries else ""
        more = len(self.per_query) - len(shown)
        return f"Evaluation({len(self.query_ids)} queries{lost}: {scores}{f'; {more} more in .means' if more else ''})"

    def _repr_html_(self) -> str:
        from .tables import evaluation_table

        return evaluation_table(self).html()


def score(run: Run, qrels: Qrels | Task, measures: Iterable[Measure | str] = STANDARD) -> Evaluation:
    """Score a run against judgments, or against those of a task, as trec_eval does."""
    judgments = qrels.qrels if isinstance(qrels, Task) else qrels
    return evaluation_of(exact_hits(run, judgments), run, judgments, measures)


def evaluation_of(hits: HitsAt, run: Run, qrels: Qrels, measures: Iterable[Measure | str]) -> Evaluation:
    """The measures of hits that were found in a run."""
    if not len(qrels.query_ids):
        raise DataError("there are no judged queries to score")
    found = hits(1)
    total, here = int(found.relevant.sum()), run.query_ids.positions(qrels.query_ids) >= 0
    return Evaluation(
        query_ids=qrels.query_ids,
        per_query=ByMeasure({measure: measure.compute(hits) for measure in parse_measures(measures)}),
        missing_queries=tuple(q for q, known in zip(qrels.query_ids, here.tolist(), strict=True) if not known),
        without_positives=int((found.relevant == 0).sum()),
        micro_recall={
            f"recall_micro_at_{k}": float(found.chance[found.rank < k].sum()) / total if total else 0.0 for k in CUTOFFS
        },
        judged_at_10=None if found.judged_in_ten is None else float(found.judged_in_ten.mean()),
    )


def judged_without_results(run: Run, qrels: Qrels) -> int:
    """Judged queries for which nothing was retrieved: they score 0."""
    rows = run.query_ids.positions(qrels.query_ids)
    lengths = np.append(run.lengths(), 0)  # the last place stands for a query that the run lacks (-1)
    return int((lengths[rows] == 0).sum())


def mean_judged(shares: Iterable[float | None]) -> float | None:
    """judged@10 over several tasks; None where that of one is not known."""
    known = list(shares)
    return None if not known or None in known else sum(share or 0.0 for share in known) / len(known)


def rescored(run: Run, qrels: Qrels, measure: Measure | str) -> dict[str, float]:
    """One measure of each judged query, computed from a run: for measures that are not stored beside it."""
    evaluation = score(run, qrels, [measure])
    return dict(zip(evaluation.query_ids, evaluation.per_query[measure].tolist(), strict=True))


class BeforeAfter(msgspec.Struct, frozen=True, kw_only=True):
    """A reranker's effect on one task, by nDCG@10; scores are under the key that it has in JSON."""

    measure: str = MAIN.key
    depth: int  # How many candidates were reranked.
    queries: int  # Judged queries; all shares are of these.
    before: dict[str, float]
    after: dict[str, float]
    oracle: dict[str, float]  # The same candidates in the best order.
    helped: float  # Share of queries whose score rose.
    hurt: float  # Share of queries whose score fell.
    unchanged: float

    @property
    def share_of_possible(self) -> float | None:
        """The gain as a share of what the best order would have gained; None where there was nothing to gain."""
        before = self.before[self.measure]
        possible = self.oracle[self.measure] - before
        return (self.after[self.measure] - before) / possible if possible > SAME else None

    def as_notes(self) -> dict[str, object]:
        """Plain data for a result file."""
        return msgspec.structs.asdict(self) | {"share_of_possible": self.share_of_possible}


def before_after(first: Run, reranked: Run, qrels: Qrels, depth: int, *, rest: str = "keep") -> BeforeAfter:
    """Compare a reranked run with the candidates it was made of; `rest` as it was reranked with."""
    if first.query_ids != reranked.query_ids or first.doc_ids != reranked.doc_ids:
        raise DataError(f"runs {first.name!r} and {reranked.name!r} are not over the same queries and documents")
    runs = (first, reranked, oracle(first, qrels, depth, rest=rest))
    before, after, best = (score(run, qrels, [MAIN]) for run in runs)
    change = after.per_query[MAIN] - before.per_query[MAIN]
    return BeforeAfter(
        depth=depth,
        queries=len(change),
        before=before.means.by_key(),
        after=after.means.by_key(),
        oracle=best.means.by_key(),
        helped=float((change > SAME).mean()),
        hurt=float((change < -SAME).mean()),
        unchanged=float((np.abs(change) <= SAME).mean()),
    )


def oracle(first: Run, qrels: Qrels, depth: int, *, rest: str = "keep") -> Run:
    """The first `depth` candidates of each query by grade, equal grades in their given order.

    The remaining candidates follow unchanged, or are dropped with `rest="drop"`.
    """
    depth = min(depth, first.depth)
    docs = np.array(first.docs if rest == "keep" else first.docs[:, :depth])
    for _, row, grades in grades_along(first, qrels):
        value = np.where(grades == EMPTY, EMPTY, np.maximum(grades, 0))[:depth]
        docs[row, :depth] = docs[row, :depth][np.argsort(-value, kind="stable")]
    scores = np.where(docs == NO_DOCUMENT, -np.inf, np.arange(docs.shape[1], 0, -1)).astype(np.float32)
    return Run(first.query_ids, first.doc_ids, docs, scores, name=f"{first.name}.oracle@{depth}")


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


def import_pandas() -> Any:
    """The pandas module, which is optional."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra("making data frames", "interop") from None
    return pandas
