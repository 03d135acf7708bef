"""What texts give away: a query inside a document, copies among queries, copies of positives that are not judged."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from ...core import Task, TextColumn
from ...text.minhash import Overlaps, Pairs, groups, near_duplicates, overlaps
from ...text.shingles import Shingles, shingle
from .findings import EXAMPLES, CopyCount, FlagList

INSIDE = 0.8
LEAST_WORDS = 8  # shorter texts stand inside others without having been copied


class Material(NamedTuple):
    """A task with the shingles of its texts."""

    task: Task
    documents: Shingles
    queries: Shingles

    @classmethod
    def of(cls, task: Task, width: int) -> Material:
        """Shingle a task."""
        return cls(task, shingle(task.documents.contents, width), shingle(task.query_texts, width))

    def positives(self) -> dict[int, list[str]]:
        """For each positive document (by position) the queries it is relevant to."""
        found: dict[int, list[str]] = {}
        position = self.task.documents.ids.position
        for query_id, doc_id, grade in self.task.qrels:
            if grade > 0 and (at := position(doc_id)) >= 0 and query_id in self.task.query_ids:
                found.setdefault(at, []).append(query_id)
        return found


def long_enough(sizes: np.ndarray, width: int) -> np.ndarray:
    """Texts of at least `LEAST_WORDS` words, by the number of their shingles."""
    return sizes >= LEAST_WORDS - width + 1


def inside(found: Overlaps, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Which pairs have the left text inside the right one, and which the right inside the left."""
    left = (found.left_inside >= INSIDE) & long_enough(found.left_size, width)
    right = (found.right_inside >= INSIDE) & long_enough(found.right_size, width)
    same = found.similarity == 1.0
    return left | same, right | same


def flag_documents_of_queries(material: Material, flags: FlagList) -> None:
    """Queries that stand in a document, and documents that stand in a query."""
    task, width = material.task, material.documents.width
    found = overlaps(material.queries, material.documents)
    left, right = inside(found, width)
    for i in np.flatnonzero(left | right).tolist():
        query_id, doc_id = task.queries[int(found.left[i])].id, task.documents.ids[int(found.right[i])]
        judged = "a positive" if task.qrels.of(query_id).get(doc_id, 0) > 0 else "a document not judged relevant"
        kind = "query-in-document" if left[i] else "document-in-query"
        share = float((found.left_inside if left[i] else found.right_inside)[i])
        whose = "query's" if left[i] else "document's"
        flags.add(
            query_id, kind, f"{share:.0%} of the {whose} word runs stand in both; {judged}", doc_id, round(share, 4)
        )


def flag_duplicate_queries(material: Material, flags: FlagList, threshold: float) -> None:
    """Queries that say the same."""
    ids = material.task.query_ids
    pairs = near_duplicates(material.queries, threshold)
    for first, second, similarity in zip(*(c.tolist() for c in pairs), strict=True):
        for one, other in ((first, second), (second, first)):
            said = f"similarity {similarity:.2f} with query {ids[other]!r}"
            flags.add(ids[one], "duplicate-query", said, ids[other], round(similarity, 4))


def flag_unjudged_copies(material: Material, pairs: Pairs, flags: FlagList) -> None:
    """Positives of which the corpus holds a copy that counts as wrong."""
    task, positives = material.task, material.positives()
    ids = task.documents.ids
    for first, second, similarity in zip(*(c.tolist() for c in pairs), strict=True):
        for one, other in ((first, second), (second, first)):
            for query_id in positives.get(one, ()):
                if query_id not in positives.get(other, ()):
                    said = f"copy (similarity {similarity:.2f}) of positive {ids[one]!r} is not judged relevant"
                    flags.add(query_id, "unjudged-copy", said, ids[other], round(similarity, 4))


def exact_groups(contents: TextColumn) -> list[list[int]]:
    """Documents with byte-identical contents."""
    seen: dict[bytes, list[int]] = {}
    for i in range(len(contents)):
        digest = hashlib.blake2b(contents.encoded(i), digest_size=16).digest()
        seen.setdefault(digest, []).append(i)
    return [same for same in seen.values() if len(same) > 1]


def count_copies(task: Task, found: list[list[int]]) -> CopyCount:
    """Groups as counts, with the first few spelled out."""
    examples = [[task.documents.ids[i] for i in group[:EXAMPLES]] for group in found[:EXAMPLES]]
    return CopyCount(len(found), sum(map(len, found)), examples)


def near_groups(task: Task, pairs: Pairs) -> CopyCount:
    """Documents joined by near duplication."""
    return count_copies(task, groups(pairs, len(task.documents)))
