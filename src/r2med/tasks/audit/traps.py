"""Lexical traps: queries whose first document shares more of their words than any positive does, and is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from ...core import Run, Task
from ...text import get_analyzer, term_sets

_WORD = re.compile(r"\w+(?:['’-]\w+)*")
# Words that BM25 counts and that tell a reader nothing.
_EMPTY = frozenset(
    {"about", "also", "been", "does", "from", "have", "most", "that", "their", "them", "there", "these", "this", "very"}
    | {"were", "what", "when", "where", "which", "would"}
)


class LexicalTrap(msgspec.Struct):
    """A wrong first document, the positive that matches the query best, and the share of its terms each holds."""

    query: str
    document: str
    shared: int
    share: float
    positive: str
    positive_share: float
    positive_rank: int | None = None
    words: list[str] = msgspec.field(default_factory=list)
    """Of the query, which the wrong document holds and the positive does not."""


def lexical_traps(task: Task, first: Mapping[str, str]) -> dict[str, LexicalTrap]:
    """The queries that fell into a trap; `first` maps each query to the document a system put first."""
    position = task.documents.ids.position
    judged = {q: [d for d, g in task.qrels.of(q).items() if g > 0 and position(d) >= 0] for q in first}
    queries = [q for q, d in first.items() if judged[q] and d not in judged[q] and position(d) >= 0]
    needed = {d: i for i, d in enumerate(dict.fromkeys(d for q in queries for d in (first[q], *sorted(judged[q]))))}
    asked = [query.text if (query := task.query(q)) else "" for q in queries]
    terms = term_sets([*asked, *(task.documents.contents[position(d)] for d in needed)])
    held, found = terms[len(queries) :], {}
    for query_id, own in zip(queries, terms, strict=False):
        shared = {d: len(own & held[needed[d]]) for d in (first[query_id], *sorted(judged[query_id]))}
        wrong, *positives = shared
        best = max(positives, key=lambda d: shared[d])
        if shared[wrong] > shared[best]:
            share, positive_share = (round(shared[d] / len(own), 4) for d in (wrong, best))
            found[query_id] = LexicalTrap(query_id, wrong, shared[wrong], share, best, positive_share)
    return found


def clearest_traps(task: Task, run: Run, *, most: int = 5) -> list[LexicalTrap]:
    """The queries with the widest gap between the wrong document's share of words and the positive's."""
    first = {query_id: hits[0].doc_id for query_id, hits in run.top(1) if hits}
    found = sorted(lexical_traps(task, first).values(), key=lambda trap: (trap.positive_share - trap.share, trap.query))
    clearest = {trap.document: trap for trap in reversed(found)}  # one of several queries with the same wrong document
    chosen = [trap for trap in found if clearest[trap.document] is trap][:most]
    for trap in chosen:
        positives = {d for d, g in task.qrels.of(trap.query).items() if g > 0}
        ranks = (i for i, hit in enumerate(run.of(trap.query), start=1) if hit.doc_id in positives)
        trap.positive_rank = next(ranks, None)
        trap.words = _words_only_in(task, trap)
    return chosen


def _words_only_in(task: Task, trap: LexicalTrap) -> list[str]:
    """Words of the query that the wrong document holds and the positive does not; short and empty ones left out."""
    analyze = get_analyzer("english")
    query, wrong, right = task.query(trap.query), task.documents.get(trap.document), task.documents.get(trap.positive)
    assert query is not None
    assert wrong is not None
    assert right is not None
    left = (set(analyze(query.text)) & set(analyze(wrong.contents))) - set(analyze(right.contents))
    words = []
    for word in _WORD.findall(query.text):
        if len(word) >= 4 and word.lower() not in _EMPTY and (of_word := left.intersection(analyze(word))):
            left -= of_word
            words.append(word)
    return words[:12]
