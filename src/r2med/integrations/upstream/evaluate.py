"""`--mode eval_retrieval` and `eval_reranker`: systems under the paper's protocol, scores in the repository's files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...core import NO_DOCUMENT, DataError, Run, Task, UsageError
from ...core.files import write_bytes
from ...core.spec import Content, Spec
from ...expand import queries_for
from ...expand.contract import R2MED
from ...expand.policy import queries_without_text
from ...expand.replay import Replayed, marking_of
from ...models.prompts import PAPER, own_wording
from ...pipeline import Builder
from ...pipeline.reproduce import as_published
from ...rerank import Reranker
from ...results.protocols import get_protocol
from ...retrieve import Retriever, retrievers
from ...retrieve.cards import card_of, with_pack, wording_of
from ...retrieve.stored import load_candidates
from ...scoring import Measure, score
from .tree import PROMPTS, Tree, prompts_of

TOP = 100  # Documents of a query that are scored and kept.
RECALL_K = (10, 100)
FAMILIES = ("ndcg", "map", "recall", "precision")
CUTOFFS = {"lexical": (1, 10, 25, 50, 100), "dense": (1, 3, 5, 10, 100), "reranked": (1, 10, 25, 50, 100)}
MAIN = "ndcg_at_10"


class Gar(NamedTuple):
    """Whose generated texts stand in for the queries."""

    method: str
    llm: str


class Scored(NamedTuple):
    """The main score of a task, and whether it was there before."""

    value: float
    kept: bool


def paper_retriever(name: str, prompts: Content | None = None) -> Spec:
    """A retriever as the repository's scripts set it: their lengths, their similarity, their words."""
    spec = retrievers.parse(name)
    if prompts is not None and "prompts" in retrievers.declared(spec):
        # A model in r2med's words must be told the pack's; one without them is refused when it is made.
        spec = retrievers.changed(spec, prompts=prompts) if own_wording(card_of(spec)) else with_pack(spec, prompts)
    return as_published(spec)


def filed_name(spec: Spec) -> str:
    """What a retriever is called in the repository's files; all of them are under the paper's protocol.

    The plain name is for the repository's own instructions: a model that was told other words has another name.
    """
    pack = spec.get("prompts")
    plain = spec.without("protocol")
    if isinstance(pack, Content):
        return str(plain.without("prompts") if pack.whole == get_protocol(PAPER).prompts else plain)
    own = "prompts" in retrievers.declared(spec) and own_wording(card_of(spec))
    return str(plain.with_parameters(prompts="r2med") if own else plain)


def instructions_of(spec: Spec) -> str:
    """Whose words a retriever is instructed in; empty where it takes no instruction."""
    return wording_of(spec, card_of(spec)) if "prompts" in retrievers.declared(spec) else ""


def evaluate_retriever(
    tree: Tree, retriever: Retriever, gar: Gar | None, task: Task, *, overwrite: bool = False
) -> Scored:
    """Rank, score and write one task."""
    name = filed_name(retriever.spec)

    def ranked() -> Run:
        run = rank(tree, task, retriever, gar)
        if gar is None:
            write_candidates(tree.candidates(name, task.name), run)
        return run

    names: dict[str, str | int] = {"model_name": name}
    if whose := instructions_of(retriever.spec):
        names["instructions"] = whose
    path = tree.scores("base retriever", name, task=task.name)
    if gar is not None:
        names |= {"retriever_name": name, "gar_method": gar.method, "gar_llm": gar.llm}
        path = tree.scores("gar", gar.method, gar.llm, name, task=task.name)
        if prompts := prompts_of(tree.texts(task.name, *gar)):
            names[PROMPTS] = prompts
    return _scored(path, task, retriever.kind, names, ranked, overwrite=overwrite)


