"""The final grades of a project as judgments of its corpus: what systems are scored with, and what is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..core import DataError, Documents, IdTable, Qrels, UsageError
from ..scoring.hits import Bools
from ..tasks.corpus import load_corpus
from .journal import Slot
from .project import Project


def pooled_corpus(project: Project, corpus: str | None = None) -> Documents:
    """The documents that were pooled from, unchanged; `corpus` is where they lie now."""
    source = corpus or project.settings.source
    try:
        documents = load_corpus(source).documents
    except (DataError, UsageError) as error:
        if corpus is not None:
            raise
        raise UsageError(f"{error}; say where the corpus lies with --corpus") from None
    if documents.fingerprint != project.settings.corpus_fingerprint:
        raise DataError("is not the corpus that was pooled: its documents have changed since", path=source)
    return documents


class Judgments(NamedTuple):
    """The final grades as judgments of documents, copies included, with what each has from whom."""

    qrels: Qrels
    best_rank: npt.NDArray[np.int64]  # of each judgment; 0 where it is in the pool whoever found it
    systems: list[frozenset[str]]  # that found each; none where it is in the pool whoever found it

    def without(self, systems: frozenset[str]) -> Qrels:
        """The judgments that a pool without these systems has."""
        return _kept(self.qrels, np.array([not found or bool(found - systems) for found in self.systems], dtype=bool))

    def at_depth(self, depth: int) -> Qrels:
        """The judgments of a shallower pool."""
        return _kept(self.qrels, self.best_rank <= depth)


def final_judgments(project: Project, grades: Mapping[Slot, int], queries: Sequence[str]) -> Judgments:
    """The grades of some queries; one below the lowest that counts as relevant is 0. Copies get the same grade."""
    settings = project.settings
    rows: list[tuple[str, int, int, frozenset[str]]] = []
    sizes = []
    for query_id in queries:
        seen: set[str] = set()
        for pooled in project.pool[query_id]:
            grade = grades.get((query_id, pooled.doc_id))
            if grade is None:
                continue
            anyway = pooled.sampled or (settings.pool_known and pooled.known is not None) or not pooled.systems
            rank = 0 if anyway else min(pooled.systems.values())
            found = frozenset() if anyway else frozenset(pooled.systems)
            for doc_id in (pooled.doc_id, *pooled.copies):
                if doc_id in seen:
                    raise DataError(f"has {doc_id!r} twice for {query_id!r}", path=project.folder / "pool.jsonl")
                seen.add(doc_id)
                rows.append((doc_id, grade if grade >= settings.relevant_from else 0, rank, found))
        sizes.append(len(seen))
    doc_ids = IdTable(dict.fromkeys(row[0] for row in rows))
    qrels = Qrels(
        IdTable(queries),
        doc_ids,
        np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int64),
        doc_ids.positions(row[0] for row in rows),
        np.array([row[1] for row in rows], dtype=np.int32),
    )
    return Judgments(qrels, np.array([row[2] for row in rows], dtype=np.int64), [row[3] for row in rows])


def _kept(qrels: Qrels, keep: Bools) -> Qrels:
    """Some of the judgments; a query without any stays, and scores 0."""
    owner = np.repeat(np.arange(len(qrels.query_ids)), np.diff(qrels.indptr))
    sizes = np.bincount(owner[keep], minlength=len(qrels.query_ids))
    indptr = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return Qrels(qrels.query_ids, qrels.doc_ids, indptr, qrels.docs[keep], qrels.grades[keep])


class Queries(NamedTuple):
    """The queries of a project by what is known of them."""

    usable: list[str]  # with a relevant passage
    without_relevant: list[str]
    open: list[str]  # with a passage that has no final grade; they may be usable, too


def sort_queries(project: Project, grades: Mapping[Slot, int]) -> Queries:
    """Which queries can be scored, and which lack something."""
    found = Queries([], [], [])
    for query_id, pool in project.pool.items():
        given = [grades.get((query_id, pooled.doc_id)) for pooled in pool]
        if not pool or None in given:
            found.open.append(query_id)
        if any(grade is not None and grade >= project.settings.relevant_from for grade in given):
            found.usable.append(query_id)
        elif any(grade is not None for grade in given):
            found.without_relevant.append(query_id)
    return found
