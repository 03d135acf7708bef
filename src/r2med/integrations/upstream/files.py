"""Scores under the repository's keys, in the repository's files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ..core import NO_DOCUMENT, Run, Task
from ..core.atomic import write_bytes
from ..scoring import Measure, evaluate_run

TOP = 100
"""Documents of a query that are scored and kept."""
FAMILIES = ("ndcg", "map", "recall", "precision")
CUTOFFS = {"lexical": (1, 10, 25, 50, 100), "dense": (1, 3, 5, 10, 100), "reranked": (1, 10, 25, 50, 100)}
MAIN = "ndcg_at_10"
DIGITS = 5


def scores(run: Run, task: Task, kind: str) -> dict[str, float]:
    """Means over all judged queries, rounded; dense retrievers have other cut-offs than the rest, and no MRR."""
    measures = [Measure(family, k) for family in FAMILIES for k in CUTOFFS.get(kind, CUTOFFS["dense"])]
    with_mrr = kind in ("lexical", "reranked")
    found = evaluate_run(run.top(TOP), task.qrels, [*measures, *([Measure("mrr", TOP)] if with_mrr else [])]).means
    return {"mrr" if key.startswith("mrr") else key: round(value, DIGITS) for key, value in found.items()}


def write_scores(path: Path, task: Task, test: dict[str, float], seconds: float, **names: str | int) -> None:
    """One result file."""
    document = {
        "dataset_name": task.name,
        "evaluation_time": f"{round(seconds / 60, 2)} minutes",
        "test": test,
        **names,
    }
    write_bytes(path, json.dumps(document, indent=2, sort_keys=True).encode())


def main_score(path: Path) -> float | None:
    """The main score of a result file that is there already; None where there is none to be read.

    Some files that come with the repository spell their keys `NDCG@10`.
    """
    try:
        test = json.loads(path.read_bytes())["test"]
        return float(test[MAIN] if MAIN in test else test["NDCG@10"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_topk(path: Path, run: Run) -> None:
    """The first hundred documents of each query, with their scores."""
    lines = [json.dumps({"id": query, "topk_pid": [list(hit) for hit in hits]}) for query, hits in run.top(TOP)]
    write_bytes(path, ("\n".join(lines) + "\n").encode())


def without_own_id(run: Run) -> Run:
    """A run without documents that carry the id of the query; lists close up."""
    own = run.doc_ids.positions(run.query_ids)[:, None]
    dropped = (run.docs == own) & (own >= 0)
    if not dropped.any():
        return run
    docs = np.where(dropped, np.int32(NO_DOCUMENT), run.docs)
    order = np.argsort(dropped, axis=1, kind="stable")
    docs, held = np.take_along_axis(docs, order, axis=1), np.take_along_axis(run.scores, order, axis=1)
    return Run(run.query_ids, run.doc_ids, docs, np.where(docs < 0, -np.inf, held).astype(np.float32), name=run.name)
