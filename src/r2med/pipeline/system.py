"""A system: what turns a task into a run, as a value with a name."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from ..core import Run, Task, UsageError
from ..fuse import RRF_K, reciprocal_rank
from ..retrieve import Retriever, get_retriever

FUSIONS = ("rrf",)


class Stage(NamedTuple):
    """A run and what each step towards it took."""

    run: Run
    seconds: dict[str, float]
    notes: dict[str, object]


@dataclass(frozen=True)
class System:
    """One or several retrievers; several are fused."""

    retrievers: tuple[Retriever, ...]
    fusion: str = ""
    fusion_k: int = RRF_K

    def __post_init__(self) -> None:
        if not self.retrievers:
            raise UsageError("a system needs a retriever")
        if self.fusion and self.fusion not in FUSIONS:
            raise UsageError(f"unknown fusion {self.fusion!r}; known: {', '.join(FUSIONS)}")
        if len(self.retrievers) > 1 and not self.fusion:
            raise UsageError("several retrievers in one system need a fusion")
        if len(self.retrievers) == 1 and self.fusion:
            raise UsageError(f"fusion {self.fusion!r} needs at least two retrievers")

    @property
    def name(self) -> str:
        """What results are filed under, e.g. `bm25+bge-small.rrf`."""
        joined = "+".join(r.name for r in self.retrievers)
        return f"{joined}.{self.fusion}" if self.fusion else joined

    @property
    def kind(self) -> str:
        """The kind of its retriever, or `fused`."""
        return "fused" if self.fusion else self.retrievers[0].kind

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        described: dict[str, object] = {"retrievers": [r.describe() for r in self.retrievers]}
        if self.fusion:
            described["fusion"] = {"method": self.fusion, "k": self.fusion_k}
        return described

    def run(self, task: Task, depth: int, memo: dict[str, Stage]) -> Stage:
        """Rank the documents of a task; `memo` holds the runs of retrievers that other systems share."""
        stages = [self._retrieve(r, task, depth, memo) for r in self.retrievers]
        if not self.fusion:
            return stages[0]
        seconds: dict[str, float] = {}
        notes: dict[str, object] = {}
        for retriever, stage in zip(self.retrievers, stages, strict=True):
            seconds |= {f"{retriever.name}.{key}": value for key, value in stage.seconds.items()}
            notes |= {retriever.name: stage.notes} if stage.notes else {}
        start = time.perf_counter()
        fused = reciprocal_rank([s.run for s in stages], k=self.fusion_k, depth=depth, name=self.name)
        return Stage(fused, seconds | {"fuse": time.perf_counter() - start}, notes)

    def _retrieve(self, retriever: Retriever, task: Task, depth: int, memo: dict[str, Stage]) -> Stage:
        if retriever.name not in memo:
            start = time.perf_counter()
            run = retriever.retrieve(task, depth=depth)
            memo[retriever.name] = Stage(run, {"retrieve": time.perf_counter() - start}, run.notes)
        return memo[retriever.name]


def systems_from(specs: list[str], fusion: str = "") -> list[System]:
    """Each retriever as a system of its own and, where a fusion is asked for, all of them fused."""
    retrievers = tuple(get_retriever(spec) for spec in specs)
    names = [r.name for r in retrievers]
    if repeated := next((n for n in names if names.count(n) > 1), None):
        raise UsageError(f"retriever {repeated!r} is named twice")
    systems = [System((r,)) for r in retrievers]
    return [*systems, System(retrievers, fusion)] if fusion else systems
