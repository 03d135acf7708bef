"""Retrievers written against our own protocol by somebody else: what goes wrong in one is a line that names it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import DataError, ModelError, Run, Task, fingerprint
from ..core.objects import answering
from .protocol import Retriever

PACKAGE = __name__.partition(".")[0]


def is_ours(thing: object, protocol: type) -> bool:
    """Whether a class of ours does the work: subclasses count, the bare protocol does not."""
    return any(c is not protocol and c.__module__.partition(".")[0] == PACKAGE for c in type(thing).__mro__)


class GuardedRetriever:
    """Asks, and looks at the answer before anybody builds on it."""

    def __init__(self, model: Retriever) -> None:
        self.model = model
        self.name, self.kind = model.name, model.kind

    def describe(self) -> dict[str, object]:
        """What it says of itself."""
        return described(self.model, self.name)

    def retrieve(self, task: Task, *, depth: int = 1000) -> Run:
        """The best `depth` documents of each query."""
        with answering(self.name, asked := f"{len(task.queries)} queries of {task.full_name}"):
            found = self.model.retrieve(task, depth=depth)
        return checked_run(found, task, self.name, asked).top(depth)


def described(model: Any, name: str) -> dict[str, object]:
    """The plain data that a thing describes itself by."""
    with answering(name, "describing itself"):
        facts: Any = model.describe()
        fingerprint("check", facts)
    if not isinstance(facts, dict):
        raise ModelError(f"{name} describes itself by a {type(facts).__name__}, not a dict")
    return facts


def checked_run(found: Any, task: Task, name: str, asked: str) -> Run:
    """A run over the queries and documents of a task; a query that was left out has an empty row."""
    if not isinstance(found, Run):
        raise ModelError(f"{name} returned {type(found).__name__} for {asked}, not a Run")
    if stray := next((query for query in found.query_ids if query not in task.query_ids), None):
        raise ModelError(f"{name} returned results for query {stray!r}, which {task.full_name} does not hold")
    if np.isnan(found.scores).any():
        raise ModelError(f"{name} returned scores that are not numbers for {asked}")
    try:
        run = found.on(task.documents.ids, query_ids=task.query_ids)
        run.check_unique()
    except (DataError, IndexError) as error:
        raise ModelError(f"{name} returned results that cannot be used for {asked} ({error})") from None
    return run
