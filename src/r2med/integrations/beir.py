"""BEIR: the three dicts that its loader gives and its evaluation takes. Runs and judgments are plain dicts too.

BEIR drops a document whose id is the query's own unless told otherwise, and rounds its scores to five digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..core import Document, Documents, Query, Task, UsageError
from .dictionaries import qrels_from_dict, to_dict


class BeirTask(NamedTuple):
    """What `GenericDataLoader.load` returns."""

    corpus: dict[str, dict[str, str]]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]


def to_beir(task: Task) -> BeirTask:
    """Corpus, queries and judgments as BEIR's loader gives them."""
    return BeirTask(
        {d.id: {"title": d.title, "text": d.text} for d in task.documents},
        {q.id: q.text for q in task.queries},
        to_dict(task.qrels),
    )


def from_beir(
    corpus: Mapping[str, Mapping[str, str]],
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    name: str = "beir",
) -> Task:
    """A task from what BEIR's loader gives; everything that takes a task takes it."""
    for kind, found in (("corpus", corpus), ("queries", queries), ("judgments", qrels)):
        if not found:
            raise UsageError(f"{name}: the {kind} dict is empty")
    return Task(
        name=name,
        queries=tuple(Query(query_id, text) for query_id, text in queries.items()),
        documents=Documents.of(Document(i, d.get("text", ""), d.get("title") or "") for i, d in corpus.items()),
        qrels=qrels_from_dict(qrels),
        source="beir",
    )
