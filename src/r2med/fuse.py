"""Fusion: one ranking from several, by ranks or by scores.

    rrf:k=100,ties=rank        weighted:w=0.7/0.3        combsum:norm=z-score        combmnz        tuned

Sums are put in trec_eval's order through one 64-bit number per document: the bits of its sum, turned so that a larger
sum is a smaller number, above its place among ties. Sorting those numbers orders by score and tie at once, several
times faster than sorting positions by two keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import product
from typing import Annotated, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from .core import NO_DOCUMENT, DataError, Run, Task, UsageError
from .core.columns import Int32
from .core.queries import Explanation, Share
from .core.registry import Registry
from .core.spec import Spec
from .scoring import MAIN, rescored

Float64 = npt.NDArray[np.float64]
UInt64 = npt.NDArray[np.uint64]
Normalisation = Literal["min-max", "z-score", "rank"]
NORMALISATIONS: tuple[Normalisation, ...] = get_args(Normalisation)
Norm = Annotated[Normalisation, Meta(description="how the scores of each list are brought to one scale")]
Weights = Annotated[tuple[float, ...], Meta(description="one weight per retriever; equal ones where none are given")]
Ties = Literal["id", "rank"]
RRF_K = 60
STEPS, FOLDS = 10, 5
LEAST = 1e-30  # Of the largest weight, which is 1 / LEAST at most: float32 scores would be all 0, or infinite.
_LOW, _SIGN, _ALL = np.uint64(0xFFFFFFFF), np.uint32(1 << 31), np.uint32(0xFFFFFFFF)
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
"""Sorts behind every document."""

fusions: Registry[Fusion] = Registry("fusion")


class Fusion(ABC):
    """How rankings become one."""

    spec: Spec
    times_lists: ClassVar[bool] = False  # whether a sum is multiplied by the number of rankings that hold the document

    def describe(self) -> dict[str, object]:
        """Everything that changes a fused ranking."""
        return self.spec.data()

    def check(self, lists: int) -> None:
        """Refuse what cannot be fused so."""
        if lists < 2:
            raise UsageError(f"fusion {self.spec} needs at least two retrievers")

    def gains(self, runs: Sequence[Run]) -> list[Float64] | None:
        """What each place of each ranking adds to its document; None where that is not a sum."""
        del runs
        return None

    def explain(self, runs: Sequence[Run], documents: Sequence[int]) -> list[Explanation]:
        """What each ranking adds to the scores of some documents, by their positions, for the first query."""
        gains = self.gains(runs)
        if gains is None:
            return [Explanation(f"Several rankings, fused by {self.spec}.")] * len(documents)
        found = []
        for document in documents:
            places = [np.flatnonzero(run.docs[0] == document).tolist() for run in runs]
            times = sum(map(len, places)) if self.times_lists else 1
            shares = [
                Share(run.name, times * float(gain[0, place]), (("rank", place + 1),))
                for run, gain, held in zip(runs, gains, places, strict=True)
                for place in held
            ]
            found.append(Explanation(f"A sum over the rankings that hold the document, by {self.spec}.", tuple(shares)))
        return found

    @abstractmethod
    def fuse(self, runs: Sequence[Run], task: Task, depth: int, name: str) -> Run:
        """One run from several over the same task."""


@fusions.register("rrf")
class ReciprocalRank(Fusion):
    """Reciprocal-rank fusion: a document scores the sum of 1 / (k + rank) over the rankings that hold it."""

    def __init__(
        self,
        k: Annotated[int, Meta(ge=0, description="constant added to every rank")] = RRF_K,
        ties: Annotated[
            Ties, Meta(description="order of equal sums: id descending, or the best rank and then id ascending")
        ] = "id",
    ) -> None:
        self.k, self.ties, self.spec = k, ties, fusions.spec("rrf", k=k, ties=ties)

    def gains(self, runs: Sequence[Run]) -> list[Float64]:
        """By the rank alone."""
        return [np.broadcast_to(1.0 / (self.k + np.arange(1, run.depth + 1)), run.docs.shape) for run in runs]

    def fuse(self, runs: Sequence[Run], task: Task, depth: int, name: str) -> Run:
        """Fuse by ranks; scores do not matter."""
        del task
        gains = self.gains(runs)
        if self.ties == "rank":
            return merge_by_rank(runs, gains, depth=depth, name=name)
        return merge(runs, gains, depth=depth, name=name)


class ScoreFusion(Fusion):
    """Fusion by scores on a common scale; a document that a list lacks gets 0 from it."""

    norm: Normalisation

    def weights(self, lists: int) -> Sequence[float]:
        """The weight of each list."""
        return [1.0] * lists

    def gains(self, runs: Sequence[Run]) -> list[Float64]:
        """Scores on a common scale, weighted."""
        weights = self.weights(len(runs))
        return [weight * normalised(run, self.norm) for run, weight in zip(runs, weights, strict=True)]

    def fuse(self, runs: Sequence[Run], task: Task, depth: int, name: str) -> Run:
        """Sum the weighted scores."""
        del task
        return merge(runs, self.gains(runs), depth=depth, name=name, times_lists=self.times_lists)


@fusions.register("weighted")
class Weighted(ScoreFusion):
    """The weighted sum of scores."""

    def __init__(self, w: Weights = (), norm: Norm = "min-max") -> None:
        self.w, self.norm, self.spec = tuple(w), norm, fusions.spec("weighted", w=tuple(w), norm=norm)

    def check(self, lists: int) -> None:
        """As many weights as retrievers."""
        super().check(lists)
        check_weights(self.w or None, lists)

    def weights(self, lists: int) -> Sequence[float]:
        """The weight of each list."""
        return check_weights(self.w or None, lists)


@fusions.register("combsum")
class CombSum(ScoreFusion):
    """The sum of scores."""

    def __init__(self, norm: Norm = "min-max") -> None:
        self.norm, self.spec = norm, fusions.spec("combsum", norm=norm)


@fusions.register("combmnz")
class CombMnz(ScoreFusion):
    """The sum of scores times the number of lists that hold the document."""

    times_lists = True

    def __init__(self, norm: Norm = "min-max") -> None:
        self.norm, self.spec = norm, fusions.spec("combmnz", norm=norm)


@fusions.register("tuned")
class Tuned(Fusion):
    """Weights by cross-validation: a query is fused only with weights that were chosen without it.

    Weights come from the grid of all shares in steps of 1 / `steps`; among weights of equal quality the most even ones
    win. Queries are dealt into folds by a seeded shuffle of their sorted ids, so that neither their order nor others'
    runs change the folds.
    """

    def __init__(
        self,
        norm: Norm = "min-max",
        folds: Annotated[int, Meta(ge=2, description="parts of the queries that are held out in turn")] = FOLDS,
        steps: Annotated[int, Meta(ge=1, description="steps of the grid of weights")] = STEPS,
        seed: Annotated[int, Meta(ge=0, description="of the shuffle that deals queries into folds")] = 0,
    ) -> None:
        self.norm, self.folds, self.steps, self.seed = norm, folds, steps, seed
        self.spec = fusions.spec("tuned", norm=norm, folds=folds, steps=steps, seed=seed)

    def fuse(self, runs: Sequence[Run], task: Task, depth: int, name: str) -> Run:
        """Fuse fold by fold; the folds and their weights are in the run's notes."""
        query_ids = list(runs[0].query_ids)
        if self.folds > len(query_ids):
            raise UsageError(f"{len(query_ids)} queries cannot make {self.folds} folds")
        grid = weight_grid(len(runs), self.steps)
        fused = [Weighted(weights, self.norm).fuse(runs, task, depth, name) for weights in grid]
        quality = np.array([_quality(run, task, query_ids) for run in fused])
        member = fold_of(query_ids, self.folds, self.seed)
        width = max(run.depth for run in fused)
        docs = np.full((len(query_ids), width), NO_DOCUMENT, dtype=np.int32)
        scores = np.full(docs.shape, -np.inf, dtype=np.float32)
        made = []
        for fold in range(self.folds):
            inside = member == fold
            best, score, voters = _choose(quality[:, ~inside])
            chosen = fused[best]
            docs[inside, : chosen.depth], scores[inside, : chosen.depth] = chosen.docs[inside], chosen.scores[inside]
            held_out = tuple(q for q, own in zip(query_ids, inside.tolist(), strict=True) if own)
            made.append(Fold(held_out, grid[best], voters, score))
        notes: dict[str, object] = {"fusion": {**self.describe(), "folds": [fold._asdict() for fold in made]}}
        return Run(runs[0].query_ids, runs[0].doc_ids, docs, scores, name=name, notes=notes)


