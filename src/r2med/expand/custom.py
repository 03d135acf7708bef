"""Expanders people bring themselves: one of our contract, or any function from a query's text to more text."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..core import ModelError, Query, Task, UsageError
from ..core.identity import Identity, identify, name_of
from ..core.options import Progress
from ..core.plugins import find_plugin, instantiate, load_address, plugins, wrap_errors
from ..core.registry import Entry
from ..core.spec import Spec
from ..llm import Cost
from ..retrieve import Build
from ..retrieve.custom import described, is_ours, object_spec
from .contract import EMPTY, OK, Expander, Expansion, Expansions, expanders


def from_address(spec: Spec, build: Build) -> Expander:
    """The expander at `module:attr`, made with the arguments of the spec."""
    del build
    made = load_address(spec.without("policy"))
    return _named(made.value, made.arguments, spec)


def from_plugin(spec: Spec, build: Build) -> Expander:
    """The expander that an installed package offers under the name of the spec."""
    del build
    plugin = find_plugin("expander", spec.name)
    assert plugin is not None
    made = plugin.load(spec.without("policy"))
    try:
        return _named(made.value, made.arguments, spec)
    except UsageError as error:
        raise UsageError(f"{plugin.label}: {error}") from None


def _named(model: Any, arguments: dict[str, Any], spec: Spec) -> Expander:
    policy = {key: value for key, value in spec.parameters if key == "policy"}
    return as_expander(model, spec=replace(spec, parameters=tuple(sorted((arguments | policy).items()))))


def as_expander(model: Any, *, spec: Spec | None = None) -> Expander:
    """An object as expander; a class is constructed."""
    if is_ours(model, Expander):
        return model  # type: ignore[no-any-return]
    model = instantiate(model, str(spec or name_of(model))).value
    if is_ours(model, Expander):
        return model  # type: ignore[no-any-return]
    identity = identify(model)
    spec = spec or object_spec(model, identity, expanders)
    if callable(getattr(model, "expand", None)):
        return ForeignExpander(model, spec, identity)
    return CustomExpander(model, spec, identity)


def _plugged(name: str) -> Entry[Expander] | None:
    plugin = find_plugin("expander", name)
    return None if plugin is None else Entry(name, from_plugin, f"plug-in of {plugin.distribution}", open=True)


expanders.from_address = from_address
expanders.finders.append(_plugged)
expanders.listings.append(lambda: (plugin.name for plugin in plugins("expander")))


class CustomExpander(Expander):
    """Asks an object for the text that goes with a query: its `expand_query(text)`, or the object itself is called."""

    method = "custom"
    needs_text = False

    def __init__(self, model: Any, spec: Spec, identity: Identity) -> None:
        self.model, self.spec, self.identity = model, spec, identity
        self.warning = str(getattr(model, "warning", "") or "")
        found = getattr(model, "expand_query", None)
        if not callable(found) and (not callable(model) or inspect.isclass(model)):
            raise UsageError(f"{self.name} does not expand: it has no expand_query and cannot be called")
        self._call: Callable[[str], Any] = found if callable(found) else model

    def describe(self) -> dict[str, object]:
        """The object's identity."""
        return {"method": self.method, "name": self.name, **self.identity.facts}

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        """Ask for each query."""
        items, queries = {}, task.queries[:limit]
        for number, query in enumerate(queries, start=1):
            items[query.id] = self._expansion(query)
            if on_progress:
                on_progress(number, len(queries))
        return Expansions(self.method, self.describe(), items)

    def _expansion(self, query: Query) -> Expansion:
        with wrap_errors(self.name, f"query {query.id!r}"):
            given = self._call(query.text)
        texts = (given,) if isinstance(given, str) else tuple(given or ())
        if not all(isinstance(text, str) for text in texts):
            raise ModelError(f"{self.name} returned something else than text for query {query.id!r}")
        usable = tuple(text for text in texts if text.strip())
        statuses = tuple(OK if text.strip() else EMPTY for text in texts) or (EMPTY,)
        return Expansion(query_id=query.id, original=query.text, texts=usable, statuses=statuses)


class ForeignExpander(Expander):
    """An expander written against our contract by somebody else; its answer is checked."""

    needs_text = False

    def __init__(self, model: Any, spec: Spec, identity: Identity) -> None:
        self.model, self.spec, self.identity = model, spec, identity
        self.method = str(getattr(model, "method", "custom"))
        self.warning = str(getattr(model, "warning", "") or "")
        self.chat = getattr(model, "chat", None)

    def describe(self) -> dict[str, object]:
        """What it says of itself, and its identity."""
        return {"method": self.method, **described(self.model, self.name), "identity": self.identity.facts}

    def plan(self, task: Task, *, limit: int | None = None) -> Cost:
        """Its own plan, where it has one."""
        if not callable(getattr(self.model, "plan", None)):
            return Cost()
        with wrap_errors(self.name, f"planning {task.full_name}"):
            found: Cost = self.model.plan(task, limit=limit)
        return found

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        """What it makes of the queries."""
        with wrap_errors(self.name, given := f"{len(task.queries[:limit])} queries of {task.full_name}"):
            found = self.model.expand(task, limit=limit, on_progress=on_progress)
        if not isinstance(found, Expansions):
            raise ModelError(f"{self.name} returned {type(found).__name__} for {given}, not Expansions")
        entry = expanders.find(found.method)
        own = getattr(entry.target, "policies", None) if entry is not None else None
        return found if own is None else replace(found, policies=own)
