"""Queries that ask for the same thing twice, and documents that quote their query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from ..core import Task, TextColumn
from ..core.columns import Int64, grouped
from ..expand.answers import answer_forms, content_words
from ..scoring.measures import Float64
from ..tasks.audit.style import word_weights
from ..text.duplicates import WIDTH, overlaps, shingle, text_key

TWIN_COSINE = 0.7
"""Of tf-idf: claims that differ in one word lie above it, questions of one pattern ("What is the use of …") below."""
_MOST_TERMS = 10_000  # of the queries; those of a few thousand queries fit in memory
_ROWS_AT_ONCE = 1_000

Kind = Literal["words", "relevant", "answer"]


class Twins(msgspec.Struct, frozen=True, kw_only=True):
    """Two queries that ask for the same: by their words, their set of relevant documents, or their answer."""

    kind: Kind
    tasks: tuple[str, str]
    queries: tuple[str, str]
    similarity: float | None = None  # the cosine, where the words are alike


class Place(NamedTuple):
    """A query among those of all tasks."""

    task: int
    query: int


class TwinPair(NamedTuple):
    """Twins, and where they stand."""

    first: Place
    second: Place
    twins: Twins


def find_twins(tasks: Sequence[Task]) -> list[TwinPair]:
    """Pairs of queries that are twins, within tasks and across them.

    Of several queries with the same relevant documents, or the same answer, each is paired with the first.
    """
    places = [Place(i, j) for i, task in enumerate(tasks) for j in range(len(task.queries))]
    kinds: dict[Kind, Iterator[_Pair]] = {
        "words": _alike(tasks),
        "relevant": _same_relevant(tasks),
        "answer": _same_answer(tasks),
    }
    return [_told(tasks, kind, places[a], places[b], alike) for kind, pairs in kinds.items() for a, b, alike in pairs]


def _told(tasks: Sequence[Task], kind: Kind, one: Place, other: Place, similarity: float | None) -> TwinPair:
    twins = Twins(
        kind=kind,
        tasks=(tasks[one.task].full_name, tasks[other.task].full_name),
        queries=(tasks[one.task].queries[one.query].id, tasks[other.task].queries[other.query].id),
        similarity=similarity,
    )
    return TwinPair(one, other, twins)


_Pair = tuple[int, int, float | None]


def _alike(tasks: Sequence[Task]) -> Iterator[_Pair]:
    """Queries whose words are nearly the same."""
    texts = TextColumn.from_texts(query.text for task in tasks for query in task.queries)
    rows = word_weights(texts, "english", most=_MOST_TERMS, least=1).values
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        cosine = np.triu(rows[begin : begin + _ROWS_AT_ONCE] @ rows.T, begin + 1)
        for first, second in np.argwhere(cosine >= TWIN_COSINE).tolist():
            yield begin + first, second, round(min(float(cosine[first, second]), 1.0), 4)


def _same_relevant(tasks: Sequence[Task]) -> Iterator[_Pair]:
    """Queries with the same relevant documents; documents are compared by their texts, for tasks may share a corpus."""
    sets = [
        frozenset(text_key(task.documents.contents[at]) for at in task.positives(query.id))
        for task in tasks
        for query in task.queries
    ]
    yield from _with_first(grouped((relevant, i) for i, relevant in enumerate(sets) if relevant).values())


def _same_answer(tasks: Sequence[Task]) -> Iterator[_Pair]:
    """Queries whose answers have a name in common; answers that are labels, such as yes and no, name nothing."""
    named: dict[tuple[frozenset[str], int], None] = {}
    start = 0
    for task in tasks:
        forms = {i: answer_forms(query.answer) for i, query in enumerate(task.queries, start) if query.answer}
        if len({tuple(of_query) for of_query in forms.values()}) > len(forms) / 2:
            named |= {(frozenset(content_words(form)), i): None for i, of_query in forms.items() for form in of_query}
        start += len(task.queries)
    yield from dict.fromkeys(_with_first(grouped(named).values()))


def _with_first(groups: Iterable[list[int]]) -> Iterator[_Pair]:
    for first, *others in groups:
        yield from ((first, other, None) for other in others)


class Quoting(NamedTuple):
    """How documents of one class quote the query they were judged for; an entry per query that has some."""

    queries: Int64
    share: Float64  # of the query's word runs that stand in a document, the mean of its documents
    rate: Float64  # of documents that share a run with the query


def quoting(task: Task, documents: Sequence[Sequence[int]]) -> Quoting:
    """The word runs that each query shares with its documents, given as positions for each query."""
    asked = np.flatnonzero([len(of_query) > 0 for of_query in documents])
    used = sorted({at for of_query in documents for at in of_query})
    row = {at: i for i, at in enumerate(used)}
    queries, texts = shingle(task.query_texts, WIDTH), shingle(task.documents.contents.take(used), WIDTH)
    met = overlaps(queries, texts, least=0.0)
    shares = dict(zip(zip(met.left.tolist(), met.right.tolist(), strict=True), met.left_inside.tolist(), strict=True))
    found = [np.array([shares.get((q, row[at]), 0.0) for at in documents[q]]) for q in asked.tolist()]
    share, rate = [of.mean() for of in found], [(of > 0).mean() for of in found]
    return Quoting(asked, np.array(share, dtype=np.float64), np.array(rate, dtype=np.float64))
