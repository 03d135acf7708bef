"""A query that somebody types, the rankings that come back, and what their scores are made of.

A score is explained only as far as the method can tell: the terms of a lexical sum, the tokens of late interaction,
the rankings of a fusion. A dense model compares two vectors and says nothing about single words, so its explanation
has no shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from .run import Run


class Share(NamedTuple):
    """What one part of a query adds to the score of a document."""

    part: str  # a term, a token of the model, or a ranking that was fused
    adds: float
    factors: tuple[tuple[str, float], ...] = ()  # by name: numbers that say how it comes about
    match: str = ""  # the token of the document that it met, where that may be another


class Explanation(NamedTuple):
    """Why a document has its score."""

    note: str  # what the score is, in a sentence
    shares: tuple[Share, ...] = ()  # the largest first; they add up to the score


class Typed(NamedTuple):
    """A query, and a text that may expand it."""

    text: str
    expansion: str = ""
    instead: bool = False  # whether the expansion takes the query's place, or follows it


@dataclass(frozen=True)
class Ranked:
    """The ranking of one query by one system."""

    run: Run
    explanations: Mapping[str, Explanation]  # by document, of the best ones

    @cached_property
    def ranks(self) -> dict[str, int]:
        """The rank of every document found, best first."""
        return {self.run.doc_ids[d]: rank for rank, d in enumerate(self.run.docs[0].tolist(), 1) if d >= 0}


class Tried(NamedTuple):
    """One system on one typed query."""

    system: str
    alone: Ranked
    expanded: Ranked | None = None  # the same with the expansion
    policies: Mapping[str, str] = {}  # by retriever: the policy by which the expansion met it


def largest_first(shares: list[Share]) -> tuple[Share, ...]:
    """Shares in the order in which people want to see them."""
    return tuple(sorted(shares, key=lambda share: (-abs(share.adds), share.part)))
