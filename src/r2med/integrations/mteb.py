"""MTEB: its names for our tasks and measures, and a task of ours as one of its own, without the hub.

`mteb.evaluate(model, to_mteb(task))` and `r2med.evaluate(model, task)` give one model the same texts: title, a space
and the text of a document, the text of a query, no document left out for having a query's id.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..core import MissingExtra, Task, UsageError, fingerprint
from ..retrieve.mteb_inputs import SPLIT, SUBSET
from ..retrieve.mteb_inputs import mteb_name as catalogue_name
from ..scoring import Measure
from ..tasks import entries
from .runs import to_dict

LANGUAGE = "eng-Latn"
CUTOFFS = (1, 3, 5, 10, 20, 100, 1000)
FAMILIES = {
    "ndcg": "ndcg",
    "map": "map",
    "recall": "recall",
    "precision": "precision",
    "mrr": "mrr",
    "hit": "hit_rate",
}
"""Our families of measures and what MTEB calls them."""


class Named(NamedTuple):
    """A task of the catalogue."""

    collection: str
    task: str


def mteb_name(collection: str, task: str) -> str:
    """MTEB's own name for a task of R2MED, and a name that MTEB has not taken for every other.

    A task that is not in the catalogue is named after its folder: `OwnMyTaskRetrieval` is `my-task`. Where other
    folders would come to the same name it carries a hash.
    """
    if any(entry.name == task for entry in entries(collection)) and (name := catalogue_name(collection, task)):
        return name
    whole = f"{collection}/{task}" if collection else task
    words = "".join(part[0].upper() + part[1:] for part in re.findall(r"[A-Za-z0-9]+", whole))
    read_back = "-".join(re.findall("[A-Z][a-z0-9]*", words)).lower()
    mark = "" if read_back == whole else f"_{fingerprint('task', whole)[:8]}"
    return f"Own{words}{mark}Retrieval"


def task_of(name: str) -> Named | None:
    """The task of the catalogue that an MTEB name stands for."""
    known = (Named(e.collection, e.name) for e in entries())
    return next((task for task in known if mteb_name(*task) == name), None)


def mteb_measure(key: str) -> str | None:
    """MTEB's key of one of our measures, None where MTEB has no such cut-off."""
    measure = Measure.parse(key) if not key.startswith("recall_micro") else None
    if measure is None or measure.cutoff not in CUTOFFS:
        return None
    return f"{FAMILIES[measure.family]}_at_{measure.cutoff}"


def our_measure(key: str) -> str | None:
    """Our key of one of MTEB's measures, None for those we do not compute (nAUC and the like)."""
    family, _, cutoff = key.rpartition("_at_")
    ours = {theirs: own for own, theirs in FAMILIES.items()}.get(family)
    return f"{ours}_at_{cutoff}" if ours and cutoff.isascii() and cutoff.isdigit() else None


def to_mteb(task: Task) -> Any:
    """An MTEB retrieval task (`AbsTaskRetrieval`) that holds the data of `task`."""
    try:
        import datasets
        from mteb.abstasks.retrieval import AbsTaskRetrieval
        from mteb.abstasks.task_metadata import TaskMetadata
    except ImportError:
        raise MissingExtra("making MTEB tasks", "mteb") from None
    if set(task.qrels.query_ids) - set(task.query_ids):
        raise UsageError(f"{task.full_name} judges queries that it does not hold, which MTEB cannot take")
    name = mteb_name(task.collection, task.name)
    metadata = TaskMetadata(
        name=name,
        description=f"{task.full_name}: reasoning-driven medical retrieval, as r2med holds it.",
        dataset={"path": task.source or task.full_name, "revision": task.revision or task.fingerprint},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=[SPLIT],
        eval_langs=[LANGUAGE],
        main_score="ndcg_at_10",
        domains=["Medical"],
    )
    made = type(name, (AbsTaskRetrieval,), {"metadata": metadata, "__module__": __name__})()
    corpus = [{"id": d.id, "title": d.title, "text": d.text} for d in task.documents]
    data = {
        "corpus": datasets.Dataset.from_list(corpus),
        "queries": datasets.Dataset.from_list([{"id": q.id, "text": q.text} for q in task.queries]),
        "relevant_docs": {query: grades for query, grades in to_dict(task.qrels).items() if grades},
        "top_ranked": None,
    }
    made.dataset = {SUBSET: {SPLIT: data}}
    made.data_loaded = True
    return made
