"""Relevance judgments: graded, sparse, in arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .columns import IdTable, Int32, Int64
from .errors import DataError
from .fingerprint import Hasher


class Judgment(NamedTuple):
    """One line of a qrels file."""

    query_id: str
    doc_id: str
    grade: int


class Qrels:
    """Judgments grouped by query (CSR): `docs[indptr[i]:indptr[i+1]]` are the documents judged for query i."""

    def __init__(self, query_ids: IdTable, doc_ids: IdTable, indptr: Int64, docs: Int32, grades: Int32) -> None:
        self.query_ids = query_ids
        self.doc_ids = doc_ids
        self.indptr = indptr
        self.docs = docs
        self.grades = grades

    @classmethod
    def from_judgments(cls, judgments: Iterable[Judgment | tuple[str, str, int]]) -> Qrels:
        """Group judgments by query in order of first appearance; a repeated pair must agree with itself."""
        grouped: dict[str, dict[str, int]] = {}
        for query_id, doc_id, grade in judgments:
            of_query = grouped.setdefault(query_id, {})
            if of_query.setdefault(doc_id, grade) != grade:
                raise DataError(
                    f"query {query_id!r} judges document {doc_id!r} twice, as {of_query[doc_id]} and {grade}"
                )
        doc_ids = IdTable(dict.fromkeys(d for of_query in grouped.values() for d in of_query))
        sizes = [len(of_query) for of_query in grouped.values()]
        return cls(
            IdTable(grouped),
            doc_ids,
            np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64),
            doc_ids.positions(d for of_query in grouped.values() for d in of_query),
            np.fromiter((g for of_query in grouped.values() for g in of_query.values()), dtype=np.int32),
        )

    def __len__(self) -> int:
        return len(self.docs)

    def __iter__(self) -> Iterator[Judgment]:
        bounds, docs, grades = self.indptr.tolist(), self.docs.tolist(), self.grades.tolist()
        for i, query_id in enumerate(self.query_ids):
            for j in range(bounds[i], bounds[i + 1]):
                yield Judgment(query_id, self.doc_ids[docs[j]], grades[j])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Qrels) and sorted(self) == sorted(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Qrels({len(self.query_ids)} queries, {len(self)} judgments, {self.positives} positive)"

    def of(self, query_id: str) -> dict[str, int]:
        """Judged documents of one query with their grades; empty for an unknown query."""
        i = self.query_ids.position(query_id)
        if i < 0:
            return {}
        span = slice(self.indptr[i], self.indptr[i + 1])
        return {self.doc_ids[d]: g for d, g in zip(self.docs[span].tolist(), self.grades[span].tolist(), strict=True)}

    @property
    def positives(self) -> int:
        """Number of judgments with a grade above zero."""
        return int((self.grades > 0).sum())

    def positives_per_query(self) -> Int64:
        """Number of positive judgments of each query."""
        running = np.concatenate(([0], np.cumsum(self.grades > 0)))
        return (running[self.indptr[1:]] - running[self.indptr[:-1]]).astype(np.int64)

    def positives_only(self) -> Qrels:
        """The same queries with only their positive judgments; a query without any stays, with none."""
        positive = self.grades > 0
        indptr = np.concatenate(([0], np.cumsum(self.positives_per_query()))).astype(np.int64)
        return Qrels(self.query_ids, self.doc_ids, indptr, self.docs[positive], self.grades[positive])

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the judgments, independent of their order."""
        owners = np.repeat(np.arange(len(self.query_ids)), np.diff(self.indptr))
        order = np.lexsort((-self.doc_ids.tie_rank[self.docs], -self.query_ids.tie_rank[owners]))
        query_ids, doc_ids = list(self.query_ids), list(self.doc_ids)
        hasher = Hasher("qrels")
        hasher.texts([query_ids[i] for i in owners[order].tolist()])
        hasher.texts([doc_ids[i] for i in self.docs[order].tolist()])
        hasher.data(self.grades[order].astype("<i4"))
        return hasher.digest()
