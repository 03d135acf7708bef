"""What retrievers search with: for each query one text, or several weighted ones; the original is kept.

And a query that somebody types, the rankings that come back, and what their scores are made of. A score is explained
only as far as the method can tell: the terms of a lexical sum, the tokens of late interaction, the rankings of a
fusion. A dense model compares two vectors and says nothing about single words, so its explanation has no shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, Literal, NamedTuple

from .columns import IdTable, TextColumn, fingerprint
from .errors import UsageError
from .run import Run
from .task import Task

Side = Literal["query", "document"]


class QueryText(NamedTuple):
    """One text that stands for a query, and how a model takes it."""

    text: str
    weight: float = 1.0
    side: Side = "query"  # which of a model's two sides encodes it; lexical retrievers know no sides
    instruction: bool = True  # whether a model's query instruction stands before it
    scaled: bool = True  # whether its vector has length one before a mean, where vectors are compared by cosine


class Feedback(NamedTuple):
    """A further search with what the best documents of the search before it hold: pseudo-relevance feedback."""

    method: str
    kind: str  # the kind of retriever that can search so
    documents: int
    query_weight: float
    feedback_weight: float
    terms: int = 0  # how many terms of the documents are kept; vectors have none


class Queries:
    """The queries of one search. An expansion policy makes them from a task; so does `Queries.of`."""

    def __init__(
        self,
        ids: IdTable,
        originals: TextColumn,
        texts: Sequence[tuple[QueryText, ...]] | None = None,
        feedback: tuple[Feedback, ...] = (),
    ) -> None:
        if len(originals) != len(ids) or (texts is not None and len(texts) != len(ids)):
            raise UsageError(f"{len(ids)} queries need as many texts")
        if texts is not None and not all(texts):
            raise UsageError("a query needs at least one text")
        if not all(0 < sum(part.weight for part in group) < inf for group in texts or ()):
            raise UsageError("the weights of a query's texts must add up to more than 0")
        self.ids = ids
        self.originals = originals  # the queries as the task has them
        self._texts = texts
        self.feedback = feedback  # further searches, in this order

    @classmethod
    def of(cls, task: Task) -> Queries:
        """The queries of a task, as they are."""
        return cls(task.query_ids, task.query_texts)

    @classmethod
    def typed(cls, texts: Iterable[str]) -> Queries:
        """Texts that belong to no task."""
        column = TextColumn.from_texts(texts)
        return cls(IdTable(f"typed-{i}" for i in range(len(column))), column)

    def __len__(self) -> int:
        return len(self.ids)

    def __reduce__(self) -> tuple[Any, ...]:
        """Queries travel to workers as plain lists: columns are views of memory."""
        return _unpacked, (list(self.ids), list(self.originals), self._texts, self.feedback)

    @property
    def plain(self) -> bool:
        """Whether each query is one text, encoded as any query is."""
        return self._texts is None or all(len(t) == 1 and t[0][1:] == QueryText("")[1:] for t in self._texts)

    @property
    def texts(self) -> Sequence[tuple[QueryText, ...]]:
        """The texts of each query."""
        return [(QueryText(text),) for text in self.originals] if self._texts is None else self._texts

    @property
    def column(self) -> TextColumn:
        """The one text of each query."""
        if self._texts is None:
            return self.originals
        return TextColumn.from_texts(text.text for (text,) in self._texts)

    def single(self, who: str) -> TextColumn:
        """The one text of each query, for a retriever that cannot take several."""
        if not self.plain:
            raise UsageError(f"{who} takes one text for each query: choose a policy that joins them")
        return self.column

    @property
    def fingerprint(self) -> str:
        """Hash of ids, texts and further searches."""
        facts: list[object] = [list(self.ids), [[list(part) for part in group] for group in self.texts]]
        return fingerprint("queries", [*facts, *([list(f) for f in self.feedback],) * bool(self.feedback)])


def _unpacked(
    ids: list[str],
    originals: list[str],
    texts: Sequence[tuple[QueryText, ...]] | None,
    feedback: tuple[Feedback, ...] = (),
) -> Queries:
    return Queries(IdTable(ids), TextColumn.from_texts(originals), texts, feedback)


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