class TunedWeights(NamedTuple):
    """Weights that were chosen on some tasks, as a fusion that any other task can be run with."""

    spec: str
    weights: tuple[float, ...]
    score: float
    """nDCG@10 with them on the tasks they were chosen on, the mean of tasks."""
    equal: float
    """The same with equal weights."""
    queries: int
    """Judged queries of those tasks."""


def best_weights(
    ranked: Sequence[tuple[Task, Sequence[Run]]], *, norm: Normalisation, steps: int, depth: int
) -> TunedWeights:
    """The weights of the grid with the best nDCG@10 over tasks that count alike; of equals the most even ones."""
    lists = len(ranked[0][1])
    grid = [tuple(check_weights(None, lists)), *weight_grid(lists, steps)]
    means, queries = np.zeros(len(grid)), 0
    for task, runs in ranked:
        fused = (Weighted(weights, norm).fuse(runs, task, depth, "") for weights in grid)
        quality = np.array([_quality(run, task, task.query_ids) for run in fused])
        judged = ~np.isnan(quality[0])
        if not judged.any():
            raise UsageError(f"{task.full_name} has no judged query: weights cannot be chosen on it")
        means += quality[:, judged].mean(axis=1) / len(ranked)
        queries += int(judged.sum())
    best = 1 + int(np.argmax(means[1:] >= means[1:].max() - 1e-12))
    spec = fusions.spec("weighted", w=grid[best], norm=norm)
    return TunedWeights(str(spec), grid[best], float(means[best]), float(means[0]), queries)


