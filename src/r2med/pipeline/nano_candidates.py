"""Candidates of a Nano task: BM25's, a dense retriever's, and the hybrid of both that rerankers start from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core import NO_DOCUMENT, Run, Task, UsageError
from ..core.options import Options
from ..core.spec import Spec
from ..fuse import ReciprocalRank
from ..models import find_card
from ..models.parts import Instructions
from ..retrieve import Retriever, get_retriever
from ..tasks.nano.folder import HYBRID, config_name
from .experiment import missing_for

DEPTH = 500
HYBRID_DEPTH = 100
HYBRID_K = 100
AUTOMATIC = ("harrier", "bge-small")
"""NanoR2MED's own dense model where it is at hand, else the embedded default."""
# NanoR2MED asks Harrier with the model's own prompt `web_search_query`, whatever the task.
WEB_SEARCH_QUERY = "Given a web search query, retrieve relevant passages that answer the query"


class Candidates(NamedTuple):
    """Ranked candidates by config, and the queries whose hybrid list got a positive appended."""

    runs: dict[str, Run]
    retrievers: dict[str, dict[str, object]]
    safeguarded: list[str]


def dense_retriever(spec: str, options: Options | None = None) -> Retriever | None:
    """The retriever behind `--dense`: a name, `none`, or `auto` for the first of the usual ones that can run here."""
    if spec == "auto":
        spec = next((name for name in AUTOMATIC if not missing_for(name)), "none")
    if spec == "none":
        return None
    if spec == "harrier":
        from ..retrieve.dense import DenseRetriever
        from ..retrieve.encoders import load_encoder

        instructions = Instructions(query={"default": WEB_SEARCH_QUERY})
        card = find_card("harrier").replace(prompts="web_search_query", instructions=instructions)
        named = Spec("harrier", parameters=(("prompts", "web_search_query"),))
        return DenseRetriever(load_encoder(card, options), named, card=card, options=options)
    retriever = get_retriever(spec, options)
    if retriever.kind == "lexical":
        raise UsageError(f"{spec!r} is not a dense retriever; the BM25 profile is chosen with --bm25")
    return retriever


def make_candidates(task: Task, bm25: Retriever, dense: Retriever | None) -> Candidates:
    """Retrieve and fuse; without a dense retriever there is no hybrid either."""
    runs = {"bm25": bm25.retrieve(task, depth=DEPTH).renamed("bm25")}
    described: dict[str, dict[str, object]] = {"bm25": {"name": bm25.name, "top_k": DEPTH, **bm25.describe()}}
    if dense is None:
        return Candidates(runs, described, [])
    config = config_name(dense.name)
    runs[config] = dense.retrieve(task, depth=DEPTH).renamed(config)
    described[config] = {"name": dense.name, "top_k": DEPTH, **dense.describe()}
    fused = ReciprocalRank(HYBRID_K).fuse(list(runs.values()), task, HYBRID_DEPTH, HYBRID)
    runs[HYBRID], safeguarded = with_safeguard(fused, task)
    described[HYBRID] = {"name": "rrf", "k": HYBRID_K, "top_k": HYBRID_DEPTH, "of": ["bm25", config]}
    return Candidates(runs, described, safeguarded)


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
