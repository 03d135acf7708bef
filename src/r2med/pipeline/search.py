"""Searching a task for a typed text, with the matching words marked."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..core import Task, UsageError
from ..core.options import Options
from ..core.queries import Queries
from ..core.spec import Spec
from ..retrieve import get_retriever
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


def search_text(
    task: Task, text: str, retriever: str | Spec | object, top: int, *, options: Options | None = None
) -> list[Found]:
    """The best passages for a text that is no query of the task."""
    if not text.strip():
        raise UsageError("the query is empty")
    analyze = get_analyzer("english")
    wanted = set(analyze(text))
    run = get_retriever(retriever, options).prepare(task).search(Queries.typed([text]), top)
    found = []
    for rank, hit in enumerate(run.row(0), start=1):
        document = task.documents.get(hit.doc_id)
        assert document is not None
        marks, terms = [], dict[str, None]()
        for word in _WORD.finditer(document.contents):
            if shared := wanted.intersection(analyze(word[0])):
                marks.append(word.span())
                terms.update(dict.fromkeys(sorted(shared)))
        found.append(Found(rank, hit.doc_id, hit.score, document.title, document.contents, marks, list(terms)))
    return found