class Fold(NamedTuple):
    """Queries that were held out together, and the weights that all the others chose."""

    queries: tuple[str, ...]
    weights: tuple[float, ...]
    chosen_on: int
    """How many queries had a say."""
    score: float
    """Their mean nDCG@10 with these weights."""


def _quality(run: Run, task: Task, query_ids: Sequence[str]) -> list[float]:
    """nDCG@10 of each query; those that are not judged take no part in the choice."""
    values = rescored(run, task.qrels, MAIN)
    return [values.get(query_id, np.nan) for query_id in query_ids]


def weight_grid(lists: int, steps: int) -> list[tuple[float, ...]]:
    """All ways to share 1 among the lists in steps, the most even ones first."""
    shares = [s for s in product(range(steps + 1), repeat=lists) if sum(s) == steps]
    shares.sort(key=lambda s: (max(s) - min(s), s))
    return [tuple(part / steps for part in share) for share in shares]


def fold_of(query_ids: Sequence[str], folds: int, seed: int) -> npt.NDArray[np.int64]:
    """The fold of each query."""
    order = sorted(range(len(query_ids)), key=query_ids.__getitem__)
    dealt = np.random.default_rng(seed).permutation(len(order)) % folds
    member = np.empty(len(order), dtype=np.int64)
    member[order] = dealt
    return member


def _choose(quality: npt.NDArray[np.float64]) -> tuple[int, float, int]:
    """The row with the best mean over judged queries, the first of equals."""
    judged = ~np.isnan(quality[0])
    if not judged.any():
        raise UsageError("no query outside a fold is judged: weights cannot be chosen")
    means = quality[:, judged].mean(axis=1)
    best = int(np.argmax(means >= means.max() - 1e-12))
    return best, float(means[best]), int(judged.sum())


