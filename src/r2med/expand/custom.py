"""Expanders people bring themselves: an `Expander`, or any function from a query's text to more text."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..core import ModelError, Query, Task, UsageError
from ..core.addresses import made
from ..core.objects import answering, describe_object, name_of
from ..retrieve.guarded import described, is_ours
from .policy import DEFAULTS
from .protocol import FREE, Expander, Plan, Progress
from .values import Expansion, Expansions

METHOD = "custom"
EMPTY = "empty"


class CustomExpander:
    """Asks an object for the text that goes with a query: its `expand_query(text)`, or the object itself is called."""

    method = METHOD

    def __init__(self, model: Any, *, name: str = "") -> None:
        self.model = model
        self.name = name or name_of(model)
        self.warning = str(getattr(model, "warning", "") or "")
        found = getattr(model, "expand_query", None)
        if not callable(found) and (not callable(model) or inspect.isclass(model)):
            raise UsageError(f"{self.name} does not expand: it has no expand_query and cannot be called")
        self._call: Callable[[str], Any] = found if callable(found) else model

    def describe(self) -> dict[str, object]:
        return {"method": self.method, "name": self.name, **describe_object(self.model)}

    def plan(self, task: Task, *, limit: int | None = None) -> Plan:
        return FREE

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        items, queries = {}, task.queries[:limit]
        for number, query in enumerate(queries, start=1):
            items[query.id] = self._expansion(query)
            if on_progress:
                on_progress(number, len(queries))
        return Expansions(self.method, self.describe(), items)

    def _expansion(self, query: Query) -> Expansion:
        with answering(self.name, f"query {query.id!r}"):
            given = self._call(query.text)
        texts = (given,) if isinstance(given, str) else tuple(given or ())
        if not all(isinstance(text, str) for text in texts):
            raise ModelError(f"{self.name} returned something else than text for query {query.id!r}")
        usable = tuple(text for text in texts if text.strip())
        statuses = tuple("ok" if text.strip() else EMPTY for text in texts) or (EMPTY,)
        return Expansion(query_id=query.id, original=query.text, texts=usable, statuses=statuses)


class GuardedExpander:
    """An expander written against our own protocol by somebody else: what goes wrong in it is a line that names it."""

    def __init__(self, model: Expander) -> None:
        self.model = model
        self.name, self.method, self.warning = model.name, model.method, model.warning
        self.chat = getattr(model, "chat", None)

    def describe(self) -> dict[str, object]:
        return described(self.model, self.name)

    def plan(self, task: Task, *, limit: int | None = None) -> Plan:
        with answering(self.name, f"planning {task.full_name}"):
            return self.model.plan(task, limit=limit)

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        with answering(self.name, asked := f"{len(task.queries[:limit])} queries of {task.full_name}"):
            found = self.model.expand(task, limit=limit, on_progress=on_progress)
        if not isinstance(found, Expansions):
            raise ModelError(f"{self.name} returned {type(found).__name__} for {asked}, not Expansions")
        return found


def as_expander(model: Any, *, name: str = "") -> Expander:
    """An object as expander; a class is made."""
    model = made(model, name or name_of(model))
    if not isinstance(model, Expander):
        return CustomExpander(model, name=name)
    if model.method not in DEFAULTS:
        known = ", ".join(DEFAULTS)
        raise UsageError(f"{model.name} calls its method {model.method!r}: retrievers know how to take {known}")
    return model if is_ours(model, Expander) else GuardedExpander(model)
