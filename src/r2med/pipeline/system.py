"""A system: what turns a task into a run, as a value with a name.

Names read from left to right as the flow goes: `hyde:gpt4+bm25+nv.rrf+maxsim@50` expands with HyDE, retrieves with two
retrievers, fuses them and reranks the best fifty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core import Run, UsageError
from ..expand import Expander, Expansions
from ..rerank import Reranker, Rest
from ..retrieve import Retriever
from .fusing import Fusion


class Stage(NamedTuple):
    """A run, what each step towards it took, and the candidates a reranker got."""

    run: Run
    seconds: dict[str, float]
    notes: dict[str, object]
    candidates: Run | None = None
    expansions: Expansions | None = None


@dataclass(frozen=True)
class Reranking:
    """A reranker, how deep it goes, and what becomes of the documents below."""

    reranker: Reranker
    depth: int = 100
    rest: Rest = "keep"

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {"reranker": self.reranker.describe(), "depth": self.depth, "rest": self.rest}


@dataclass(frozen=True)
class System:
    """One or several retrievers, with what stands before and behind them."""

    retrievers: tuple[Retriever, ...]
    fusion: Fusion | None = None
    expander: Expander | None = None
    policy: str | None = None
    reranking: Reranking | None = None
    on_expand: Callable[[int, int], None] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.retrievers:
            raise UsageError("a system needs a retriever")
        if len(self.retrievers) > 1 and not self.fusion:
            raise UsageError("several retrievers in one system need a fusion")
        if len(self.retrievers) == 1 and self.fusion:
            raise UsageError(f"fusion {self.fusion.method!r} needs at least two retrievers")

    @property
    def name(self) -> str:
        """What results are filed under."""
        if not self.reranking:
            return self.first_stage
        return f"{self.first_stage}+{self.reranking.reranker.name}@{self.reranking.depth}"

    @property
    def first_stage(self) -> str:
        """The name of all that stands before the reranker."""
        name = "+".join(r.name for r in self.retrievers)
        if self.fusion:
            name += f".{self.fusion.method}"
        if self.expander:
            name = f"{self.expander.name}+{name}" + (f",policy={self.policy}" if self.policy else "")
        return name

    @property
    def kind(self) -> str:
        """The last step that shaped it, or the kind of its retriever."""
        if self.reranking:
            return "reranked"
        if self.expander:
            return "expanded"
        return "fused" if self.fusion else self.retrievers[0].kind

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        described: dict[str, object] = {"retrievers": [r.describe() for r in self.retrievers]}
        if self.fusion:
            described["fusion"] = self.fusion.describe()
        if self.expander:
            described["expander"] = self.expander.describe()
            described["policy"] = self.policy or "default"
        if self.reranking:
            described["reranking"] = self.reranking.describe()
        return described
