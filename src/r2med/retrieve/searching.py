"""MTEB's `SearchProtocol` as a retriever: an object that indexes a corpus and searches it itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core import DataError, Hit, ModelError, Run, Task, UsageError
from ..core.objects import accepted, answering, describe_object, name_of
from .mteb_inputs import BATCH, SPLIT, SUBSET, Rows, task_facts


class SearchRetriever:
    """Hands over the corpus and the queries, and checks what comes back."""

    kind = "custom"

    def __init__(self, model: Any, *, name: str = "") -> None:
        self.model = model
        self.name = name or name_of(model)

    def describe(self) -> dict[str, object]:
        """What little is known."""
        return {"kind": self.kind, "backend": "custom", "name": self.name, **describe_object(self.model)}

    def retrieve(self, task: Task, *, depth: int = 1000) -> Run:
        """The best `depth` documents of each query."""
        if depth < 1:
            raise UsageError(f"depth must be 1 or more, not {depth}")
        shared = {
            "task_metadata": task_facts(task),
            "hf_split": SPLIT,
            "hf_subset": SUBSET,
            "encode_kwargs": {"batch_size": BATCH, "show_progress_bar": False},
            "num_proc": None,
        }
        titles = task.documents.titles or [""] * len(task.documents)
        corpus = dataset({"id": list(task.documents.ids), "title": list(titles), "text": list(task.documents.texts)})
        queries = dataset({"id": list(task.query_ids), "text": list(task.query_texts)})
        with answering(self.name, f"indexing {len(task.documents)} documents of {task.full_name}"):
            self.model.index(corpus, **accepted(self.model.index, shared))
        with answering(self.name, f"searching {len(task.queries)} queries of {task.full_name}"):
            given = shared | {"top_k": depth, "top_ranked": None}
            found = self.model.search(queries, **accepted(self.model.search, given))
        return self._run(found, task, depth)

    def _run(self, found: Any, task: Task, depth: int) -> Run:
        if not isinstance(found, Mapping) or not all(isinstance(hits, Mapping) for hits in found.values()):
            raise ModelError(f"{self.name} did not return scores by query and document")
        if stray := next((q for q in found if q not in task.query_ids), None):
            raise ModelError(f"{self.name} returned results for query {stray!r}, which {task.full_name} does not hold")
        try:
            rankings = {q: [Hit(str(d), float(s)) for d, s in found.get(q, {}).items()] for q in task.query_ids}
            run = Run.from_rankings(rankings, doc_ids=task.documents.ids, name=self.name)
        except (DataError, TypeError, ValueError) as error:
            raise ModelError(f"{self.name} returned results that cannot be used ({error})") from None
        return run.top(depth)


def dataset(columns: dict[str, list[str]]) -> Any:
    """A `datasets.Dataset` where that library is installed, as MTEB's own searchers need; else its look-alike."""
    try:
        from datasets import Dataset
    except ImportError:
        return Rows(columns)
    return Dataset.from_dict(columns)
