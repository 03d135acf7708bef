"""Fusion as part of a system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from ..core import Run, Task, UsageError
from ..fuse import METHODS, RRF_K, Method, Normalisation, combine, reciprocal_rank, tune_weights
from ..scoring import MAIN, rescored

FUSIONS = ("rrf", *METHODS, "tuned")


@dataclass(frozen=True)
class Fusion:
    """How rankings become one. `tuned` takes weights from cross-validation and stores the folds with the result."""

    method: str = "rrf"
    k: int = RRF_K
    normalisation: Normalisation = "min-max"
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.method not in FUSIONS:
            raise UsageError(f"unknown fusion {self.method!r}; known: {', '.join(FUSIONS)}")
        if self.weights and self.method != "weighted":
            raise UsageError(f"{self.method} takes no weights")

    def describe(self) -> dict[str, object]:
        """Everything that changes a fused ranking."""
        if self.method == "rrf":
            return {"method": "rrf", "k": self.k}
        described: dict[str, object] = {"method": self.method, "normalisation": self.normalisation}
        return described | ({"weights": list(self.weights)} if self.weights else {})

    def fuse(self, runs: list[Run], task: Task, depth: int, name: str) -> Run:
        """One run from several over the same task."""
        if self.method == "rrf":
            return reciprocal_rank(runs, k=self.k, depth=depth, name=name)
        if self.method == "tuned":
            return self._tuned(runs, task, depth, name)
        return combine(
            runs,
            method=cast(Method, self.method),
            normalisation=self.normalisation,
            weights=self.weights or None,
            depth=depth,
            name=name,
        )

    def _tuned(self, runs: list[Run], task: Task, depth: int, name: str) -> Run:
        def quality(run: Run) -> Mapping[str, float]:
            return rescored(run, task.qrels, MAIN)

        tuned = tune_weights(runs, quality, normalisation=self.normalisation, depth=depth, name=name)
        tuned.run.notes["folds"] = tuned.describe()
        return tuned.run
