"""Several expansion methods, one behind the other: `hyde:gpt4+rm3`.

Texts of all methods are collected. One that searches, to show passages to a chat model or to feed them back, does so
with what those before it made. Feedback stands last: it makes no texts for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec

from ..core import Task, UsageError
from ..core.budget import known_sum, together
from ..core.options import Progress
from ..core.spec import Spec
from ..llm import Cost
from ..retrieve import Build
from .contract import Expander, Expansion, Expansions, expanders
from .feedback import FeedsBack


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
        late = next((link for link in spec.links[1:] if link.get("policy") is not None), None)
        if late is not None:
            raise UsageError(f"a chain of methods has one policy, that of the first: {late} cannot have its own")
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


def feedback_kind(spec: Spec) -> str | None:
    """The kind of retriever that a feedback method acts on; None for a method that makes texts."""
    entry = None if spec.own else expanders.find(spec.name)
    target = entry.target if entry is not None else None
    return target.kind if isinstance(target, type) and issubclass(target, FeedsBack) else None


def check_feedback(expander: Expander, retrievers: Sequence[tuple[str, str]], policy: str | None) -> None:
    """Refuse feedback that no retriever (name, kind) of a system can search with, and a policy where no texts are."""
    if policy is not None and not expander.makes_text:
        raise UsageError(f"{expander.name} makes no texts: leave out the policy")
    kinds = {kind for _, kind in retrievers}
    for step in steps_of(expander):
        wanted = feedback_kind(step.spec)
        if wanted is not None and wanted not in kinds:
            others = ", ".join(f"{name} ({kind})" for name, kind in retrievers)
            fitting = [entry.name for entry in expanders if feedback_kind(Spec(entry.name)) in kinds]
            hint = f"; for this one there is {', '.join(fitting)}" if fitting and len(kinds) == 1 else ""
            raise UsageError(f"{step.name} needs a {wanted} retriever, not {others}{hint}")


expanders.from_chain = Chain.from_spec
