"""`--mode eval_retrieval`: a retriever under the paper's protocol, with or without generated texts."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from ..core import DataError, Run, Task, UsageError
from ..expand.policy import R2MED
from ..expand.replay import Replayed
from ..models import card_names, find_card, locate
from ..pipeline.expanding import retrieve_expanded
from ..pipeline.reproduce import PAPER, card_under
from ..results.protocols import get_protocol
from ..retrieve import Retriever, get_retriever
from .scores import MAIN, TOP, main_score, scores, without_own_id, write_scores, write_topk
from .tree import Tree


class Gar(NamedTuple):
    """Whose generated texts stand in for the queries."""

    method: str
    llm: str


class Scored(NamedTuple):
    """The main score of a task, and whether it was there before."""

    value: float
    kept: bool


def paper_retriever(name: str, **options: Any) -> Retriever:
    """A retriever as the repository's scripts set it: their lengths, their similarity."""
    folded = name.casefold().replace("_", "-")
    if folded not in card_names():
        return get_retriever(name, **options)
    card = find_card(folded)
    if card.kind != "dense":
        return get_retriever(name, **options)
    from ..retrieve.dense import DenseRetriever

    card = card_under(card, get_protocol(PAPER))[0]
    second = locate(card, "document") if card.document_source else None
    return DenseRetriever(card, name=folded, folder=locate(card), document_folder=second, **options)


def evaluate_task(
    tree: Tree, task: Task, retriever: Retriever, name: str, gar: Gar | None, *, overwrite: bool = False
) -> Scored:
    """Rank, score and write one task; scores that are there are left alone, as the scripts leave them."""
    path = tree.gar(gar.method, gar.llm, name, task.name) if gar else tree.base(name, task.name)
    there = main_score(path)
    if there is not None and not overwrite:
        return Scored(there, kept=True)
    begin = time.perf_counter()
    run = rank(tree, task, retriever, gar)
    test = scores(run, task, retriever.kind)
    if gar is None:
        write_topk(tree.topk(name, task.name), run)
        named: dict[str, str | int] = {"model_name": name}
    else:
        named = {"model_name": name, "retriever_name": name, "gar_method": gar.method, "gar_llm": gar.llm}
    write_scores(path, task, test, time.perf_counter() - begin, **named)
    return Scored(test[MAIN], kept=False)


def rank(tree: Tree, task: Task, retriever: Retriever, gar: Gar | None = None) -> Run:
    """The first hundred documents; BEIR's search, which the scripts use for dense models, drops a query's own id."""
    depth = TOP + 1
    if gar is None:
        run = retriever.retrieve(task, depth=depth)
    else:
        file = tree.hydoc(task.name, gar.method, gar.llm)
        if not file.is_file():
            command = f"--mode generate_hydoc --task {task.name} --gar_method {gar.method} --gar_llm {gar.llm}"
            raise DataError(f"there are no generated texts (python -m r2med.upstream {command})", path=file)
        expansions = Replayed(gar.method, path=file).expand(task)
        if not any(item.usable for item in expansions):
            raise UsageError(f"{file} has no usable text for any query of {task.name}")
        run = retrieve_expanded(retriever, task, expansions, R2MED, depth)[0]
    return (without_own_id(run) if retriever.kind == "dense" else run).top(TOP)
