"""Searching with expanded queries: the policy decides whether texts or vectors change."""

from __future__ import annotations

from typing import Any

from ..core import Run, Task, UsageError
from ..expand import (
    Expander,
    Expansions,
    Policy,
    expanded_task,
    policy_for,
    query_groups,
    retrieve_groups,
    separator_for,
)
from ..retrieve import Retriever


def retrieve_expanded(
    retriever: Retriever, task: Task, expansions: Expansions, policy: str | None, depth: int, **given: Any
) -> tuple[Run, Policy]:
    """Rank with what was generated, by the policy for this kind of retriever.

    `given` is what earlier stages have made of the documents: an index, or vectors.
    """
    card = getattr(retriever, "card", None)
    used = policy_for(expansions, retriever.kind, policy, model=card.name if card else "")
    if used.mode == "mean":
        from ..retrieve.dense import DenseRetriever

        if not isinstance(retriever, DenseRetriever):
            raise UsageError(f"policy {used.name!r} averages vectors, which {retriever.name} does not give")
        return retrieve_groups(retriever, task, query_groups(task, expansions, used), depth=depth), used
    separator = separator_for(card.architecture) if card else None
    changed = expanded_task(task, expansions, used, separator=separator)
    return retriever.retrieve(changed, depth=depth, **given), used


def expansion_notes(expander: Expander, expansions: Expansions, policy: Policy) -> dict[str, object]:
    """What a result says about its expansion."""
    notes: dict[str, object] = {
        "method": expansions.method,
        "expander": expander.name,
        "policy": policy.name,
        "policy_settings": policy.describe(),
        **expansions.summary(),
    }
    return notes | ({"warning": expander.warning} if expander.warning else {})
