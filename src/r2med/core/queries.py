"""What retrievers search with: for each query one text, or several weighted ones; the original is kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from .columns import IdTable, TextColumn
from .errors import UsageError
from .fingerprint import fingerprint
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
