"""Where word matching is lured away: the top document shares the query's words and is wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from ...core import Run, Task, TextColumn
from ...text import get_analyzer

_WORD = re.compile(r"\w+(?:['’-]\w+)*")
# Words that BM25 counts and that tell a reader nothing.
_EMPTY = frozenset(
    [
        "about",
        "also",
        "been",
        "does",
        "from",
        "have",
        "most",
        "that",
        "their",
        "them",
        "there",
        "these",
        "this",
        "very",
        "were",
        "what",
        "when",
        "where",
        "which",
        "would",
    ]
)


class Lure(msgspec.Struct):
    """A query whose first document shares more of its words than the best positive does, and is not relevant."""

    query: str
    document: str
    shared: int
    share: float
    positive: str
    positive_share: float
    positive_rank: int | None
    words: list[str]


def find_lures(task: Task, run: Run, *, most: int = 5) -> list[Lure]:
    """The clearest such queries: the widest gap between the wrong document's share of words and the positive's."""
    found = []
    for query in task.queries:
        hits = run.of(query.id)
        positives = {d for d, g in task.qrels.of(query.id).items() if g > 0 and d in task.documents.ids}
        if not hits or not positives or hits[0].doc_id in positives:
            continue
        ranks = {hit.doc_id: i for i, hit in enumerate(hits, start=1)}
        names = [hits[0].doc_id, *sorted(positives)]
        asked, *sets = _terms([query.text, *(task.documents.contents[task.documents.ids.position(n)] for n in names)])
        if not asked:
            continue
        shares = [len(asked & terms) / len(asked) for terms in sets]
        best = int(np.argmax(shares[1:])) + 1
        if shares[0] <= shares[best]:
            continue
        ranked = [ranks[d] for d in positives if d in ranks]
        found.append(
            Lure(
                query=query.id,
                document=names[0],
                shared=len(asked & sets[0]),
                share=round(shares[0], 4),
                positive=names[best],
                positive_share=round(shares[best], 4),
                positive_rank=min(ranked, default=None),
                words=_surface(query.text, (asked & sets[0]) - sets[best]),
            )
        )
    found.sort(key=lambda lure: (lure.positive_share - lure.share, lure.query))
    clearest = {lure.document: lure for lure in reversed(found)}  # one of several queries with the same lure
    return [lure for lure in found if clearest[lure.document] is lure][:most]


def _surface(text: str, terms: set[str]) -> list[str]:
    """The words of a text behind some terms, in the order of the text; short and empty words are left out."""
    analyze, left = get_analyzer("english"), set(terms)
    words = []
    for word in _WORD.findall(text):
        if len(word) >= 4 and word.lower() not in _EMPTY and (of_word := left.intersection(analyze(word))):
            left -= of_word
            words.append(word)
    return words[:12]


def _terms(texts: Sequence[str]) -> list[set[str]]:
    counted = get_analyzer("english").count(TextColumn.from_texts(texts))
    bounds = counted.indptr.tolist()
    return [
        {counted.vocabulary[t] for t in counted.terms[bounds[i] : bounds[i + 1]].tolist()} for i in range(len(texts))
    ]
