"""What an executor is; this one does everything in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..plan import Plan, Step

Ticket = int


class Recipe(NamedTuple):
    """How a retriever or reranker is made again somewhere else: what the user typed, and plain options."""

    kind: str
    """`retriever` or `reranker`."""
    spec: str
    options: dict[str, Any]


class Made(NamedTuple):
    """A part of a system, and its recipe."""

    part: Any
    recipe: Recipe


class Executor:
    """Where stages are done: here, one after the other."""

    name = "local"
    tasks_at_once = 1

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        """Send the workers home."""

    def adopt(self, parts: Iterable[Made]) -> None:
        """Let the models of these parts run on workers."""

    def provenance(self) -> Mapping[str, object]:
        """What a result says about where it was made."""
        return {}

    def take(self, step: Step, plan: Plan, values: Mapping[str, Any]) -> Ticket | None:
        """Begin a stage on a worker; None: it is the driver's."""
        del step, plan, values
        return None

    def wait(self, tickets: Sequence[Ticket]) -> tuple[Ticket, Any]:
        """The value of the first stage of these that a worker finishes."""
        raise LookupError(f"nothing was sent away, so nobody has {tickets}")
