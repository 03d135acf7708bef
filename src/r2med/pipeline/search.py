"""Searching a task for a typed text, with the matching words marked."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from ..core import Qrels, Query, Task, UsageError
from ..retrieve import get_retriever
from ..retrieve.dense import DenseRetriever
from ..text import get_analyzer

_WORD = re.compile(r"\w+(?:['’]\w+)*")


class Found(NamedTuple):
    """A passage, and where in it the query's terms stand."""

    rank: int
    doc_id: str
    score: float
    title: str
    text: str
    marks: list[tuple[int, int]]
    terms: list[str]


def search_text(task: Task, text: str, retriever: str, top: int, *, memory: int | None = None) -> list[Found]:
    """The best passages for a text that is no query of the task."""
    if not text.strip():
        raise UsageError("the query is empty")
    asked = replace(task, queries=(Query("typed", text),), qrels=Qrels.from_judgments([]))
    analyze = get_analyzer("english")
    wanted = set(analyze(text))
    searcher = get_retriever(retriever)
    if isinstance(searcher, DenseRetriever):
        searcher.memory = memory
    found = []
    for rank, hit in enumerate(searcher.retrieve(asked, depth=top).row(0), start=1):
        document = task.documents.get(hit.doc_id)
        assert document is not None
        marks, terms = [], dict[str, None]()
        for word in _WORD.finditer(document.contents):
            if shared := wanted.intersection(analyze(word[0])):
                marks.append(word.span())
                terms.update(dict.fromkeys(sorted(shared)))
        found.append(Found(rank, hit.doc_id, hit.score, document.title, document.contents, marks, list(terms)))
    return found
