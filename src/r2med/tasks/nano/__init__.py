"""Nano tasks: small pools that keep every positive, with ranked candidates beside them.

Positives come first, all of them. A byte-identical copy of a positive is merged into it: its judgments move there and
the copy leaves the pool, so that no system is punished for finding the right text under another id. The rest is filled
up in source order, as NanoR2MED was, with the documents that retrievers mistake for relevant, or at random.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import msgspec
import numpy as np

from ...core import DataError, Documents, IdTable, Qrels, Query, Run, Task, UsageError

Fill = Literal["source-order", "hard", "random"]
FILLS: tuple[Fill, ...] = get_args(Fill)


@dataclass(frozen=True)
class PoolSettings:
    """All that decides which documents get in."""

    docs: int = 10_000
    fill: Fill = "source-order"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.docs < 1:
            raise UsageError(f"a pool needs at least one document, not {self.docs}")
        if self.fill not in FILLS:
            raise UsageError(f"unknown fill {self.fill!r}; known: {', '.join(FILLS)}")
        if self.seed < 0:
            raise UsageError(f"a seed cannot be negative, got {self.seed}")


class Admission(NamedTuple):
    """How a document got in: `positive`, `source-order`, a retriever's name (with query and rank), `random`."""

    doc: int
    by: str
    query: str = ""
    rank: int = 0


class Account(msgspec.Struct, kw_only=True):
    """What was merged or left out while the pool was chosen."""

    positives_merged: int
    duplicate_queries: dict[str, str]
    queries_without_positive: list[str]
    judgments_of_missing_documents: list[tuple[str, str]]
    copies_merged_into_positives: dict[str, str]
    copies_left_out: int


class Pool(NamedTuple):
    """The Nano task, how each document got in, and what was left out."""

    task: Task
    admissions: list[Admission]
    account: Account


def build_pool(task: Task, settings: PoolSettings, candidates: Sequence[Run] = (), *, name: str = "") -> Pool:
    """Choose the queries, judgments and documents of the Nano version of `task`.

    `candidates` are runs over the whole task, needed for the fill `hard`.
    """
    if settings.fill == "hard" and not candidates:
        raise UsageError("the fill 'hard' needs the candidates of a retriever")
    kept, duplicates = _distinct_queries(task.queries)
    judged, missing = _positives(task, duplicates)
    canonical = _canonical(task.documents, {doc for _, doc in judged})
    merged: dict[tuple[str, int], int] = {}
    for (query_id, doc), grade in judged.items():
        pair = (query_id, canonical[doc])
        merged[pair] = max(grade, merged.get(pair, 0))
    with_positive = {query_id for query_id, _ in merged}
    queries = tuple(q for q in kept if q.id in with_positive)
    if not queries:
        raise DataError(f"{task.full_name} has no query with a positive document")
    positives = sorted({doc for _, doc in merged})
    if len(positives) > settings.docs:
        raise UsageError(
            f"{task.full_name} has {len(positives):,} positives: --docs {settings.docs:,} cannot hold them"
        )
    admissions = [Admission(doc, "positive") for doc in positives]
    taken = set(positives)
    fresh = (a for a in _filling(task, settings, candidates, queries) if canonical[a.doc] == a.doc)
    for admission in fresh:
        if len(admissions) >= settings.docs:
            break
        if admission.doc not in taken:
            taken.add(admission.doc)
            admissions.append(admission)
    admissions.sort(key=lambda a: a.doc)
    copies = {d: c for d, c in enumerate(canonical) if d != c}
    ids, of_positive = task.documents.ids, set(positives)
    return Pool(
        task=replace(
            task,
            name=name or task.name,
            queries=queries,
            documents=take(task.documents, [a.doc for a in admissions]),
            qrels=_qrels(merged, ids, queries),
        ),
        admissions=admissions,
        account=Account(
            positives_merged=len(judged) - len(merged),
            duplicate_queries=duplicates,
            queries_without_positive=[q.id for q in kept if q.id not in with_positive],
            judgments_of_missing_documents=missing,
            copies_merged_into_positives={ids[d]: ids[c] for d, c in copies.items() if c in of_positive},
            copies_left_out=sum(c not in of_positive for c in copies.values()),
        ),
    )


def _distinct_queries(queries: Sequence[Query]) -> tuple[list[Query], dict[str, str]]:
    """Queries with different texts, and for each dropped one the query that stays."""
    first: dict[str, Query] = {}
    dropped = {}
    for query in queries:
        stays = first.setdefault(query.text, query)
        if stays is not query:
            dropped[query.id] = stays.id
    return list(first.values()), dropped


def _positives(task: Task, duplicates: dict[str, str]) -> tuple[dict[tuple[str, int], int], list[tuple[str, str]]]:
    """Grades of positive pairs (query id, document position); judgments of a dropped query go to the one that stays."""
    judged: dict[tuple[str, int], int] = {}
    missing = []
    for query_id, doc_id, grade in task.qrels:
        if grade <= 0 or query_id not in task.query_ids:
            continue
        doc = task.documents.ids.position(doc_id)
        if doc < 0:
            missing.append((query_id, doc_id))
            continue
        pair = (duplicates.get(query_id, query_id), doc)
        judged[pair] = max(grade, judged.get(pair, 0))
    return judged, missing


def _canonical(documents: Documents, positives: set[int]) -> list[int]:
    """For each document the one that stands for it: the first positive among its copies, else the first copy."""
    stands: dict[bytes, int] = {}
    digests = documents.contents.digests()
    for doc in sorted(positives):
        stands.setdefault(digests[doc], doc)
    return [stands.setdefault(digest, doc) for doc, digest in enumerate(digests)]


def _filling(
    task: Task, settings: PoolSettings, candidates: Sequence[Run], queries: Sequence[Query]
) -> Iterator[Admission]:
    """Documents in the order in which they may fill the pool; some come more than once."""
    count = len(task.documents)
    if settings.fill == "source-order":
        yield from (Admission(doc, "source-order") for doc in range(count))
        return
    rows = [(run, run.query_ids.positions(q.id for q in queries)) for run in candidates]
    for rank in range(max((run.depth for run in candidates), default=0)):
        for i, query in enumerate(queries):
            for run, positions in rows:
                if rank < run.depth and positions[i] >= 0 and (doc := int(run.docs[positions[i], rank])) >= 0:
                    yield Admission(doc, run.name, query.id, rank + 1)
    # An order that depends on the seed and the content alone.
    digest = hashlib.blake2b(f"{settings.seed}:{task.fingerprint}".encode(), digest_size=16).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))
    yield from (Admission(doc, "random") for doc in rng.permutation(count).tolist())


def _qrels(merged: dict[tuple[str, int], int], ids: IdTable, queries: Sequence[Query]) -> Qrels:
    """Judgments in the order of the queries, and within a query of the documents."""
    place = {q.id: i for i, q in enumerate(queries)}
    ordered = sorted(merged.items(), key=lambda item: (place[item[0][0]], item[0][1]))
    return Qrels.from_judgments((query_id, ids[doc], grade) for (query_id, doc), grade in ordered)


def take(documents: Documents, positions: Sequence[int]) -> Documents:
    """Some documents, in the order given."""
    titles = documents.titles.take(positions) if documents.titles is not None else None
    return Documents(IdTable(documents.ids[i] for i in positions), documents.texts.take(positions), titles)
