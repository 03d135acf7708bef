"""What stands in the lists: which documents are relevant, which only look so, and by which words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from ....core import Task
from ....text.duplicates import text_key
from ..data.rankings import Hit, Ranking
from ..text import marked, shared_words

SNIPPET = 220
WHOLE = 6000
BRIEF = 700
WORDS = 14


class Seen(NamedTuple):
    """One document as the page shows it."""

    doc_id: str
    known: bool
    title: str
    short: Markup
    rest: Markup | None
    words: dict[str, str]
    share: float
    key: bytes


class Place(NamedTuple):
    """One place of a list."""

    hit: Hit
    grade: int | None
    seen: Seen
    copy_of: int | None
    luring: list[str]
    plain: list[str]


class Shown(NamedTuple):
    """One system's list."""

    system: str
    depth: int
    limit: int | None
    places: list[Place]


class Explained(NamedTuple):
    """Everything about one query's documents."""

    terms: frozenset[str]
    positives: list[str]
    grades: dict[str, int]
    seen: dict[str, Seen]
    ranks: dict[str, list[int | None]]
    held: frozenset[str]
    best_share: float
    columns: list[Shown]
    lengths: dict[str, int | None]


def explain(
    task: Task | None,
    query_id: str,
    terms: frozenset[str],
    positives: Sequence[str],
    lists: Mapping[str, Ranking],
    *,
    brief: bool = False,
) -> Explained:
    """Look at every document that the page shows, once."""
    names = dict.fromkeys([*positives, *(h.doc_id for r in lists.values() for h in r.top(query_id))])
    seen = {name: _look(task, name, terms, BRIEF if brief else WHOLE) for name in names}
    held = frozenset(term for p in positives for term in seen[p].words)
    return Explained(
        terms=terms,
        positives=list(positives),
        grades=task.qrels.of(query_id) if task else {},
        seen=seen,
        ranks={system: ranking.ranks(query_id, list(positives)) for system, ranking in lists.items()},
        held=held,
        best_share=max((seen[p].share for p in positives), default=0.0),
        columns=[],
        lengths={},
    )


def _look(task: Task | None, doc_id: str, terms: frozenset[str], most: int) -> Seen:
    document = task.documents.get(doc_id) if task else None
    if document is None:
        return Seen(doc_id, False, "", Markup(""), None, {}, 0.0, doc_id.encode())
    words = shared_words(document.contents[:WHOLE], terms)
    long = len(document.text) > SNIPPET
    return Seen(
        doc_id=doc_id,
        known=True,
        title=document.title,
        short=marked(document.text, terms, most=SNIPPET),
        rest=marked(document.text, terms, most=most) if long else None,
        words=words,
        share=len(words) / len(terms) if terms else 0.0,
        key=text_key(document.contents),
    )


def system_hits(explained: Explained, ranking: Ranking, query_id: str) -> list[Place]:
    """The first places of a system; a copy of an earlier one points to it."""
    first: dict[bytes, int] = {}
    places = []
    for hit in ranking.top(query_id):
        seen = explained.seen[hit.doc_id]
        earlier = first.setdefault(seen.key, hit.rank) if seen.known else hit.rank
        luring = [w for t, w in seen.words.items() if t not in explained.held]
        places.append(
            Place(
                hit=hit,
                grade=explained.grades.get(hit.doc_id),
                seen=seen,
                copy_of=earlier if earlier != hit.rank else None,
                luring=luring[:WORDS],
                plain=[w for t, w in seen.words.items() if t in explained.held][: max(0, WORDS - len(luring))],
            )
        )
    return places
