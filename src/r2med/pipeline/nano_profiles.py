"""Candidate profiles of a Nano task: BM25, dense, and the hybrid made for rerankers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core import NO_DOCUMENT, Run, Task
from ..fuse import reciprocal_rank
from ..retrieve import Retriever
from ..tasks.nano.names import HYBRID, config_name

DEPTH = 500
HYBRID_DEPTH = 100
HYBRID_K = 100


class Profiles(NamedTuple):
    """Ranked candidates by config, and the queries whose hybrid list got a positive appended."""

    runs: dict[str, Run]
    retrievers: dict[str, dict[str, object]]
    safeguarded: list[str]


def make_profiles(task: Task, bm25: Retriever, dense: Retriever | None) -> Profiles:
    """Retrieve and fuse; without a dense retriever there is no hybrid either."""
    runs = {"bm25": bm25.retrieve(task, depth=DEPTH).renamed("bm25")}
    described: dict[str, dict[str, object]] = {"bm25": {"name": bm25.name, "top_k": DEPTH, **bm25.describe()}}
    if dense is None:
        return Profiles(runs, described, [])
    config = config_name(dense.name)
    runs[config] = dense.retrieve(task, depth=DEPTH).renamed(config)
    described[config] = {"name": dense.name, "top_k": DEPTH, **dense.describe()}
    fused = reciprocal_rank(list(runs.values()), k=HYBRID_K, depth=HYBRID_DEPTH, name=HYBRID)
    runs[HYBRID], safeguarded = with_safeguard(fused, task)
    described[HYBRID] = {"name": "rrf", "k": HYBRID_K, "top_k": HYBRID_DEPTH, "of": ["bm25", config]}
    return Profiles(runs, described, safeguarded)


def with_safeguard(run: Run, task: Task) -> tuple[Run, list[str]]:
    """Append one positive, at rank 101 of a full list, where a list holds none: a reranker needs something to find.

    It is the query's first positive in the order of the judgments, and never part of recall.
    """
    docs = np.concatenate((run.docs, np.full((len(run), 1), NO_DOCUMENT, dtype=np.int32)), axis=1)
    scores = np.concatenate((run.scores, np.full((len(run), 1), -np.inf, dtype=np.float32)), axis=1)
    lengths, safeguarded = run.lengths(), []
    for row, query_id in enumerate(run.query_ids):
        judged = [d for d, grade in task.qrels.of(query_id).items() if grade > 0]
        positives = [p for d in judged if (p := run.doc_ids.position(d)) >= 0]
        if positives and not np.isin(run.docs[row], positives).any():
            at = int(lengths[row])
            docs[row, at] = positives[0]
            scores[row, at] = np.nextafter(scores[row, at - 1], np.float32(-np.inf)) if at else np.float32(0)
            safeguarded.append(query_id)
    return Run(run.query_ids, run.doc_ids, docs, scores, name=run.name), safeguarded


def without_safeguard(run: Run, safeguarded: set[str]) -> Run:
    """The hybrid lists as they were retrieved: nothing behind rank 100, nor the last of a shorter safeguarded list."""
    docs, scores = run.docs[:, :HYBRID_DEPTH].copy(), run.scores[:, :HYBRID_DEPTH].copy()
    lengths = run.lengths()
    for row, query_id in enumerate(run.query_ids):
        if query_id in safeguarded and lengths[row] <= HYBRID_DEPTH:
            docs[row, lengths[row] - 1], scores[row, lengths[row] - 1] = NO_DOCUMENT, -np.inf
    return Run(run.query_ids, run.doc_ids, docs, scores, name=run.name)
