"""Expected values of measures over all orders of tied documents, in closed form.

In a group of m tied documents, r of them relevant, every order is equally likely. So each place holds the group's mean
gain; and what average precision, reciprocal rank and hit need are counts of orders. Nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core import UnknownName
from .measures import Float64, Int64, Measure

Bools = npt.NDArray[np.bool_]


class TiedRanking(NamedTuple):
    """Rankings (queries × depth) with, at each place, what is known of the group of equal scores around it."""

    sizes: Int64  # documents in the group
    place: Int64  # place inside the group, from 0
    share: Float64  # chance that the document here is relevant
    gain: Float64  # expected gain here
    inside: Int64  # relevant documents in the group
    before: Int64  # relevant documents above the group
    relevant: Int64  # relevant documents of the query, found or not
    ideal: Float64  # gains in the best order

    @classmethod
    def of(
        cls, gains: Float64, scores: npt.NDArray[np.float32], filled: Bools, ideal: Float64, tolerance: float
    ) -> TiedRanking:
        """Find the groups and sum them up."""
        queries, depth = gains.shape
        starts = np.ones(gains.shape, dtype=bool)
        if depth > 1:
            with np.errstate(invalid="ignore"):  # empty places are minus infinity
                far = scores[:, :-1].astype(np.float64) - scores[:, 1:] > tolerance
            starts[:, 1:] = far | ~filled[:, 1:]
        group = np.cumsum(starts.ravel()) - 1
        number = int(group[-1]) + 1 if group.size else 0

        def of_group(values: Float64) -> Float64:
            sums = np.bincount(group, weights=values.ravel(), minlength=number).astype(np.float64, copy=False)
            return np.asarray(sums[group].reshape(gains.shape), dtype=np.float64)

        found = (gains > 0).astype(np.float64)
        sizes, inside = of_group(np.ones(gains.shape)), of_group(found)
        column = np.broadcast_to(np.arange(depth), gains.shape)
        first = np.maximum.accumulate(np.where(starts, column, 0), axis=1) if depth else column
        above = np.concatenate((np.zeros((queries, 1)), np.cumsum(found, axis=1)), axis=1)
        return cls(
            sizes=sizes.astype(np.int64),
            place=(column - first).astype(np.int64),
            share=inside / np.maximum(sizes, 1.0),
            gain=of_group(gains) / np.maximum(sizes, 1.0),
            inside=inside.astype(np.int64),
            before=np.take_along_axis(above, first, axis=1).astype(np.int64),
            relevant=np.asarray((ideal > 0).sum(axis=1), dtype=np.int64),
            ideal=ideal,
        )


def expected(measure: Measure, ranking: TiedRanking) -> Float64:
    """One value per query."""
    if measure.family not in _EXPECTED:
        raise UnknownName("tie-aware measure", str(measure), _EXPECTED)
    depth = ranking.gain.shape[1]
    cutoff = max(depth, ranking.ideal.shape[1]) if measure.cutoff is None else measure.cutoff
    return _EXPECTED[measure.family](ranking, cutoff)


def _discounted(gains: Float64, cutoff: int) -> Float64:
    cut = gains[:, :cutoff]
    return np.asarray(cut @ (1.0 / np.log2(np.arange(cut.shape[1]) + 2.0)), dtype=np.float64)


def _over(numerator: Float64, denominator: Float64 | Int64) -> Float64:
    return np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=np.asarray(denominator) > 0)


def _ndcg(ranking: TiedRanking, cutoff: int) -> Float64:
    return _over(_discounted(ranking.gain, cutoff), _discounted(ranking.ideal, cutoff))


def _found(ranking: TiedRanking, cutoff: int) -> Float64:
    return np.asarray(ranking.share[:, :cutoff].sum(axis=1))


def _recall(ranking: TiedRanking, cutoff: int) -> Float64:
    return _over(_found(ranking, cutoff), ranking.relevant)


def _precision(ranking: TiedRanking, cutoff: int) -> Float64:
    return _found(ranking, cutoff) / cutoff


def _average_precision(ranking: TiedRanking, cutoff: int) -> Float64:
    others = np.maximum(ranking.sizes - 1, 1)
    earlier = ranking.place * np.maximum(ranking.inside - 1, 0) / others  # expected, if the document here is relevant
    rank = np.arange(1, ranking.gain.shape[1] + 1)
    terms = ranking.share * (ranking.before + 1 + earlier) / rank
    return _over(terms[:, :cutoff].sum(axis=1), ranking.relevant)


def _first_here(ranking: TiedRanking, cutoff: int) -> Float64:
    """Chance that the first relevant document stands at each place.

    Only the first group that holds one counts. There, the chance that the places before are all irrelevant is a
    running product: at each of them one irrelevant and one document of any kind is used up.
    """
    place, inside, before = (m[:, :cutoff] for m in (ranking.place, ranking.inside, ranking.before))
    left = ranking.sizes[:, :cutoff] - place
    misses = np.maximum(left - inside, 0) / left
    none_before = np.ones(misses.shape)
    for column in range(1, misses.shape[1]):
        carried = none_before[:, column - 1] * misses[:, column - 1]
        none_before[:, column] = np.where(place[:, column] > 0, carried, 1.0)
    here = none_before * np.minimum(inside / left, 1.0)
    return np.where((before == 0) & (inside > 0), here, 0.0)


def _reciprocal_rank(ranking: TiedRanking, cutoff: int) -> Float64:
    first = _first_here(ranking, cutoff)
    return np.asarray((first / np.arange(1, first.shape[1] + 1)).sum(axis=1))


def _hit(ranking: TiedRanking, cutoff: int) -> Float64:
    return np.asarray(_first_here(ranking, cutoff).sum(axis=1))


_EXPECTED: dict[str, Callable[[TiedRanking, int], Float64]] = {
    "ndcg": _ndcg,
    "map": _average_precision,
    "recall": _recall,
    "precision": _precision,
    "mrr": _reciprocal_rank,
    "hit": _hit,
}