def check_weights(weights: Sequence[float] | None, lists: int) -> list[float]:
    """As many non-negative weights as lists, of a size that float32 can show; equal ones where none are given."""
    if weights is None:
        return [1.0 / lists] * lists
    if len(weights) != lists:
        raise UsageError(f"{lists} rankings need {lists} weights, not {len(weights)}")
    if not all(np.isfinite(w) and w >= 0 for w in weights) or not any(weights):
        raise UsageError(f"weights must be 0 or more and not all 0, not {', '.join(f'{w:g}' for w in weights)}")
    if not LEAST <= max(weights) <= 1 / LEAST:
        raise UsageError(f"the largest weight must lie between {LEAST:g} and {1 / LEAST:g}, not {max(weights):g}")
    return [float(w) for w in weights]


def normalised(run: Run, how: Normalisation) -> Float64:
    """Scores of each query's list on a common scale, 0 for a place that holds nothing.

    `min-max` puts a list between 0 and 1. `z-score` measures from the list's lowest score in standard deviations:
    the usual z-score moved by a constant of the list, which changes no order among documents that are in it and lets
    0 stand for a document that is not. `rank` goes from 1 down in equal steps, whatever the scores are. A list of
    equal scores says only that its documents were found: all get 1.
    """
    if how not in NORMALISATIONS:
        raise UsageError(f"unknown normalisation {how!r}; known: {', '.join(NORMALISATIONS)}")
    held = run.docs >= 0
    sizes = np.maximum(held.sum(axis=1, keepdims=True), 1)
    if how == "rank":
        return np.where(held, 1.0 - np.arange(run.depth) / sizes, 0.0)
    if not run.depth:
        return np.zeros(run.docs.shape)
    scores = np.where(held, run.scores, 0.0).astype(np.float64)
    if not np.isfinite(scores).all():
        raise DataError(f"run {run.name!r} has scores that are not finite: fuse it by rank")
    low = np.where(held, scores, np.inf).min(axis=1, keepdims=True)
    above = np.where(held, scores - low, 0.0)
    if how == "min-max":
        scale = above.max(axis=1, keepdims=True)
    else:
        mean = above.sum(axis=1, keepdims=True) / sizes
        scale = np.sqrt((np.where(held, above - mean, 0.0) ** 2).sum(axis=1, keepdims=True) / sizes)
    flat = scale <= 0
    return np.where(held, np.where(flat, 1.0, above / np.where(flat, 1.0, scale)), 0.0)


def same_ground(runs: Sequence[Run]) -> None:
    """Refuse runs that cannot be put together."""
    if not runs:
        raise UsageError("nothing to fuse")
    first = runs[0]
    for run in runs[1:]:
        if run.doc_ids != first.doc_ids or run.query_ids != first.query_ids:
            raise DataError(f"runs {first.name!r} and {run.name!r} are not over the same queries and documents")


def merge(
    runs: Sequence[Run], gains: Sequence[Float64], *, depth: int, name: str, times_lists: bool = False
) -> Run:  # fmt: skip
    """One run: each document scores the sum of its gains, times the number of lists that hold it if asked.

    `gains` has a number for every place of every run; sums are made in float64 and rounded once to float32.
    """
    if depth < 1:
        raise UsageError(f"depth must be 1 or more, not {depth}")
    same_ground(runs)
    first = runs[0]
    tie_rank = first.doc_ids.tie_rank
    documents = len(first.doc_ids)
    depth = min(depth, documents)
    width = min(sum(run.depth for run in runs), documents)
    keys = np.full((len(first), width), _EMPTY, dtype=np.uint64)
    sums, lists = np.zeros(documents), np.zeros(documents, dtype=np.int32)
    for row in range(len(first)):
        found = _accumulate(sums, lists, [run.docs[row] for run in runs], [gain[row] for gain in gains])
        total = sums[found] * lists[found] if times_lists else sums[found]
        keys[row, : len(found)] = _keys(total.astype(np.float32), tie_rank[found])
        sums[found], lists[found] = 0.0, 0
    keys.sort(axis=1)
    docs, scores = _read(keys[:, :depth], tie_rank)
    return Run(first.query_ids, first.doc_ids, docs, scores, name=name)


