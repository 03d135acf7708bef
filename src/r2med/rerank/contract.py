"""What a reranker is, and how its scores become a run that every reader of runs puts in the same order.

A run is read by score, and equal scores by document id. A reranker's ties must not be broken that way: a model that
answers yes or no would then rank by id. So documents of equal score keep their first-stage order, and the scores that
are stored say so: each is the reranker's own, lowered to the next smaller float32 where it would not be below the one
before. A document the reranker has no opinion on (NaN) keeps its place in the list. Documents below the depth follow
in steps of 1 (or of whatever float32 can tell apart at that size) below the lowest reranked one.

Any reranker's scores may be blended with those of the first stage, by a weight:

    grouprank:gpt4,blend=0.6                   0.6 × reranker + 0.4 × first stage, both scaled to 0–1 within the query
    grouprank:gpt4,blend=0.6,blend_by=raw      as published with GroupRank: scores as they are
    rankgpt:gpt4,blend=0.6,blend_by=log-rank   as DIVER does: −log(rank) on both sides

The safeguard of Nano candidates is one positive appended where a list held none. It gives a reranker something to find,
and so flatters whoever finds it: results are reported with it and without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Annotated, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from ..core import NO_DOCUMENT, ModelError, Run, Task, UsageError
from ..core.columns import Int32
from ..core.options import Parameter, run_options
from ..core.registry import Registry
from ..core.spec import Spec
from ..llm import chats
from ..retrieve import Remote
from ..retrieve.contract import on_task

Rest = Literal["keep", "drop"]
RESTS: tuple[Rest, ...] = get_args(Rest)
BlendScale = Literal["min-max", "raw", "log-rank"]
BLEND_SCALES: tuple[BlendScale, ...] = get_args(BlendScale)
BLEND = ("blend", "blend_by")
"""Parameters that say how scores are blended."""
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
    warning: str = ""
    """A plain sentence that results must carry, or empty."""

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


Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


def check_depth(depth: int, rest: str) -> None:
    """Refuse what cannot be asked for."""
    if depth < 1:
        raise UsageError(f"the depth of a reranker must be 1 or more, not {depth}")
    if rest not in RESTS:
        raise UsageError(f"what happens below the depth is {' or '.join(RESTS)}, not {rest!r}")


def reordered(candidates: Run, scores: Float32, rest: Rest, name: str) -> Run:
    """The run of a reranker.

    `scores` has a column for each reranked place of `candidates`, read only where a document stands; NaN: no opinion.
    """
    depth = scores.shape[1]
    docs = np.full(candidates.docs.shape, NO_DOCUMENT, dtype=np.int32)
    made = np.full(docs.shape, -np.inf, dtype=np.float32)
    lengths = candidates.lengths()
    for row, length in enumerate(lengths.tolist()):
        top = min(length, depth)
        order, new = order_row(scores[row, :top])
        docs[row, :top], made[row, :top] = candidates.docs[row, :top][order], new
        if rest == "keep" and length > top:
            docs[row, top:length] = candidates.docs[row, top:length]
            made[row, :length] = _with_rest(new, length - top)
    if rest == "drop":
        docs, made = docs[:, :depth], made[:, :depth]
    return Run(candidates.query_ids, candidates.doc_ids, docs, made, name=name)


def order_row(scores: Float32) -> tuple[npt.NDArray[np.intp], Float32]:
    """Places in their new order and strictly falling scores for them."""
    if np.isinf(scores).any():
        raise ModelError("a reranker returned an infinite score")
    silent = np.isnan(scores)
    order = np.arange(len(scores))
    heard = np.flatnonzero(~silent)
    order[heard] = heard[np.argsort(-scores[heard], kind="stable")]
    new = scores[order]
    if silent.any():
        new = _filled(new)
    return order, _falling(new)


def _filled(scores: Float32) -> Float32:
    """Places without an opinion take the score before them; leading ones that of the first opinion."""
    heard = np.flatnonzero(~np.isnan(scores))
    if not len(heard):
        return np.arange(len(scores), 0, -1).astype(np.float32)
    last = np.maximum.accumulate(np.where(np.isnan(scores), 0, np.arange(len(scores))))
    filled = scores[last]
    filled[: heard[0]] = scores[heard[0]]
    return filled


def _falling(scores: Float32) -> Float32:
    """The same numbers, each lowered as little as makes it smaller than the one before."""
    if len(scores) < 2 or (np.diff(scores) < 0).all():
        return scores
    made = scores.copy()
    for i in range(1, len(made)):
        if not made[i] < made[i - 1]:
            made[i] = np.nextafter(made[i - 1], np.float32(-np.inf))
    if not np.isfinite(made[-1]):
        return np.arange(len(made), 0, -1).astype(np.float32)
    return made


def _with_rest(top: Float32, rest: int) -> Float32:
    """Scores of the reranked documents and, below them, of the others."""
    low = np.float64(top[-1]) if len(top) else 0.0
    step = max(1.0, 4 * float(np.spacing(np.float32(min(abs(low) + rest, 1e38)))))
    whole = np.concatenate((top.astype(np.float64), low - step * np.arange(1, rest + 1)))
    if whole[-1] < -3e38:  # no room below: only the order can be told
        return np.arange(len(whole), 0, -1).astype(np.float32)
    return np.asarray(whole, dtype=np.float32)


def ranks_as_scores(orders: list[list[int]], width: int) -> Float32:
    """Scores for rerankers that only order: n for the first of n documents, 1 for the last.

    `orders[row]` names first-stage places in their new order.
    """
    scores = np.full((len(orders), width), np.nan, dtype=np.float32)
    for row, order in enumerate(orders):
        scores[row, order] = np.arange(len(order), 0, -1, dtype=np.float32)
    return scores


def top_pairs(candidates: Run, depth: int) -> tuple[Int32, Int32, int]:
    """Row and document of each candidate within the depth, in order; and the number of columns they come from."""
    width = min(depth, candidates.depth)
    row, column = np.nonzero(candidates.docs[:, :width] >= 0)
    return row.astype(np.int32), candidates.docs[row, column], width


def tied(scores: Float32) -> int:
    """How many scores another one equals."""
    _, times = np.unique(scores[~np.isnan(scores)], return_counts=True)
    return int(times[times > 1].sum())


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
        self.spec = reranker.spec.with_parameters(**{name: spec.get(name) for name in BLEND})  # type: ignore[arg-type]
        self.kind, self.warning = reranker.kind, reranker.warning  # type: ignore[misc]

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


SAFEGUARD_RANK = 101


def safeguards(candidates: Run, queries: Collection[str] | None = None) -> Int32:
    """The appended document of each query, -1 where there is none.

    With `queries` it is the last document of those queries' lists; without, the one that stands alone at rank 101.
    """
    lengths = candidates.lengths()
    found = np.full(len(candidates), NO_DOCUMENT, dtype=np.int32)
    for row, query_id in enumerate(candidates.query_ids):
        length = int(lengths[row])
        if length and (length == SAFEGUARD_RANK if queries is None else query_id in queries):
            found[row] = candidates.docs[row, length - 1]
    return found


def without(run: Run, documents: Int32) -> Run:
    """A run with one document of each query taken out; the others close up.

    For a reranker that scores each document by itself this is what it would have done without the safeguard; one that
    compares documents saw it, and is only cleared of the credit.
    """
    gone = (run.docs == documents[:, None]) & (documents[:, None] >= 0)
    order = np.argsort(gone, axis=1, kind="stable")
    last = np.take_along_axis(gone, order, axis=1)
    docs = np.where(last, np.int32(NO_DOCUMENT), np.take_along_axis(run.docs, order, axis=1))
    scores = np.where(last, np.float32(-np.inf), np.take_along_axis(run.scores, order, axis=1))
    # A removed document before shorter rows' empty places has been moved behind them: nothing is there either way.
    return Run(run.query_ids, run.doc_ids, docs, scores, name=run.name, notes=run.notes)
