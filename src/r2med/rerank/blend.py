"""Blending: the score of any reranker together with the first stage's, by a weight.

grouprank:gpt4,blend=0.6                   0.6 × reranker + 0.4 × first stage, both scaled to 0–1 within the query
grouprank:gpt4,blend=0.6,blend_by=raw      as published with GroupRank: scores as they are
rankgpt:gpt4,blend=0.6,blend_by=log-rank   as DIVER does: −log(rank) on both sides
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..core import Run, Task, UsageError
from ..core.spec import Spec
from ..retrieve import Remote
from ..retrieve.contract import on_task
from .contract import BLEND_SCALES, DEPTH, BlendScale, Reranker, Rest, check_depth, reordered

PARAMETERS = ("blend", "blend_by")
Float64 = npt.NDArray[np.float64]


def blended(spec: Spec) -> bool:
    """Whether a spec asks for blending; refuses a scale without a weight, which would change nothing."""
    weight = spec.get("blend", 1.0)
    if weight == 1.0 and spec.get("blend_by") is not None:
        raise UsageError(f"{spec}: blend_by says how scores are blended and needs blend, as in blend=0.6")
    return weight != 1.0


class Blended(Reranker):
    """A reranker whose scores are blended with those of the first stage.

    A candidate that the reranker gave no score keeps the place that the reranker left it at before blending.
    """

    def __init__(self, reranker: Reranker, spec: Spec) -> None:
        """`spec` has the weight and the scale; the reranker is that of the same spec without them."""
        self.reranker = reranker
        weight, by = spec.get("blend", 1.0), spec.get("blend_by", BLEND_SCALES[0])
        assert isinstance(weight, float | int)
        assert by in BLEND_SCALES
        self.weight, self.by = float(weight), by
        self.spec = reranker.spec.with_parameters(**{name: spec.get(name) for name in PARAMETERS})  # type: ignore[arg-type]
        self.kind = reranker.kind  # type: ignore[misc]

    @property
    def scorer(self) -> object:
        """What scores, for whoever asks about its state."""
        return getattr(self.reranker, "scorer", self.reranker)

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {**self.reranker.describe(), "blend": self.weight, "blend_by": self.by}

    def distribute(self, remote: Remote | None) -> None:
        """Let workers run the model, or take it back."""
        self.reranker.distribute(remote)

    def rerank(self, task: Task, candidates: Run, depth: int = DEPTH, *, rest: Rest = "keep") -> Run:
        """Reorder the first `depth` candidates of each query."""
        check_depth(depth, rest)
        candidates = on_task(candidates, task)
        made = on_task(self.reranker.rerank(task, candidates, depth, rest="drop"), task)
        width = min(depth, candidates.depth)
        table = np.full((len(candidates), width), np.nan, dtype=np.float32)
        for row, length in enumerate(np.minimum(candidates.lengths(), width).tolist()):
            given = dict(zip(made.docs[row].tolist(), made.scores[row].tolist(), strict=True))
            docs = candidates.docs[row, :length].tolist()
            new = np.array([given.get(doc, np.nan) for doc in docs], dtype=np.float64)
            table[row, :length] = blend(new, candidates.scores[row, :length].astype(np.float64), self.weight, self.by)
        run = reordered(candidates, table, rest, f"{candidates.name}.{self.name}@{depth}")
        notes = made.notes.get("rerank")
        said = {"reranker": self.name, "rest": rest, "blend": {"weight": self.weight, "by": self.by}}
        run.notes = {**made.notes, "rerank": {**(notes if isinstance(notes, dict) else {}), **said}}
        run.reused = made.reused
        return run


def blend(new: Float64, first: Float64, weight: float, by: BlendScale) -> Float64:
    """Scores of a reranker and of the first stage over the same candidates, in first-stage order, as one."""
    return weight * on_scale(new, by) + (1 - weight) * on_scale(first, by)


def on_scale(scores: Float64, by: BlendScale) -> Float64:
    """Scores made comparable; equal ones share a rank in the order that they come in."""
    known = np.isfinite(scores)
    if by == "raw":
        return np.where(known, scores, np.nan)
    made = np.full(len(scores), np.nan)
    if by == "log-rank":
        order = np.flatnonzero(known)[np.argsort(-scores[known], kind="stable")]
        made[order] = -np.log(np.arange(1, len(order) + 1))
    elif known.any():
        low, high = scores[known].min(), scores[known].max()
        made[known] = (scores[known] - low) / (high - low) if high > low else 1.0
    return made
