"""TF-IDF over pieces of words: finds `hepatosplenomegaly` by `splenomegaly`, and a drug in spite of its spelling.

A full retriever: r2med asks it for nothing but a name, a kind, a description and a ranking.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter

import numpy as np

from r2med import Run, Task

WORD = re.compile(r"[a-z0-9]+")
BUCKETS = 1 << 18


class CharTfidf:
    """Ranks documents by the cosine of their piece counts, rare pieces weighing more."""

    name = "char-tfidf"
    kind = "lexical"

    def __init__(self, size: int = 4) -> None:
        self.size = size

    def describe(self) -> dict[str, object]:
        """All that changes a ranking: results made with other settings are run again."""
        return {"retriever": self.name, "size": self.size, "version": 1}

    def pieces(self, text: str) -> Counter[int]:
        """Hashes of all runs of `size` characters, words marked at both ends."""
        found: Counter[int] = Counter()
        for word in WORD.findall(text.casefold()):
            marked = f"_{word}_"
            for start in range(max(len(marked) - self.size, 0) + 1):
                found[zlib.crc32(marked[start : start + self.size].encode()) % BUCKETS] += 1
        return found

    def retrieve(self, task: Task, *, depth: int = 1000) -> Run:
        """The best `depth` documents of each query."""
        documents = [self.pieces(text) for text in task.documents.contents]
        counts = np.zeros(BUCKETS)
        for document in documents:
            counts[list(document)] += 1
        rarity = np.log((1 + len(documents)) / (1 + counts)) + 1
        buckets, weights, owners = self._postings(documents, rarity)
        starts = np.searchsorted(buckets, np.arange(BUCKETS + 1))
        rankings = {}
        for query in task.queries:
            scores = np.zeros(len(documents))
            for bucket, count in self.pieces(query.text).items():
                span = slice(starts[bucket], starts[bucket + 1])
                scores[owners[span]] += (1 + np.log(count)) * rarity[bucket] * weights[span]
            best = np.argsort(-scores, kind="stable")[:depth]
            rankings[query.id] = [(task.documents.ids[int(i)], float(scores[i])) for i in best if scores[i] > 0]
        return Run.from_rankings(rankings, doc_ids=task.documents.ids, name=self.name)

    def _postings(self, documents: list[Counter[int]], rarity: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Piece, weight and document, sorted by piece; a document's weights have length one."""
        buckets, weights, owners = [], [], []
        for number, document in enumerate(documents):
            held = np.fromiter(document, dtype=np.int64, count=len(document))
            weight = (1 + np.log(np.fromiter(document.values(), dtype=float, count=len(document)))) * rarity[held]
            buckets.append(held)
            weights.append(weight / max(float(np.linalg.norm(weight)), 1e-12))
            owners.append(np.full(len(held), number))
        order = np.argsort(np.concatenate(buckets), kind="stable")
        return tuple(np.concatenate(column)[order] for column in (buckets, weights, owners))  # type: ignore[return-value]
