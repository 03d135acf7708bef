"""How a query fails under a system: what its ranking and the texts say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...core import Task
from ...results.beside import StoredRun
from ...tasks.stats import lexical_traps
from ...text.duplicates import text_key

TOP = 10
CHARACTERS_PER_TOKEN = 4.0


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


def failures(run: StoredRun, task: Task, limit: int | None, queries: Sequence[str]) -> dict[str, frozenset[str]]:
    """For each of some judged queries, the kinds of failure it shows; one that is all right has none."""
    rankings = {query_id: run.of(query_id) for query_id in sorted(queries)}
    trapped = lexical_traps(task, {q: ranking.docs[0] for q, ranking in rankings.items() if ranking.docs})
    found = {}
    for query_id in queries:
        positives, ranking = positive_ids(task, query_id), rankings[query_id]
        ranks = [r for r in ranking.ranks(positives) if r is not None]
        kinds = set()
        if positives and not ranks:
            kinds.add("missed")
        elif positives and min(ranks) > TOP:
            kinds.add("below")
        if query_id in trapped:
            kinds.add("trap")
        texts = [d.contents for i in ranking.docs[:TOP] if (d := task.documents.get(i)) is not None]
        if len(set(map(text_key, texts))) < len(texts):
            kinds.add("copies")
        if limit is not None and any((size := tokens_about(task, d)) is not None and size > limit for d in positives):
            kinds.add("cut")
        found[query_id] = frozenset(kinds)
    return found


def positive_ids(task: Task, query_id: str) -> list[str]:
    """Relevant documents of a query, the highest grade first."""
    judged = task.qrels.of(query_id)
    return sorted((d for d, g in judged.items() if g > 0), key=lambda d: (-judged[d], d))


def tokens_about(task: Task, doc_id: str) -> int | None:
    """Roughly how many tokens a document has: no less than its words, about a quarter of its characters."""
    document = task.documents.get(doc_id)
    if document is None:
        return None
    return max(len(document.contents.split()), round(len(document.contents) / CHARACTERS_PER_TOKEN))


def reading_limit(notes: Mapping[str, object]) -> int | None:
    """The document limit of a system that cut something, from the notes of its result; None where nothing was cut."""
    truncation = notes.get("truncation")
    if isinstance(truncation, dict):
        document = truncation.get("document")
        if isinstance(document, dict) and document.get("texts_cut"):
            limit = document.get("limit")
            return limit if isinstance(limit, int) else None
        return None
    limits = [found for part in notes.values() if isinstance(part, dict) and (found := reading_limit(part)) is not None]
    return min(limits, default=None)
