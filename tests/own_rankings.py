"""Rankings that somebody's own retriever or reranker may return, good and bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import r2med


class Ranking:
    """A retriever or reranker by our protocols, returning what the test says."""

    name, kind = "theirs", "custom"

    def __init__(self, answer: Callable[[r2med.Task], Any], facts: Any = None) -> None:
        self.answer = answer
        self.facts = {"version": 1} if facts is None else facts

    def describe(self) -> Any:
        return self.facts() if callable(self.facts) else self.facts


def run_of(task: r2med.Task, query: str = "", doc: str = "", score: float = 1.0) -> r2med.Run:
    return r2med.Run.from_rankings({query or task.queries[0].id: [(doc or task.documents.ids[0], score)]})


def broken(*_: Any) -> Any:
    raise RuntimeError("CUDA out of memory\non device 0")


def with_nan(task: r2med.Task) -> r2med.Run:
    run = run_of(task)
    run.scores[:] = np.nan
    return run


def beyond_the_documents(task: r2med.Task) -> r2med.Run:
    run = run_of(task)
    run.docs[:] = 99_999
    return run
