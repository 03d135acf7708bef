"""Weights by cross-validation: a query is fused only with weights that were chosen without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

import msgspec
import numpy as np
import numpy.typing as npt

from ..core import Run, UsageError
from .combine import Normalisation, combine

Measure = Callable[[Run], Mapping[str, float]]
"""A run's quality for each query id; queries it leaves out take no part in the choice."""
STEPS = 10
FOLDS = 5


class Fold(msgspec.Struct, frozen=True):
    """Queries that were held out together, and the weights that all the others chose."""

    queries: tuple[str, ...]
    weights: tuple[float, ...]
    chosen_on: int
    # How many queries had a say.
    score: float
    # Mean of the measure over those, with these weights.


class Tuned(msgspec.Struct, frozen=True):
    """A fused run with the folds that made it."""

    run: Run
    folds: tuple[Fold, ...]
    seed: int
    steps: int
    normalisation: str

    def describe(self) -> dict[str, object]:
        """Folds and settings as plain data, to be stored with the result."""
        return {
            "normalisation": self.normalisation,
            "seed": self.seed,
            "steps": self.steps,
            "folds": [msgspec.to_builtins(fold) for fold in self.folds],
        }


def tune_weights(
    runs: Sequence[Run],
    measure: Measure,
    *,
    normalisation: Normalisation = "min-max",
    folds: int = FOLDS,
    steps: int = STEPS,
    seed: int = 0,
    depth: int = 1000,
    name: str | None = None,
) -> Tuned:
    """Fuse with weights from the grid of all shares in steps of 1 / `steps`.

    Queries are dealt into folds by a seeded shuffle of their sorted ids, so that neither their order nor others' runs
    change the folds. Among weights of equal quality the most even ones win.
    """
    if len(runs) < 2:
        raise UsageError("weights need at least two rankings")
    if folds < 2 or steps < 1:
        raise UsageError("cross-validation needs at least two folds and one step")
    query_ids = list(runs[0].query_ids)
    if folds > len(query_ids):
        raise UsageError(f"{len(query_ids)} queries cannot make {folds} folds")
    grid = weight_grid(len(runs), steps)
    fused, quality = [], np.full((len(grid), len(query_ids)), np.nan)
    for i, weights in enumerate(grid):
        run = combine(runs, method="weighted", normalisation=normalisation, weights=weights, depth=depth)
        values = measure(run)
        quality[i] = [values.get(q, np.nan) for q in query_ids]
        fused.append((run.docs, run.scores))
    member = fold_of(query_ids, folds, seed)
    width = max(docs.shape[1] for docs, _ in fused)
    docs = np.full((len(query_ids), width), -1, dtype=np.int32)
    scores = np.full(docs.shape, -np.inf, dtype=np.float32)
    made = []
    for fold in range(folds):
        inside = member == fold
        best, score, voters = _choose(quality[:, ~inside])
        chosen_docs, chosen_scores = fused[best]
        docs[inside, : chosen_docs.shape[1]] = chosen_docs[inside]
        scores[inside, : chosen_docs.shape[1]] = chosen_scores[inside]
        held_out = tuple(q for q, own in zip(query_ids, inside.tolist(), strict=True) if own)
        made.append(Fold(held_out, grid[best], voters, score))
    label = name or "+".join(r.name for r in runs) + ".weighted-cv"
    run = Run(runs[0].query_ids, runs[0].doc_ids, docs, scores, name=label)
    tuned = Tuned(run, tuple(made), seed, steps, normalisation)
    run.notes["fusion"] = tuned.describe()
    return tuned


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
