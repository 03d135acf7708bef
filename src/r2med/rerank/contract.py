"""What a reranker is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, get_args

from msgspec import Meta

from ..core import Run, Task
from ..core.options import run_options
from ..core.parameters import Parameter
from ..core.registry import Registry
from ..core.spec import Spec
from ..llm import chats
from ..retrieve import Remote

Rest = Literal["keep", "drop"]
RESTS: tuple[Rest, ...] = get_args(Rest)
BlendScale = Literal["min-max", "raw", "log-rank"]
BLEND_SCALES: tuple[BlendScale, ...] = get_args(BlendScale)
Weight = Annotated[float, Meta(gt=0, le=1)]
DEPTH = 100
"""Candidates that are reordered unless somebody asks for another number."""
DEFAULT = "maxsim"
"""The best of those that run without a download by hand on the real sets: docs/rerank.md has the table."""


class Reranker(ABC):
    """Puts the best candidates of each query in a new order.

    What happened on the way (truncation, parse failures, cache hits, seconds) goes into the run's notes under `rerank`.
    """

    spec: Spec
    kind: ClassVar[str] = "custom"
    """cross-encoder, late-interaction, dense, listwise, setwise, groupwise, pointwise or custom."""

    @property
    def name(self) -> str:
        """What a user types, without the depth."""
        return str(self.spec.at(None))

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings, as plain data: part of a result's fingerprint."""

    @abstractmethod
    def rerank(self, task: Task, candidates: Run, depth: int = DEPTH, *, rest: Rest = "keep") -> Run:
        """Reorder the first `depth` candidates of each query.

        Those below the depth follow in their first-stage order (`keep`) or are left out (`drop`, as R2MED's own
        scripts do).
        """

    def distribute(self, remote: Remote | None) -> None:  # noqa: B027 - most have no model to give
        """Let workers run the model, or take it back."""


rerankers: Registry[Reranker] = Registry(
    "reranker",
    package="r2med.rerank",
    depth=DEPTH,
    shared=[
        Parameter("rest", Rest, "keep", "what becomes of candidates below the depth"),
        Parameter("blend", Weight, 1.0, "weight of the reranker's score; the first stage's has the rest"),
        Parameter("blend_by", BlendScale, "min-max", "how both scores are made comparable before they are blended"),
    ],
    options=run_options(),
    nested=lambda: chats,
    hint="(r2med models lists models)",
    chains=True,
)
