"""Fusion by scores: weighted sums, CombSUM and CombMNZ over scores that were brought to one scale first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from ..core import DataError, Run, UsageError
from .merge import Float64, merge, same_ground

Normalisation = Literal["min-max", "z-score", "rank"]
Method = Literal["weighted", "combsum", "combmnz"]
NORMALISATIONS: tuple[Normalisation, ...] = get_args(Normalisation)
METHODS: tuple[Method, ...] = get_args(Method)


def combine(
    runs: Sequence[Run],
    *,
    method: Method = "combsum",
    normalisation: Normalisation = "min-max",
    weights: Sequence[float] | None = None,
    depth: int = 1000,
    name: str | None = None,
) -> Run:
    """Fuse by normalised scores.

    `weighted` sums weight × score; `combsum` is the same with all weights 1; `combmnz` multiplies that sum by the
    number of lists that hold the document. A document that a list lacks gets 0 from it.
    """
    same_ground(runs)
    if method not in METHODS:
        raise UsageError(f"unknown fusion {method!r}; known: rrf, {', '.join(METHODS)}")
    chosen = check_weights(weights, len(runs)) if method == "weighted" else [1.0] * len(runs)
    if method != "weighted" and weights is not None:
        raise UsageError(f"{method} takes no weights")
    gains = [weight * normalised(run, normalisation) for run, weight in zip(runs, chosen, strict=True)]
    joined = "+".join(r.name for r in runs)
    return merge(runs, gains, depth=depth, name=name or f"{joined}.{method}", times_lists=method == "combmnz")


def check_weights(weights: Sequence[float] | None, lists: int) -> list[float]:
    """As many finite, non-negative weights as lists, not all zero; equal ones where none are given."""
    if weights is None:
        return [1.0 / lists] * lists
    if len(weights) != lists:
        raise UsageError(f"{lists} rankings need {lists} weights, not {len(weights)}")
    if not all(np.isfinite(w) and w >= 0 for w in weights) or not any(weights):
        raise UsageError(f"weights must be 0 or more and not all 0, not {', '.join(f'{w:g}' for w in weights)}")
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
