"""`--mode eval_reranker`: the first ten or hundred documents of a retriever in a new order; the rest is dropped."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..core import Run, Task
from ..rerank import Reranker, load_candidates
from ..retrieve import Retriever
from .retrieval import Scored, rank
from .scores import MAIN, main_score, scores, write_scores, write_topk
from .tree import Tree


def rerank_task(
    tree: Tree,
    task: Task,
    first: Callable[[], Retriever],
    reranker: Reranker,
    *,
    retriever_name: str,
    reranker_name: str,
    recall_k: int,
    overwrite: bool = False,
) -> Scored:
    """Rerank, score and write one task."""
    path = tree.reranker(reranker_name, retriever_name, recall_k, task.name)
    there = main_score(path)
    if there is not None and not overwrite:
        return Scored(there, kept=True)
    begin = time.perf_counter()
    candidates = _candidates(tree, task, retriever_name, first)
    run = reranker.rerank(task, candidates, recall_k, rest="drop")
    test = scores(run.top(recall_k), task, "reranked")
    write_scores(
        path,
        task,
        test,
        time.perf_counter() - begin,
        model_name=reranker_name,
        reranker_name=reranker_name,
        retriever_name=retriever_name,
        topk=recall_k,
    )
    return Scored(test[MAIN], kept=False)


def _candidates(tree: Tree, task: Task, retriever: str, first: Callable[[], Retriever]) -> Run:
    """The first stage's file, made where it is missing: the scripts never write it unless their source is changed."""
    file = tree.topk(retriever, task.name)
    if not file.is_file():
        write_topk(file, rank(tree, task, first()))
    return load_candidates(file, task)
