"""What every expander is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import msgspec

from ..core import Task
from .values import Expansions

Progress = Callable[[int, int], None]
"""Called with (generations done, generations in all), in order."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What expanding would take, before anything is spent."""

    calls: int
    # Calls that are not in the store yet; for an agent the most it may make.
    stored: int
    # Calls that were paid for before.
    prompt_tokens: int
    completion_tokens: int
    # At most.
    cost: float | None
    # Dollars at most; None where no price is known.
    store: str = ""
    # Where generations are kept.
    first_prompt: str = ""
    # As it would be sent.


@runtime_checkable
class Expander(Protocol):
    """Makes texts out of queries.

    `method` picks the policy by which a retriever takes the texts; `name` is what a user types and results are filed
    under (`hyde:qwen-7b`).
    """

    name: str
    method: str
    warning: str
    """A plain sentence that results must carry, or empty."""

    def describe(self) -> dict[str, object]:
        """Everything besides the task that shapes the texts, as plain data: part of a result's fingerprint."""
        ...

    def plan(self, task: Task, *, limit: int | None = None) -> Plan:
        """What expanding would take; spends nothing."""
        ...

    def expand(self, task: Task, *, limit: int | None = None, on_progress: Progress | None = None) -> Expansions:
        """Expand every query, or the first `limit`; what was generated before is not generated again."""
        ...


FREE = Plan(calls=0, stored=0, prompt_tokens=0, completion_tokens=0, cost=0.0)
"""The plan of an expander that asks nobody."""
