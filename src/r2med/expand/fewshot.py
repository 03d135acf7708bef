"""Few-shot examples that do not come from the evaluated queries: checked, not hoped."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..core import Task, UsageError, fingerprint
from ..llm.prompts import Example, Prompt, fill
from .answers import contains, tokens

NEAR = 0.7
"""Share of common words from which two questions are the same question."""
SHORTEST_ANSWER = 6
"""Letters of an answer that is specific enough to be given away (`Yes` is not)."""


def text_fingerprint(text: str) -> str:
    """Fingerprint of a query's normalised words."""
    return fingerprint("query text", tokens(text))


def leak(example: Example, task: Task, evaluated: dict[str, str] | None = None) -> str:
    """Why an example must not be shown to a model that is evaluated on the task; empty where it may."""
    fingerprints = evaluated if evaluated is not None else fingerprints_of(task)
    if twin := fingerprints.get(text_fingerprint(example.query)):
        return f"it is query {twin!r}"
    words = set(tokens(example.query))
    shown = f"{example.query}\n{example.passage}"
    for query in task.queries:
        others = set(tokens(query.text))
        if words and len(words & others) >= NEAR * len(words | others):
            return f"it is nearly query {query.id!r}"
        if query.answer and len(query.answer) >= SHORTEST_ANSWER and contains(shown, query.answer):
            return f"it names the answer of query {query.id!r}"
    return ""


def fingerprints_of(task: Task) -> dict[str, str]:
    """Ids of the evaluated queries by the fingerprint of their words."""
    return {text_fingerprint(query.text): query.id for query in task.queries}


def without_leaks(prompt: Prompt, task: Task) -> tuple[Prompt, tuple[str, ...]]:
    """The prompt without examples that leak, and why each was left out; a prompt left with none is refused."""
    evaluated = fingerprints_of(task)
    reasons = [leak(example, task, evaluated) for example in prompt.examples]
    kept = tuple(e for e, why in zip(prompt.examples, reasons, strict=True) if not why)
    dropped = tuple(f"example {number} left out: {why}" for number, why in enumerate(reasons, start=1) if why)
    if not kept:
        why = f" ({dropped[0]})" if dropped else ""
        raise UsageError(f"there is no few-shot example that may be shown on {task.full_name}{why}")
    return msgspec.structs.replace(prompt, examples=kept), dropped


def render_examples(prompt: Prompt, examples: Iterable[Example]) -> str:
    """The examples as the prompt writes them, a blank line between."""
    return "\n\n".join(fill(prompt.example, query=e.query, passage=e.passage) for e in examples)
