"""What stands in a query's rankings, and the order in which one goes from query to query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from ....core import Task
from ....core.columns import Int64
from ....results.beside import StoredRun
from ....scoring import Measure
from ....scoring.hits import Float64
from ....text.duplicates import text_key
from ...collection import CollectionResults
from ..failures import KINDS, TOP
from ..site import Site, readable
from ..text import marked, shared_words

SNIPPET, WHOLE, BRIEF, WORDS = 220, 6000, 700, 14
ORDERS = {"score": "Lowest score first", "diff": "Largest difference first"} | {
    name: kind.title for name, kind in KINDS.items()
}


class Seen(NamedTuple):
    """One document as the page shows it."""

    doc_id: str
    known: bool = False
    title: str = ""
    short: Markup = Markup("")
    rest: Markup | None = None
    words: Mapping[str, str] = {}
    share: float = 0.0
    key: bytes = b""


class Place(NamedTuple):
    """One place of a ranking."""

    rank: int
    doc_id: str
    score: float
    grade: int | None
    seen: Seen
    copy_of: int | None
    luring: list[str]
    """Words of the query that stand in no positive."""
    plain: list[str]


def explain(
    task: Task | None,
    query_id: str,
    terms: frozenset[str],
    positives: Sequence[str],
    runs: Mapping[str, StoredRun],
    *,
    brief: bool = False,
) -> dict[str, Any]:
    """Every document that the page shows: the positives with their ranks, and the first places of each system."""
    rankings = {system: run.of(query_id) for system, run in runs.items()}
    names = dict.fromkeys([*positives, *(d for ranking in rankings.values() for d in ranking.docs[:TOP])])
    seen = {name: _look(task, name, terms, BRIEF if brief else WHOLE) for name in names}
    held = frozenset(term for p in positives for term in seen[p].words)
    grades = task.qrels.of(query_id) if task else {}
    return {
        "positives": list(positives),
        "grades": grades,
        "seen": seen,
        "ranks": {system: ranking.ranks(list(positives)) for system, ranking in rankings.items()},
        "places": {
            system: _places(list(zip(ranking.docs[:TOP], ranking.scores, strict=False)), seen, grades, held)
            for system, ranking in rankings.items()
        },
        "best_share": max((seen[p].share for p in positives), default=0.0),
    }


def _look(task: Task | None, doc_id: str, terms: frozenset[str], most: int) -> Seen:
    document = task.documents.get(doc_id) if task else None
    if document is None:
        return Seen(doc_id)
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


def _places(
    hits: list[tuple[str, float]], seen: Mapping[str, Seen], grades: Mapping[str, int], held: frozenset[str]
) -> list[Place]:
    """The first places of a system; a copy of an earlier one points to it."""
    first: dict[bytes, int] = {}
    places = []
    for rank, (doc_id, score) in enumerate(hits, 1):
        document = seen[doc_id]
        earlier = first.setdefault(document.key, rank) if document.known else rank
        luring = [word for term, word in document.words.items() if term not in held]
        plain = [word for term, word in document.words.items() if term in held]
        copy_of = earlier if earlier != rank else None
        room = max(0, WORDS - len(luring))
        places.append(Place(rank, doc_id, score, grades.get(doc_id), document, copy_of, luring[:WORDS], plain[:room]))
    return places


class Stop(NamedTuple):
    """One query on the way."""

    task: str
    query_id: str
    value: float


@dataclass(frozen=True)
class Way:
    """The queries of some tasks in an order."""

    tasks: Sequence[tuple[str, Sequence[str]]]
    values: Float64
    order: Int64

    def __len__(self) -> int:
        return len(self.order)

    def stop(self, position: int) -> Stop:
        """The query at a position."""
        place = int(self.order[position])
        return Stop(*nth_query(self.tasks, place), float(self.values[place]))

    def find(self, task: str, query_id: str) -> int | None:
        """The position of a query."""
        before = 0
        for name, ids in self.tasks:
            if name == task and query_id in ids:
                found = np.flatnonzero(self.order == before + ids.index(query_id))
                return int(found[0]) if len(found) else None
            before += len(ids)
        return None


def nth_query(tasks: Sequence[tuple[str, Sequence[str]]], place: int) -> tuple[str, str]:
    """Task and id of the query at a place in all tasks, one after the other."""
    for task, ids in tasks:
        if place < len(ids):
            return task, ids[place]
        place -= len(ids)
    raise IndexError(place)


def way_through(
    site: Site, results: CollectionResults, tasks: Sequence[str], systems: Sequence[str], order: str, measure: Measure
) -> Way:
    """The queries of some tasks in an order that is about the first system, or the first two."""
    found: list[tuple[str, Sequence[str]]] = []
    values: list[Float64] = []
    wanted: list[bool] = []
    for task in tasks:
        matrix = results.matrix(task, measure, systems[: 2 if order == "diff" else 1])
        if matrix is None or (order == "diff" and len(matrix.systems) < 2):
            continue
        value = matrix.scores[1] - matrix.scores[0] if order == "diff" else matrix.scores[0]
        found.append((task, matrix.query_ids))
        values.append(value)
        if order in KINDS:
            kinds = readable([], site.failures, results.systems[matrix.systems[0]][task]) or {}
            wanted += [order in kinds.get(query_id, ()) for query_id in matrix.query_ids]
        else:
            wanted += (np.abs(value) > 1e-6).tolist() if order == "diff" else [True] * len(value)
    whole, kept = np.concatenate([np.zeros(0), *values]), np.flatnonzero(wanted)
    key = -np.abs(whole[kept]) if order == "diff" else whole[kept]
    return Way(found, whole, kept[np.argsort(key, kind="stable")])
