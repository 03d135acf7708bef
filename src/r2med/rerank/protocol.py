"""What a reranker is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, get_args, runtime_checkable

from ..core import Run, Task

Rest = Literal["keep", "drop"]
RESTS: tuple[Rest, ...] = get_args(Rest)
Progress = Callable[[int, int], None]


@runtime_checkable
class Reranker(Protocol):
    """Puts the best candidates of each query in a new order.

    `name` is what a user types; `kind` is one of cross-encoder, late-interaction, dense, listwise, setwise, pointwise,
    custom. What happened on the way (truncation, parse failures, cache hits, seconds) goes into the run's `notes`
    under `rerank`.
    """

    name: str
    kind: str

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings, as plain data: part of the result's fingerprint."""
        ...

    def rerank(self, task: Task, candidates: Run, depth: int = 100, *, rest: Rest = "keep") -> Run:
        """Reorder the first `depth` candidates of each query.

        Those below the depth follow in their first-stage order (`keep`) or are left out (`drop`, as R2MED's own
        scripts do).
        """
        ...
