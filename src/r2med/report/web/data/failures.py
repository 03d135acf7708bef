"""How a query fails under a system: what its list and the texts say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....core import Query, Task, TextColumn
from ....core.columns import Int32
from ....text import get_analyzer
from ....text.duplicates import text_key
from .rankings import TOP, Ranking
from .shelf import Entry

CHARACTERS_A_TOKEN = 4.0


class Kind(NamedTuple):
    """A way to fail."""

    name: str
    title: str
    meaning: str


KINDS = {
    kind.name: kind
    for kind in (
        Kind("missed", "Missed", "no positive anywhere in the list"),
        Kind("below", "Below 10", "a positive was found, but none among the first ten"),
        Kind(
            "trap",
            "Lexical trap",
            "the first document is not relevant and shares more of the query's words than any positive does",
        ),
        Kind("copies", "Copy waste", "copies of one passage take up places among the first ten"),
        Kind("cut", "Truncated positive", "a positive is longer than the model reads"),
    )
}


def reading_limit(entry: Entry) -> int | None:
    """The document limit of a system that cut something, from the notes of its result; None where nothing was cut."""
    return _limit(entry.result.notes)


def _limit(notes: dict[str, object]) -> int | None:
    truncation = notes.get("truncation")
    if isinstance(truncation, dict):
        document = truncation.get("document")
        if isinstance(document, dict) and document.get("texts_cut"):
            limit = document.get("limit")
            return limit if isinstance(limit, int) else None
        return None
    limits = [found for part in notes.values() if isinstance(part, dict) and (found := _limit(part)) is not None]
    return min(limits, default=None)


def failures(
    ranking: Ranking, task: Task, limit: int | None, *, only: Sequence[str] | None = None
) -> dict[str, frozenset[str]]:
    """For each judged query, or each of some, the kinds of failure it shows; one that is all right has none."""
    queries = task.qrels.query_ids if only is None else only
    terms = _Terms(task, ranking, queries)
    found = {}
    for query_id in queries:
        positives = positive_ids(task, query_id)
        ranks = [r for r in ranking.ranks(query_id, positives) if r is not None]
        top = [hit.doc_id for hit in ranking.top(query_id)]
        kinds = set()
        if positives and not ranks:
            kinds.add("missed")
        elif positives and min(ranks) > TOP:
            kinds.add("below")
        if top and positives and top[0] not in positives and terms.lured(query_id, top[0], positives):
            kinds.add("trap")
        if _copies(top, task):
            kinds.add("copies")
        if limit is not None and any(_too_long(task, d, limit) for d in positives):
            kinds.add("cut")
        found[query_id] = frozenset(kinds)
    return found


def positive_ids(task: Task, query_id: str) -> list[str]:
    """Relevant documents of a query, the highest grade first."""
    judged = task.qrels.of(query_id)
    return sorted((d for d, g in judged.items() if g > 0), key=lambda d: (-judged[d], d))


def _copies(doc_ids: list[str], task: Task) -> bool:
    texts = [d.contents for i in doc_ids if (d := task.documents.get(i)) is not None]
    return len({text_key(t) for t in texts}) < len(texts)


def _too_long(task: Task, doc_id: str, limit: int) -> bool:
    return (size := tokens_about(task, doc_id)) is not None and size > limit


def tokens_about(task: Task, doc_id: str) -> int | None:
    """Roughly how many tokens a document has: no less than its words, about a quarter of its characters."""
    document = task.documents.get(doc_id)
    if document is None:
        return None
    return max(len(document.contents.split()), round(len(document.contents) / CHARACTERS_A_TOKEN))


class _Terms:
    """Terms of the queries, the first documents and the positives, counted in one go."""

    def __init__(self, task: Task, ranking: Ranking, queries: Sequence[str]) -> None:
        ids = task.documents.ids
        needed: dict[str, int] = {}
        for query_id in queries:
            for doc_id in [*(h.doc_id for h in ranking.top(query_id, 1)), *positive_ids(task, query_id)]:
                if doc_id in ids:
                    needed.setdefault(doc_id, len(needed))
        contents = (task.documents[ids.position(d)].contents for d in needed)
        asked = ((task.query(q) or Query(q, "")).text for q in queries)
        counted = get_analyzer("english").count(TextColumn.from_texts([*asked, *contents]))
        self._bounds, self._terms = counted.indptr.tolist(), counted.terms
        self._needed, self._rows = needed, {q: i for i, q in enumerate(queries)}

    def _of(self, row: int) -> Int32:
        return self._terms[self._bounds[row] : self._bounds[row + 1]]

    def lured(self, query_id: str, first: str, positives: list[str]) -> bool:
        """Whether the first document shares more of the query's terms than any positive."""
        if first not in self._needed:
            return False
        asked, offset = self._of(self._rows[query_id]), len(self._rows)

        def shared(doc_id: str) -> int:
            return len(np.intersect1d(asked, self._of(offset + self._needed[doc_id]), assume_unique=True))

        best = max((shared(p) for p in positives if p in self._needed), default=-1)
        return 0 <= best < shared(first)
