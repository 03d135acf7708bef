"""What an expander gives back: for each query the texts made from it, and how it went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from ..core import Task, UsageError

OK = "ok"
MISSING = "missing"
"""Status of a query that a replay has no text for."""


class Expansion(msgspec.Struct, frozen=True, kw_only=True):
    """The texts made from one query."""

    query_id: str
    original: str
    # The query as the task has it.
    texts: tuple[str, ...] = ()
    # Usable texts only: an unfinished chain of thought is never among them.
    statuses: tuple[str, ...] = ()
    # One per generation, usable or not: ok, truncated, empty, refused, unparsed, failed, missing.
    reasoning: tuple[str, ...] = ()
    # What the model thought, one per generation.
    searches: tuple[str, ...] = ()
    # What an agent asked its search tool.
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    cost: float | None = None
    # Dollars; None where no price is known.
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
    """Everything that shaped the texts: method, LLM, prompt hash, sampling."""
    items: Mapping[str, Expansion]
    """By query id."""
    notes: dict[str, object] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Expansion]:
        return iter(self.items.values())

    def of(self, query_id: str) -> Expansion | None:
        """The expansion of one query."""
        return self.items.get(query_id)

    def summary(self) -> dict[str, object]:
        """Counts by status, tokens, seconds, cost."""
        costs = [e.cost for e in self if e.cost is not None]
        return {
            "queries": len(self),
            "status": dict(sorted(Counter(e.status for e in self).items())),
            "generations": dict(sorted(Counter(s for e in self for s in e.statuses).items())),
            "raw_query_used": sum(not e.usable for e in self),
            "prompt_tokens": sum(e.prompt_tokens for e in self),
            "completion_tokens": sum(e.completion_tokens for e in self),
            "seconds": round(sum(e.seconds for e in self), 3),
            "cost": round(sum(costs), 6) if costs else None,
            **self.notes,
        }


def check_covers(expansions: Expansions, task: Task) -> None:
    """Refuse expansions that were made from other queries than the task's."""
    for query in task.queries:
        item = expansions.of(query.id)
        if item is not None and item.original != query.text:
            raise UsageError(
                f"the {expansions.method} expansion of {query.id!r} was made from another text than "
                f"{task.full_name} holds"
            )
