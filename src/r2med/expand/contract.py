"""What an expander is, and what it gives back: for each query the texts made from it.

Several may follow each other: `hyde:gpt4+rm3`. Texts of all methods are collected. One that searches, to show passages
to a chat model or to feed them back, does so with what those before it made. Feedback stands last: it makes no texts
for others.

People may bring their own: one of this contract, or any function from a query's text to more text.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar

import msgspec

from ..core import ModelError, Query, Task, UsageError
from ..core.budget import Account, known_sum, together
from ..core.identity import Identity, identify, name_of
from ..core.options import Parameter, Progress, run_options
from ..core.plugins import find_plugin, instantiate, load_address, plugins, wrap_errors
from ..core.queries import Feedback
from ..core.registry import Entry, Registry
from ..core.spec import Spec
from ..llm import Answers, Chat, Cost, chats
from ..retrieve import Build
from ..retrieve.custom import described, is_ours, object_spec

OK, EMPTY = "ok", "empty"
OTHER = "*"
JOINED: Mapping[str, str] = {OTHER: "query+passages"}
"""Kind of retriever to policy: the query, then the texts, for every kind."""
INSTEAD: Mapping[str, str] = {**JOINED, "lexical": "passages", "dense": "mean"}
"""Texts in place of the query, or averaged with it."""
R2MED = "r2med"
"""The policy that stands for whatever R2MED's scripts do: see `policy.published_policy`."""
PUBLISHED: Mapping[str, str] = {OTHER: R2MED}
MISSING = "missing"
"""Status of a query that a replay has no text for."""


class Expansion(msgspec.Struct, frozen=True, kw_only=True):
    """The texts made from one query."""

    query_id: str
    original: str
    # The query as the task has it.
    texts: tuple[str, ...] = ()
    # Usable texts only: an unfinished chain of thought is never among them.
    raw: tuple[str, ...] = ()
    # All answers as they came, which R2MED's scripts read in their own way.
    statuses: tuple[str, ...] = ()
    # One per generation, usable or not: ok, truncated, empty, refused, unparsed, failed, missing.
    reasoning: tuple[str, ...] = ()
    # What the model thought, one per generation.
    searches: tuple[str, ...] = ()
    # What an agent asked its search tool.
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    retries: int = 0
    # How often a call had to be sent again.
    rate_limits: int = 0
    # How often the server said that it was asked too often.
    cost: float | None = None
    # Dollars; None where a price is not known.
    notes: dict[str, object] = {}

    @property
    def usable(self) -> bool:
        """Whether there is a text to search with; otherwise the raw query is used, and counted."""
        return bool(self.texts)

    @property
    def status(self) -> str:
        """That of its generations where all agree, `partial` where some texts are usable, else what failed first."""
        kinds = set(self.statuses)
        if len(kinds) == 1:
            return self.statuses[0]
        if self.texts:
            return "partial" if kinds else OK
        return next((s for s in self.statuses if s != OK), MISSING)


@dataclass(frozen=True)
class Expansions:
    """The expansions of a task by one method."""

    method: str
    description: dict[str, object]
    """Everything that shaped the texts: method, chat model, prompt hash, sampling."""
    items: Mapping[str, Expansion]
    """By query id."""
    notes: dict[str, object] = field(default_factory=dict)
    policies: Mapping[str, str] = field(default_factory=lambda: JOINED)
    """How the texts meet each kind of retriever, unless somebody chooses otherwise."""
    feedback: tuple[Feedback, ...] = ()
    """Further searches, each by retrievers of its kind, with what the one before it found."""
    reused: Account = field(default_factory=dict)
    """What the answers took, and what of that stored ones saved."""
    answers: Answers = field(default_factory=dict)
    """Which stored answers of chat models the texts were read from."""

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Expansion]:
        return iter(self.items.values())

    def of(self, query_id: str) -> Expansion | None:
        """The expansion of one query."""
        return self.items.get(query_id)

    def check_covers(self, task: Task) -> None:
        """Refuse expansions that were made from other queries than the task's."""
        for query in task.queries:
            item = self.of(query.id)
            if item is not None and item.original != query.text:
                text = f"the {self.method} expansion of {query.id!r} was made from another text than"
                raise UsageError(f"{text} {task.full_name} holds")

    def summary(self) -> dict[str, object]:
        """Counts by status, tokens, seconds, cost."""
        cost = known_sum(e.cost for e in self)
        return {
            "queries": len(self),
            "status": dict(sorted(Counter(e.status for e in self).items())),
            "generations": dict(sorted(Counter(s for e in self for s in e.statuses).items())),
            "raw_query_used": sum(not e.usable for e in self),
            "prompt_tokens": sum(e.prompt_tokens for e in self),
            "completion_tokens": sum(e.completion_tokens for e in self),
            "seconds": round(sum(e.seconds for e in self), 3),
            "retries": sum(e.retries for e in self),
            "rate_limits": sum(e.rate_limits for e in self),
            "cost": None if cost is None else round(cost, 6),
            **self.notes,
        }


class Expander(ABC):
    """Makes texts out of queries."""

    spec: Spec
    method: str
    policies: ClassVar[Mapping[str, str]] = JOINED
    """How its texts meet each kind of retriever."""
    warning: str = ""
    """A plain sentence that results must carry, or empty."""
    chat: Chat | None = None
    needs_text: bool = True
    """Whether a task for which it has no usable text at all is an error."""
    makes_text: bool = True
    """Whether it makes texts; feedback makes none, and a policy has nothing to choose there."""

    @property
    def name(self) -> str:
        """What a user types, without the policy."""
        return str(self.spec.without("policy"))

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Everything besides the task that shapes the texts, as plain data: part of a result's fingerprint."""

    def task_facts(self, task: Task) -> dict[str, object]:
        """What else the texts of one task depend on, besides itself and the task's content."""
        del task
        return {}

    def plan(self, task: Task, *, limit: int | None = None) -> Cost:
        """What expanding would take; spends nothing."""
        del task, limit
        return Cost()

    def after(self, before: Expansions) -> Expander:
        """The same method behind others: one that searches does so with what those made."""
        del before
        return self

    @abstractmethod
    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        """Expand every query, or the first `limit`; what was generated before is not generated again."""


