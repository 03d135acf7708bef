"""MTEB: a task of ours as one of theirs, on this machine and without the hub.

`mteb.evaluate(model, to_mteb(task))` and `r2med.evaluate(model, task)` give one model the same texts: title, a space
and the text of a document, the text of a query, no document left out for having a query's id.
"""

from __future__ import annotations

from typing import Any

from ..core import MissingExtra, Task, UsageError
from .mteb_names import mteb_name
from .runs import to_dict

SPLIT = "test"
SUBSET = "default"


def to_mteb(task: Task) -> Any:
    """An MTEB retrieval task (`AbsTaskRetrieval`) that holds the data of `task`."""
    datasets, base, metadata = _mteb()
    name = mteb_name(task.collection, task.name)
    if set(task.qrels.query_ids) - set(task.query_ids):
        raise UsageError(f"{task.full_name} judges queries that it does not hold, which MTEB cannot take")
    facts = metadata(
        name=name,
        description=f"{task.full_name}: reasoning-driven medical retrieval, as r2med holds it.",
        dataset={"path": task.source or task.full_name, "revision": task.revision or task.fingerprint},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=[SPLIT],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        domains=["Medical"],
    )
    made = type(name, (base,), {"metadata": facts, "__module__": __name__})()
    judged = {q: grades for q, grades in to_dict(task.qrels).items() if grades}
    made.dataset = {
        SUBSET: {
            SPLIT: {
                "corpus": datasets.Dataset.from_list(
                    [{"id": d.id, "title": d.title, "text": d.text} for d in task.documents]
                ),
                "queries": datasets.Dataset.from_list([{"id": q.id, "text": q.text} for q in task.queries]),
                "relevant_docs": judged,
                "top_ranked": None,
            }
        }
    }
    made.data_loaded = True
    return made


def _mteb() -> tuple[Any, Any, Any]:
    try:
        import datasets
        from mteb.abstasks.retrieval import AbsTaskRetrieval
        from mteb.abstasks.task_metadata import TaskMetadata
    except ImportError:
        raise MissingExtra("making MTEB tasks", "mteb") from None
    return datasets, AbsTaskRetrieval, TaskMetadata