def merge_by_rank(runs: Sequence[Run], gains: Sequence[Float64], *, depth: int, name: str) -> Run:
    """One run by sums of gains; equal sums by the best rank in any of the runs, then by id ascending.

    A run is ordered by its scores, so those of equal sums are moved apart by the least that a float32 can show.
    """
    if depth < 1:
        raise UsageError(f"depth must be 1 or more, not {depth}")
    same_ground(runs)
    first = runs[0]
    documents = len(first.doc_ids)
    depth = min(depth, documents)
    docs = np.full((len(first), depth), NO_DOCUMENT, dtype=np.int32)
    scores = np.full(docs.shape, -np.inf, dtype=np.float32)
    sums, lists = np.zeros(documents), np.zeros(documents, dtype=np.int32)
    best = np.full(documents, documents, dtype=np.int64)
    for row in range(len(first)):
        found = _accumulate(sums, lists, [run.docs[row] for run in runs], [gain[row] for gain in gains])
        for run in runs:
            held = run.docs[row] >= 0
            best[run.docs[row][held]] = np.minimum(best[run.docs[row][held]], np.flatnonzero(held))
        order = found[np.lexsort((-first.doc_ids.tie_rank[found], best[found], -sums[found]))][:depth]
        docs[row, : len(order)] = order
        above = np.float32(np.inf)
        for place, total in enumerate(sums[order].astype(np.float32)):
            above = scores[row, place] = min(total, np.nextafter(above, np.float32(-np.inf)))
        sums[found], lists[found], best[found] = 0.0, 0, documents
    return Run(first.query_ids, first.doc_ids, docs, scores, name=name)


def _accumulate(
    sums: Float64, lists: Int32, rankings: list[Int32], gains: list[Float64]
) -> Int32:  # fmt: skip
    """Add the gains of one query; returns the documents touched, each once."""
    touched: list[Int32] = []
    for docs, gain in zip(rankings, gains, strict=True):
        if len(docs) and docs.min() < 0:
            held = docs >= 0
            docs, gain = docs[held], gain[held]  # noqa: PLW2901 - what is left of the row
        if touched:
            held_by = lists[docs]
            touched.append(docs[held_by == 0])
            sums[docs] += gain
            lists[docs] = held_by + 1
        else:
            touched.append(docs)
            sums[docs], lists[docs] = gain, 1
    return np.concatenate(touched)


def _keys(scores: npt.NDArray[np.float32], ties: Int32) -> UInt64:
    """Numbers that sort ascending as (score descending, tie rank ascending)."""
    bits = (scores + np.float32(0)).view(np.uint32)  # -0 becomes 0
    # As IEEE orders them: positive numbers by their bits, negative ones against them. Turned round: descending.
    ascending = np.where(bits & _SIGN, bits ^ _ALL, bits | _SIGN)
    return (ascending ^ _ALL).astype(np.uint64) << np.uint64(32) | ties.astype(np.uint64)


def _read(keys: UInt64, tie_rank: Int32) -> tuple[Int32, npt.NDArray[np.float32]]:
    """Documents and scores back out of sorted numbers."""
    depth_docs = np.full(keys.shape, NO_DOCUMENT, dtype=np.int32)
    scores = np.full(keys.shape, -np.inf, dtype=np.float32)
    held = keys != _EMPTY
    by_tie = np.empty(len(tie_rank), dtype=np.int32)
    by_tie[tie_rank] = np.arange(len(tie_rank), dtype=np.int32)
    kept = keys[held]
    ascending = (kept >> np.uint64(32)).astype(np.uint32) ^ _ALL
    bits = np.where(ascending & _SIGN, ascending ^ _SIGN, ascending ^ _ALL)
    depth_docs[held] = by_tie[(kept & _LOW).astype(np.int64)]
    scores[held] = bits.view(np.float32)
    return depth_docs, scores