def evaluate_reranker(
    tree: Tree, reranker: Reranker, first: Spec, build: Builder, task: Task, *, recall_k: int, overwrite: bool = False
) -> Scored:
    """Rerank the first ten or hundred documents of a retriever, score and write one task; the rest is dropped.

    Scores are filed by retriever too, as in the published tree: the repository's script leaves it out, and there one
    retriever's scores overwrite another's.
    """
    name = filed_name(first)

    def reranked() -> Run:
        file = tree.candidates(name, task.name)
        if not file.is_file():  # the scripts never write it unless their source is changed
            write_candidates(file, rank(tree, task, build.retriever(first)))
        run = reranker.rerank(task, load_candidates(file, task), recall_k, rest="drop")
        return run.top(recall_k)

    own = str(reranker.spec.at(None).without("protocol"))
    names: dict[str, str | int] = {"model_name": own, "reranker_name": own}
    names |= {"retriever_name": name, "topk": recall_k}
    path = tree.scores("reranker", own, name, f"top_{recall_k}", task=task.name)
    return _scored(path, task, "reranked", names, reranked, overwrite=overwrite)


def rank(tree: Tree, task: Task, retriever: Retriever, gar: Gar | None = None) -> Run:
    """The first hundred documents; BEIR's search, which the scripts use for dense models, drops a query's own id."""
    depth = TOP + 1
    if gar is None:
        run = retriever.retrieve(task, depth=depth)
    else:
        file = tree.texts(task.name, *gar)
        if not file.is_file():
            command = f"--mode generate_hydoc --task {task.name} --gar_method {gar.method} --gar_llm {gar.llm}"
            raise DataError(f"there are no generated texts (python -m r2med.upstream {command})", path=file)
        expansions = Replayed(gar.method, path=file, marking=marking_of(gar.llm)).expand(task)
        queries, policy = queries_for(retriever, task, expansions, R2MED)
        if queries_without_text(task, expansions, policy) == len(task.queries):
            raise UsageError(f"{file} has no text for any query of {task.name}")
        run = retriever.prepare(task).search(queries, depth)
    return (without_own_id(run) if retriever.kind == "dense" else run).top(TOP)


def _scored(
    path: Path, task: Task, kind: str, names: dict[str, str | int], ranked: Callable[[], Run], *, overwrite: bool
) -> Scored:
    """Rank, score and write a result file; one that is there is left alone, as the scripts leave it."""
    there = main_score(path)
    if there is not None and not overwrite:
        if (before := _stated_prompts(path)) != (now := str(names.get(PROMPTS, ""))):
            stated = [name or "the repository's" for name in (before, now)]
            what = f"is of texts made with {stated[0]} prompts, not with {stated[1]}"
            raise DataError(f"{what}: --overwrite replaces it", path=path)
        return Scored(there, kept=True)
    begin = time.perf_counter()
    test = scores(ranked(), task, kind)
    document = {
        "dataset_name": task.name,
        "evaluation_time": f"{round((time.perf_counter() - begin) / 60, 2)} minutes",
        "test": test,
        **names,
    }
    write_bytes(path, json.dumps(document, indent=2, sort_keys=True).encode())
    return Scored(test[MAIN], kept=False)


def scores(run: Run, task: Task, kind: str) -> dict[str, float]:
    """Means over all judged queries, rounded; dense retrievers have other cut-offs than the rest, and no MRR."""
    measures = [Measure(family, k) for family in FAMILIES for k in CUTOFFS.get(kind, CUTOFFS["dense"])]
    with_mrr = kind in ("lexical", "reranked")
    found = score(run.top(TOP), task.qrels, [*measures, *([Measure("mrr", TOP)] if with_mrr else [])]).means
    return {"mrr" if key.startswith("mrr") else key: round(value, 5) for key, value in found.by_key().items()}


def main_score(path: Path) -> float | None:
    """The main score of a result file; None where there is none to be read.

    Some files that come with the repository spell their keys `NDCG@10`.
    """
    try:
        test = json.loads(path.read_bytes())["test"]
        return float(test[MAIN] if MAIN in test else test["NDCG@10"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _stated_prompts(path: Path) -> str:
    """Whose prompts the texts of a result file were made with; empty: the repository's."""
    try:
        return str(json.loads(path.read_bytes()).get(PROMPTS, ""))
    except (OSError, ValueError, AttributeError):
        return ""


def write_candidates(path: Path, run: Run) -> None:
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
    scores = np.where(dropped, np.float32(-np.inf), run.scores)
    return Run(run.query_ids, run.doc_ids, docs, scores, name=run.name)
