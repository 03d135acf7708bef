"""Reranking with a slow chat server against the ideal: 16 calls of 200 ms in flight at all times, store on.

The server is a process of its own. Windows of one query follow from each other, groups and single passages do not.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

import numpy as np
from common import english_like, report
from llm_throughput import IN_FLIGHT, SECONDS, server

from r2med.core import Document, Documents, Qrels, Query, Run, Task
from r2med.core.options import Options
from r2med.pipeline import Builder

QUERIES, DOCUMENTS, WORDS = 50, 400, 150
METHODS = {"rankgpt": 100, "insertrank": 100, "grouprank,repeats=2": 100, "erank,score=number": 10, "setwise": 20}
"""Each method with the depth that it reranks to."""


def task_of_prose() -> Task:
    """Queries and documents with the statistics of English prose."""
    texts = english_like(np.random.default_rng(0), QUERIES + DOCUMENTS, WORDS)
    queries = tuple(Query(f"q{i}", text[:300]) for i, text in enumerate(texts[:QUERIES]))
    documents = Documents.of(Document(f"d{i:04d}", text) for i, text in enumerate(texts[QUERIES:]))
    return Task("prose", queries, documents, Qrels.from_judgments([("q0", "d0000", 1)]))


def candidates_of(task: Task) -> Run:
    """A hundred documents for each query, in any order."""
    rng = np.random.default_rng(1)
    docs = np.stack([rng.permutation(len(task.documents))[:100] for _ in task.queries]).astype(np.int32)
    scores = np.tile(np.linspace(20, 5, 100, dtype=np.float32), (len(task.queries), 1))
    return Run(task.query_ids, task.documents.ids, docs, scores, name="any")


def main() -> None:
    task, met = task_of_prose(), []
    first = candidates_of(task)
    with server() as url:
        for method, depth in METHODS.items():
            name, _, parameters = method.partition(",")
            spec = f"{name}:openai:any-model{',' if parameters else ''}{parameters}"
            with (
                tempfile.TemporaryDirectory() as folder,
                Builder(Options(base_url=url, concurrency=IN_FLIGHT)) as build,
            ):
                os.environ["R2MED_HOME"] = folder
                reranker = build.reranker(spec)
                build.reranker("yesno:openai:any-model").rerank(task, first, 1)  # connections are open
                begin = time.perf_counter()
                notes = reranker.rerank(task, first, depth).notes["rerank"]
                seconds = time.perf_counter() - begin
            assert isinstance(notes, dict)
            calls = int(notes["asked"] if "asked" in notes else notes["scored"])
            ideal = calls * SECONDS / IN_FLIGHT
            print(f"{method}: {calls} calls of {1e3 * SECONDS:.0f} ms in {seconds:.2f} s, ideal {ideal:.2f} s")
            met.append(report(f"{method}: time / ideal", seconds / ideal, 1.15, at_least=False))
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    main()
