"""A system's ranking made step by step, without a plan: what runs are compared with."""

from __future__ import annotations

from r2med.core import Run, Task
from r2med.core.queries import Queries
from r2med.expand import queries_for
from r2med.pipeline import System


def ranked(system: System, task: Task, depth: int) -> Run:
    """The ranking of a task by one system, nothing shared with others."""
    expansions = system.expander.expand(task) if system.expander else None
    runs = []
    for retriever in system.retrievers:
        queries = Queries.of(task)
        if expansions is not None:
            queries, _ = queries_for(retriever, task, expansions, system.policy)
        runs.append(retriever.prepare(task).search(queries, depth))
    run = system.fusion.fuse(runs, task, depth, system.spec.first_stage) if system.fusion else runs[0]
    for reranking in system.rerankings:
        run = reranking.reranker.rerank(task, run, reranking.depth, rest=reranking.rest)
    return run.renamed(system.name)
