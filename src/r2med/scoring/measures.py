"""Measures as values: `nDCG@10` parses, prints and names its column.

All of them are computed from the same sparse list of relevant documents that were retrieved, so nine cut-offs cost
hardly more than one. Definitions and arithmetic are trec_eval's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core import UnknownName, UsageError

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

CUTOFFS = (1, 3, 5, 10, 20, 25, 50, 100, 1000)


class Hits(NamedTuple):
    """Relevant documents at the ranks where a run put them, and what there was to find."""

    queries: int
    row: Int64
    rank: Int64
    gain: Float64
    ordinal: Int64
    relevant: Int64
    ideal_row: Int64
    ideal_rank: Int64
    ideal_gain: Float64

    def sum(self, row: Int64, weight: Float64) -> Float64:
        """Add up weights by query."""
        return np.bincount(row, weights=weight, minlength=self.queries).astype(np.float64, copy=False)


def _ratio(numerator: Float64, denominator: Float64 | Int64) -> Float64:
    """Zero where there is nothing to find, as trec_eval has it."""
    return np.divide(numerator, denominator, out=np.zeros(len(numerator)), where=np.asarray(denominator) > 0)


def _ndcg(hits: Hits, k: float) -> Float64:
    found, possible = hits.rank < k, hits.ideal_rank < k
    dcg = hits.sum(hits.row[found], hits.gain[found] / np.log2(hits.rank[found] + 2.0))
    ideal = hits.sum(hits.ideal_row[possible], hits.ideal_gain[possible] / np.log2(hits.ideal_rank[possible] + 2.0))
    return _ratio(dcg, ideal)


def _average_precision(hits: Hits, k: float) -> Float64:
    found = hits.rank < k
    return _ratio(hits.sum(hits.row[found], (hits.ordinal[found] + 1) / (hits.rank[found] + 1)), hits.relevant)


def _found(hits: Hits, k: float) -> Float64:
    return np.bincount(hits.row[hits.rank < k], minlength=hits.queries).astype(np.float64)


def _precision(hits: Hits, k: float) -> Float64:
    return _found(hits, k) / k


def _recall(hits: Hits, k: float) -> Float64:
    return _ratio(_found(hits, k), hits.relevant)


def _reciprocal_rank(hits: Hits, k: float) -> Float64:
    first = (hits.ordinal == 0) & (hits.rank < k)
    return hits.sum(hits.row[first], 1.0 / (hits.rank[first] + 1))


def _hit(hits: Hits, k: float) -> Float64:
    return (_found(hits, k) > 0).astype(np.float64)


class _Family(NamedTuple):
    shown: str
    key: str
    aliases: tuple[str, ...]
    compute: Callable[[Hits, float], Float64]
    needs_cutoff: bool = False


FAMILIES = (
    _Family("nDCG", "ndcg", ("ndcg_cut",), _ndcg),
    _Family("AP", "map", ("ap", "map_cut"), _average_precision),
    _Family("R", "recall", ("r",), _recall),
    _Family("P", "precision", ("p",), _precision, needs_cutoff=True),
    _Family("RR", "mrr", ("rr", "recip_rank"), _reciprocal_rank),
    _Family("hit", "hit", ("success",), _hit, needs_cutoff=True),
)
_BY_NAME = {name: f for f in FAMILIES for name in (f.key, f.shown.casefold(), *f.aliases)}


class Measure(NamedTuple):
    """A measure and its cut-off (None: the whole ranking)."""

    family: str
    cutoff: int | None

    @classmethod
    def parse(cls, text: str | Measure) -> Measure:
        """Read `nDCG@10`, `ndcg_at_10`, `ndcg_cut_10`, `R@100`, `RR`."""
        if isinstance(text, Measure):
            return text
        match = re.fullmatch(r"([A-Za-z_]+?)(?:(?:@|_at_|_)(\d+))?", text.strip())
        if match is None or match[1].casefold() not in _BY_NAME:
            raise UnknownName("measure", text, [f"{f.shown}@10" for f in FAMILIES], hint="(for example nDCG@10, R@100)")
        family = _BY_NAME[match[1].casefold()]
        cutoff = int(match[2]) if match[2] else None
        if cutoff == 0 or (cutoff is None and family.needs_cutoff):
            raise UsageError(f"measure {text!r} needs a cut-off of 1 or more, as in {family.shown}@10")
        return cls(family.key, cutoff)

    def __str__(self) -> str:
        shown = _BY_NAME[self.family].shown
        return shown if self.cutoff is None else f"{shown}@{self.cutoff}"

    @property
    def key(self) -> str:
        """The name in stored results."""
        return self.family if self.cutoff is None else f"{self.family}_at_{self.cutoff}"

    def compute(self, hits: Hits) -> Float64:
        """One value per query."""
        return _BY_NAME[self.family].compute(hits, float("inf") if self.cutoff is None else self.cutoff)


def parse_measures(texts: Iterable[str | Measure]) -> tuple[Measure, ...]:
    """Several measures, each once."""
    return tuple(dict.fromkeys(Measure.parse(t) for t in texts))


STANDARD = tuple(Measure(f.key, k) for f in FAMILIES for k in CUTOFFS)
MAIN = Measure("ndcg", 10)
