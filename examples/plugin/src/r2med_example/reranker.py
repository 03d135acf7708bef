"""Proximity: a passage that has the query's rare words within one stretch goes up.

A full reranker: it gets the task and the candidates with their scores, so it knows the collection and the first stage.
(Less will do: an object with `predict(pairs)` that returns a score a pair is a reranker too.)
"""

from __future__ import annotations

import math
import re
from collections import Counter

from r2med import Run, Task

WORD = re.compile(r"[a-z0-9]{3,}")


class Proximity:
    """Half the first stage's score, half the share of the query's weight that one stretch of `span` words holds."""

    name = "proximity"
    kind = "custom"

    def __init__(self, span: int = 40) -> None:
        self.span = span

    def rerank(self, task: Task, candidates: Run, depth: int = 100, *, rest: str = "keep") -> Run:
        """The first `depth` candidates of each query in a new order, the others below them or dropped."""
        rarity = self.rarity(task)
        rankings = {}
        for query in task.queries:
            hits = candidates.of(query.id)
            head, tail = hits[:depth], hits[depth:] if rest == "keep" else []
            best = max((abs(hit.score) for hit in head), default=0.0) or 1.0
            ranked = []
            for hit in head:
                document = task.documents.get(hit.doc_id)
                near = self.nearness(query.text, document.contents if document else "", rarity)
                ranked.append((hit.doc_id, 0.5 * hit.score / best + 0.5 * near))
            below = min((score for _, score in ranked), default=0.0)
            rankings[query.id] = ranked + [(hit.doc_id, below - place) for place, hit in enumerate(tail, start=1)]
        return Run.from_rankings(rankings, doc_ids=task.documents.ids, name=self.name)

    def rarity(self, task: Task) -> dict[str, float]:
        """What a word weighs: the rarer in the collection, the more."""
        found: Counter[str] = Counter()
        for text in task.documents.contents:
            found.update(set(words(text)))
        return {word: math.log(1 + len(task.documents) / count) for word, count in found.items()}

    def nearness(self, query: str, passage: str, rarity: dict[str, float]) -> float:
        """The most of the query's weight that lies within `span` words of the passage, as a share of all of it."""
        asked = {word: rarity.get(word, 0.0) for word in words(query)}
        places = [(place, word) for place, word in enumerate(words(passage)) if word in asked]
        inside: Counter[str] = Counter()
        best = weight = 0.0
        first = 0
        for place, word in places:
            weight += asked[word] if not inside[word] else 0.0
            inside[word] += 1
            while places[first][0] <= place - self.span:
                left = places[first][1]
                inside[left] -= 1
                weight -= asked[left] if not inside[left] else 0.0
                first += 1
            best = max(best, weight)
        return best / (sum(asked.values()) or 1.0)


def words(text: str) -> list[str]:
    """Words by their first seven letters: `infection` and `infections` are one."""
    return [word[:7] for word in WORD.findall(text.casefold())]
