"""What an expander is, and what it gives back: for each query the texts made from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from ..core import Task, UsageError
from ..core.budget import Account, known_sum
from ..core.options import Progress, run_options
from ..core.parameters import Parameter
from ..core.queries import Feedback
from ..core.registry import Registry
from ..core.spec import Spec
from ..llm import Answers, Chat, Cost, chats

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
