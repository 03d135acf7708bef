"""Hard negatives: passages that look like the query's and lead elsewhere.

Candidates of several retrievers are taken in turn. A passage is left out where it may be relevant after all: it is
judged so, nearly a copy of a positive, from the article of a positive, or it names the query's answer. What stays
shares the presentation with the query and draws another conclusion.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core import Query, Run, Task, UsageError
from ..retrieve import Retriever
from ..tasks.audit.ids import article
from ..text.minhash import overlaps
from ..text.shingles import shingle


class Passage(NamedTuple):
    """A passage of the training data; negatives say who found them and where."""

    id: str
    text: str
    by: str = ""
    rank: int = 0


class Example(NamedTuple):
    """One query with all its positives and its negatives."""

    query_id: str
    query: str
    positives: list[Passage]
    negatives: list[Passage]


@dataclass(frozen=True)
class MiningSettings:
    """How negatives are chosen."""

    negatives: int = 7
    depth: int = 100
    skip: int = 0
    similarity: float = 0.6

    def __post_init__(self) -> None:
        if self.negatives < 1 or self.depth < 1 or self.skip < 0:
            raise UsageError("negatives and depth must be 1 or more, skip 0 or more")
        if not 0 < self.similarity <= 1:
            raise UsageError(f"similarity must lie between 0 and 1, not {self.similarity:g}")


def mine(task: Task, retrievers: Sequence[Retriever], settings: MiningSettings) -> tuple[list[Example], dict[str, int]]:
    """Examples of a task, and how many candidates were left out for each reason."""
    if not retrievers:
        raise UsageError("negatives need at least one retriever")
    runs = [r.retrieve(task, depth=settings.skip + settings.depth) for r in retrievers]
    positives = {
        q.id: [p for d, g in task.qrels.of(q.id).items() if g > 0 and (p := task.documents.ids.position(d)) >= 0]
        for q in task.queries
    }
    alike = _alike(task, positives, runs, settings.similarity)
    reasons: Counter[str] = Counter()
    examples = []
    for row, query in enumerate(task.queries):
        if not positives[query.id]:
            reasons["query without positive"] += 1
            continue
        rule = _Rule(task, query, positives[query.id], alike)
        chosen = list[Passage]()
        for doc, by, rank in _in_turn(runs, row, settings.skip):
            if len(chosen) == settings.negatives:
                break
            if reason := rule.against(doc):
                reasons[reason] += 1
            else:
                chosen.append(Passage(task.documents.ids[doc], task.documents.contents[doc], by, rank))
        found = [Passage(task.documents.ids[d], task.documents.contents[d]) for d in positives[query.id]]
        examples.append(Example(query.id, query.text, found, chosen))
    return examples, dict(reasons)


class _Rule:
    """Whether a document may serve as a negative of one query."""

    def __init__(self, task: Task, query: Query, positives: list[int], alike: set[tuple[int, int]]) -> None:
        self._task, self._positives, self._alike = task, positives, alike
        ids = task.documents.ids
        self._articles = {article(ids[p]) for p in positives if article(ids[p]) != ids[p]}
        answer = " ".join((query.answer or "").split())
        long_enough = len(answer) >= 3 and len(answer.split()) <= 8
        self._answer = re.compile(rf"\b{re.escape(answer)}\b", re.IGNORECASE) if long_enough else None

    def against(self, doc: int) -> str:
        """Why not, or nothing."""
        if doc in self._positives:
            return "positive"
        if any((p, doc) in self._alike for p in self._positives):
            return "nearly a positive"
        if article(self._task.documents.ids[doc]) in self._articles:
            return "article of a positive"
        if self._answer is not None and self._answer.search(self._task.documents.contents[doc]):
            return "names the answer"
        return ""


def _in_turn(runs: Sequence[Run], row: int, skip: int) -> Iterator[tuple[int, str, int]]:
    """Candidates of all runs by rank, each document once."""
    seen = set[int]()
    for rank in range(skip, max(run.depth for run in runs)):
        for run in runs:
            if rank < run.depth and (doc := int(run.docs[row, rank])) >= 0 and doc not in seen:
                seen.add(doc)
                yield doc, run.name, rank + 1


def _alike(task: Task, positives: dict[str, list[int]], runs: Sequence[Run], similarity: float) -> set[tuple[int, int]]:
    """(positive, candidate) pairs of which one text stands in the other to the share `similarity`."""
    left = np.array(sorted({p for of_query in positives.values() for p in of_query}), dtype=np.int64)
    right = np.unique(np.concatenate([run.docs.ravel() for run in runs])).astype(np.int64)
    right = right[right >= 0]
    contents = task.documents.contents
    found = overlaps(shingle(contents.take(left.tolist())), shingle(contents.take(right.tolist())), least=similarity)
    return set(zip(left[found.left].tolist(), right[found.right].tolist(), strict=True))
