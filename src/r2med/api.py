"""The few calls of a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .core import Qrels, Run, Task, UsageError
from .retrieve import Retriever, get_retriever
from .scoring import STANDARD, Evaluation, Measure, score

if TYPE_CHECKING:
    from .rerank import Rest

FIRST_STAGE = "bm25"
"""What a reranker reorders when nothing else is named."""


def evaluate(
    system: Run | Retriever | str | Any,
    task: Task | Qrels,
    *,
    expand: str | Any = None,
    policy: str | None = None,
    rerank: str | Any = None,
    rest: Rest = "keep",
    measures: Iterable[Measure | str] = STANDARD,
    depth: int = 1000,
) -> Evaluation:
    """Score a run, or retrieve with whatever is given and score that.

    `system` is a run, the name of a retriever, or an object: a retriever, an encoder (R2MED's `CustomModel`,
    sentence-transformers, MTEB, a function from texts to an array), a searcher of MTEB's. `expand` and `rerank` take a
    name (`concepts`, `maxsim@50`) or an object too; an object reranks the first hundred, as (object, depth) so many. A
    cross-encoder given as `system` reranks BM25.
    """
    chosen = [Measure.parse(m) if isinstance(m, str) else m for m in measures]
    if isinstance(system, Run):
        return score(system, task.qrels if isinstance(task, Task) else task, chosen)
    if not isinstance(task, Task):
        raise TypeError("a retriever needs a task, not judgments alone")
    if _reranks(system):
        if rerank is not None:
            raise UsageError("system and rerank are both rerankers: a first stage is missing")
        system, rerank = FIRST_STAGE, system
    retriever = get_retriever(system)
    run = _expanded(retriever, task, expand, policy, depth) if expand else retriever.retrieve(task, depth=depth)
    if rerank is not None:
        run = _reranked(run, task, rerank, rest)
    return score(run, task.qrels, chosen)


def _reranks(system: Any) -> bool:
    from .rerank import Reranker
    from .retrieve.objects import scores_pairs

    if isinstance(system, (str, Retriever)):
        return False
    return isinstance(system, Reranker) or scores_pairs(system)


def _expanded(retriever: Retriever, task: Task, expand: Any, policy: str | None, depth: int) -> Run:
    from .expand import get_expander
    from .pipeline.expanding import retrieve_expanded

    return retrieve_expanded(retriever, task, get_expander(expand).expand(task), policy, depth)[0]


def _reranked(run: Run, task: Task, rerank: Any, rest: Rest) -> Run:
    from .rerank import get_reranker, split_depth
    from .rerank.specs import DEPTH

    if isinstance(rerank, tuple):
        reranker, depth = rerank
    else:
        reranker, depth = split_depth(rerank) if isinstance(rerank, str) else (rerank, DEPTH)
    return get_reranker(reranker).rerank(task, run, depth, rest=rest)
