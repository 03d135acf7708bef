"""A system: what turns a task into a run, as a value with a name.

Names read from left to right as the flow goes: `hyde:gpt4+bm25+nv.rrf+maxsim@50` expands with HyDE, retrieves with two
retrievers, fuses them and reranks the best fifty.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..core import Run, Task, UsageError
from ..expand import Expander, Expansions
from ..rerank import Reranker, Rest
from ..retrieve import Retriever
from .expanding import expansion_notes, retrieve_expanded
from .fusing import Fusion

Memo = dict[str, "Stage"]


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
        name = "+".join(r.name for r in self.retrievers)
        if self.fusion:
            name += f".{self.fusion.method}"
        if self.expander:
            name = f"{self.expander.name}+{name}" + (f",policy={self.policy}" if self.policy else "")
        if self.reranking:
            name += f"+{self.reranking.reranker.name}@{self.reranking.depth}"
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

    def run(self, task: Task, depth: int, memo: Memo) -> Stage:
        """Rank the documents of a task; `memo` holds the steps that other systems share."""
        if self.reranking:
            return self._reranked(self.reranking, task, depth, memo)
        stages = [self._retrieved(r, task, depth, memo) for r in self.retrievers]
        if not self.fusion:
            return stages[0]
        key = f"fused {self.name}"
        if key not in memo:
            memo[key] = self._fused(self.fusion, stages, task, depth)
        return memo[key]

    def _retrieved(self, retriever: Retriever, task: Task, depth: int, memo: Memo) -> Stage:
        key = f"{self.expander.name if self.expander else ''}+{retriever.name},{self.policy}"
        if key not in memo:
            start = time.perf_counter()
            notes: dict[str, object] = {}
            seconds: dict[str, float] = {}
            expansions = None
            if self.expander is None:
                run = retriever.retrieve(task, depth=depth)
            else:
                expansions = self._expanded(self.expander, task, memo, seconds)
                start = time.perf_counter()
                run, used = retrieve_expanded(retriever, task, expansions, self.policy, depth)
                notes["expansion"] = expansion_notes(self.expander, expansions, used)
            seconds["retrieve"] = time.perf_counter() - start
            memo[key] = Stage(run, seconds, {**run.notes, **notes}, expansions=expansions)
        return memo[key]

    def _expanded(self, expander: Expander, task: Task, memo: Memo, seconds: dict[str, float]) -> Expansions:
        key = f"expanded {expander.name}"
        if key not in memo:
            start = time.perf_counter()
            made = expander.expand(task, on_progress=self.on_expand)
            if task.queries and not any(item.usable for item in made):
                raise UsageError(f"{expander.name} has no usable text for any query of {task.full_name}")
            memo[key] = made  # type: ignore[assignment]
            seconds["expand"] = time.perf_counter() - start
        return memo[key]  # type: ignore[return-value]

    def _fused(self, fusion: Fusion, stages: list[Stage], task: Task, depth: int) -> Stage:
        seconds: dict[str, float] = {}
        notes: dict[str, object] = {}
        for retriever, stage in zip(self.retrievers, stages, strict=True):
            seconds |= {f"{retriever.name}.{key}": value for key, value in stage.seconds.items()}
            notes |= {retriever.name: stage.notes} if stage.notes else {}
        start = time.perf_counter()
        run = fusion.fuse([s.run for s in stages], task, depth, self.name)
        seconds["fuse"] = time.perf_counter() - start
        return Stage(run, seconds, notes | run.notes, expansions=stages[0].expansions)

    def _reranked(self, reranking: Reranking, task: Task, depth: int, memo: Memo) -> Stage:
        first = replace(self, reranking=None).run(task, depth, memo)
        start = time.perf_counter()
        candidates = Run(first.run.query_ids, first.run.doc_ids, first.run.docs, first.run.scores, name=first.run.name)
        run = reranking.reranker.rerank(task, candidates, reranking.depth, rest=reranking.rest).renamed(self.name)
        seconds = first.seconds | {"rerank": time.perf_counter() - start}
        return Stage(run, seconds, first.notes | run.notes, candidates, first.expansions)
