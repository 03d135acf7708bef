"""TF-IDF over pieces of words: finds `hepatosplenomegaly` by `splenomegaly`, and a drug in spite of its spelling.

A full retriever: it prepares the documents of a task once, then searches them for any queries. r2med knows it by its
arguments and its code: another `size`, or another version of this file, is another system.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter

import numpy as np

from r2med import Queries, Run, Task

WORD = re.compile(r"[a-z0-9]+")
BUCKETS = 1 << 18


class CharTfidf:
    """Ranks documents by the cosine of their piece counts, rare pieces weighing more."""

    name = "char-tfidf"
    kind = "lexical"

    def __init__(self, size: int = 4) -> None:
        self.size = size

    def prepare(self, task: Task) -> CharIndex:
        """An index of the task's documents."""
        return CharIndex(task, self.size)


class CharIndex:
    """The pieces of each document, by piece."""

    def __init__(self, task: Task, size: int) -> None:
        self.ids, self.size = task.documents.ids, size
        documents = [pieces(text, size) for text in task.documents.contents]
        counts = np.zeros(BUCKETS)
        for document in documents:
            counts[list(document)] += 1
        self.rarity = np.log((1 + len(documents)) / (1 + counts)) + 1
        buckets, weights, owners = [], [], []
        for number, document in enumerate(documents):
            held = np.fromiter(document, dtype=np.int64, count=len(document))
            weight = (1 + np.log(np.fromiter(document.values(), dtype=float, count=len(document)))) * self.rarity[held]
            buckets.append(held)
            weights.append(weight / max(float(np.linalg.norm(weight)), 1e-12))  # a document's weights have length one
            owners.append(np.full(len(held), number))
        order = np.argsort(np.concatenate(buckets), kind="stable")
        self.weights, self.owners = np.concatenate(weights)[order], np.concatenate(owners)[order]
        self.starts = np.searchsorted(np.concatenate(buckets)[order], np.arange(BUCKETS + 1))

    def search(self, queries: Queries, depth: int) -> Run:
        """The best `depth` documents of each query."""
        rankings = {}
        for query_id, text in zip(queries.ids, queries.single("char-tfidf"), strict=True):
            scores = np.zeros(len(self.ids))
            for bucket, count in pieces(text, self.size).items():
                span = slice(self.starts[bucket], self.starts[bucket + 1])
                scores[self.owners[span]] += (1 + np.log(count)) * self.rarity[bucket] * self.weights[span]
            best = np.argsort(-scores, kind="stable")[:depth]
            rankings[query_id] = [(self.ids[int(i)], float(scores[i])) for i in best if scores[i] > 0]
        return Run.from_rankings(rankings, doc_ids=self.ids, name="char-tfidf")


def pieces(text: str, size: int) -> Counter[int]:
    """Hashes of all runs of `size` characters, words marked at both ends."""
    found: Counter[int] = Counter()
    for word in WORD.findall(text.casefold()):
        marked = f"_{word}_"
        for start in range(max(len(marked) - size, 0) + 1):
            found[zlib.crc32(marked[start : start + size].encode()) % BUCKETS] += 1
    return found