expanders: Registry[Expander] = Registry(
    "expansion method",
    package="r2med.expand",
    shared=[Parameter("policy", str, None, "how texts meet a retriever, instead of the method's own way")],
    options=run_options("concurrency", "requests_per_minute", "tokens_per_minute"),
    nested=lambda: chats,
    chains=True,
)


class Chain(Expander):
    """Methods that follow each other."""

    def __init__(self, steps: Sequence[Expander]) -> None:
        self.steps = tuple(steps)
        self.spec = Spec.chain([step.spec for step in steps])
        self.method = "+".join(step.method for step in steps)
        self.warning = " ".join(dict.fromkeys(step.warning for step in steps if step.warning))
        self.chat = next((step.chat for step in steps if step.chat is not None), None)
        self.needs_text = any(step.needs_text for step in steps)
        self.makes_text = any(step.makes_text for step in steps)
        for one, following in pairwise(steps):
            if following.makes_text and not one.makes_text:
                raise UsageError(
                    f"{one.name} searches with what methods before it made: it stands behind {following.name}"
                )
        if late := next((step.name for step in steps[1:] if step.spec.get("policy") is not None), None):
            raise UsageError(f"a chain of methods has one policy, that of the first: {late} cannot have its own")

    @classmethod
    def from_spec(cls, spec: Spec, build: Build) -> Expander:
        """The chain of a spec."""
        return cls([expanders.make(link, build) for link in spec.links])

    def describe(self) -> dict[str, object]:
        """The first method, and those that follow it."""
        first, *rest = (step.describe() for step in self.steps)
        return {**first, "then": rest}

    def task_facts(self, task: Task) -> dict[str, object]:
        """Those of every method."""
        facts = [step.task_facts(task) for step in self.steps]
        return {f"{place}.{key}": value for place, each in enumerate(facts) for key, value in each.items()}

    def plan(self, task: Task, *, limit: int | None = None) -> Cost:
        """The sum over the methods; one that searches is planned as if it stood first, for prompts of the same size."""
        plans = [step.plan(task, limit=limit) for step in self.steps]
        costs = [plan.cost for plan in plans]
        return Cost(
            calls=sum(plan.calls for plan in plans),
            stored=sum(plan.stored for plan in plans),
            prompt_tokens=sum(plan.prompt_tokens for plan in plans),
            completion_tokens=sum(plan.completion_tokens for plan in plans),
            cost=None if None in costs else sum(cost for cost in costs if cost is not None),
            store=next((plan.store for plan in plans if plan.store), ""),
            first_prompt=next((plan.first_prompt for plan in plans if plan.first_prompt), ""),
        )

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        """Let every method work, each with what those before it made."""
        first, *rest = self.steps
        made = first.expand(task, limit=limit, on_progress=on_progress)
        for step in rest:
            made = joined(made, step.after(made).expand(task, limit=limit, on_progress=on_progress))
        return replace(made, description=self.describe())


def joined(before: Expansions, made: Expansions) -> Expansions:
    """The texts of two methods; they meet retrievers as those of the last method with texts do."""
    items = {key: _both(before.of(key), made.of(key)) for key in dict.fromkeys((*before.items, *made.items))}
    if not made.items:
        return replace(
            before, feedback=(*before.feedback, *made.feedback), reused=together((before.reused, made.reused))
        )
    return Expansions(
        f"{before.method}+{made.method}",
        {**before.description, "then": [made.description]},
        items,
        {**before.notes, **made.notes, **_lost(before, made)},
        made.policies,
        (*before.feedback, *made.feedback),
        together((before.reused, made.reused)),
    )


def _lost(*parts: Expansions) -> dict[str, int]:
    """The calls that all methods lost."""
    counts = [count for part in parts if isinstance(count := part.notes.get("lost_calls"), int)]
    return {"lost_calls": sum(counts)} if counts else {}


def _both(one: Expansion | None, other: Expansion | None) -> Expansion:
    if one is None or other is None:
        found = one or other
        assert found is not None
        return found
    return msgspec.structs.replace(
        one,
        texts=one.texts + other.texts,
        raw=one.raw + other.raw,
        statuses=one.statuses + other.statuses,
        reasoning=one.reasoning + other.reasoning,
        searches=one.searches + other.searches,
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        completion_tokens=one.completion_tokens + other.completion_tokens,
        seconds=one.seconds + other.seconds,
        retries=one.retries + other.retries,
        rate_limits=one.rate_limits + other.rate_limits,
        cost=known_sum((one.cost, other.cost)),
        notes={**one.notes, **other.notes},
    )


def steps_of(expander: Expander) -> tuple[Expander, ...]:
    """The methods of a chain, or the one there is."""
    return expander.steps if isinstance(expander, Chain) else (expander,)


expanders.from_chain = Chain.from_spec


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
            ordered = isinstance(given, Iterable) and not isinstance(given, str | Mapping | Set)
            texts = tuple(given) if ordered else () if given is None else (given,)
        if not all(isinstance(text, str) for text in texts):
            raise ModelError(f"{self.name} returned something else than text for query {query.id!r}")
        usable = tuple(str(text) for text in texts if text.strip())  # numpy has texts of its own
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
        return found if own is None or found.policies is not JOINED else replace(found, policies=own)
