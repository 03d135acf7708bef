"""Where a system is good and where it is not: scores of groups of queries, each with its interval and size."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ..core import Task, UsageError
from .intervals import Bootstrap, Estimate, Settings, estimate
from .measures import Float64
from .score_set import ScoreSet

TINY = 10
NOT_STATED = "not stated"
_POSITIVES = ((1, "1"), (2, "2"), (5, "3–5"))
_WORDS = ((50, "up to 50 words"), (100, "51–100 words"), (200, "101–200 words"))
_THIRDS = ("hard: least shared words", "middle", "easy: most shared words")

Tokens = Callable[[str], Iterable[str]]


class Traits(NamedTuple):
    """What a query can be grouped by."""

    family: str
    body_system: str
    positives: int
    words: int
    overlap: float


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """One group of queries. `tiny` warns that fewer than ten queries carry no conclusion."""

    by: str
    value: str
    n: int
    tiny: bool
    scores: dict[str, Estimate]
    differences: dict[str, Estimate]


def query_traits(task: Task, tokens: Tokens) -> dict[str, Traits]:
    """The traits of each judged query; `tokens` turns a text into the words that are compared.

    Overlap is the share of a query's distinct words that a positive passage holds, averaged over its positives: low
    where the answer must be inferred, high where matching words is enough.
    """
    positives = task.qrels.positives_only()
    traits = {}
    for number, query_id in enumerate(positives.query_ids):
        query = task.query(query_id)
        span = slice(positives.indptr[number], positives.indptr[number + 1])
        passages = [task.documents.get(positives.doc_ids[d]) for d in positives.docs[span].tolist()]
        words = frozenset(tokens(query.text)) if query is not None else frozenset()
        shared = [len(words & frozenset(tokens(p.contents))) / len(words) for p in passages if p is not None and words]
        traits[query_id] = Traits(
            family=task.family or NOT_STATED,
            body_system=(query.body_system if query is not None else None) or NOT_STATED,
            positives=len(passages),
            words=len(query.text.split()) if query is not None else 0,
            overlap=float(np.mean(shared)) if shared else 0.0,
        )
    return traits


def slice_scores(
    scores: ScoreSet,
    traits: Mapping[str, Mapping[str, Traits]],
    *,
    flagged: Collection[tuple[str, str]] | None = None,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
) -> list[Slice]:
    """Scores by family, body system, positives, length, overlap and, where `flagged` is given, by audit flag.

    `traits` maps task to query to its traits, `flagged` holds (task, query id). A slice is a mean over its queries,
    whatever task they come from; differences are each other system minus the first.
    """
    order = [(task.name, query_id) for task in scores.tasks for query_id in task.query_ids]
    lacking = next((f"{t}: {q}" for t, q in order if q not in traits.get(t, {})), None)
    if lacking is not None:
        raise UsageError(f"nothing is known about query {lacking}")
    known = [traits[task][query_id] for task, query_id in order]
    columns: dict[str, Sequence[str]] = {
        "family": [t.family for t in known],
        "body system": [t.body_system for t in known],
        "positives": [_bin(t.positives, _POSITIVES, "6 and more") for t in known],
        "query length": [_bin(t.words, _WORDS, "over 200 words") for t in known],
        "difficulty": thirds([t.overlap for t in known]),
    }
    if flagged is not None:
        chosen = frozenset(flagged)
        columns["audit"] = ["flagged" if place in chosen else "not flagged" for place in order]
    values = np.concatenate(scores.matrices, axis=1)
    return [
        _slice(scores, values, by, value, labels, settings)
        for by, labels in columns.items()
        for value in _order(by, labels)
    ]


def _slice(
    scores: ScoreSet, values: Float64, by: str, value: str, labels: Sequence[str], settings: Settings
) -> Slice:  # fmt: skip
    inside = values[:, np.array([label == value for label in labels])]
    systems, n = len(scores.systems), inside.shape[1]
    contrasts = np.concatenate((np.eye(systems), np.eye(systems)[1:] - np.eye(systems)[0]))
    # One stratum: the few queries that a task gives to a slice would understate the spread if drawn by themselves.
    bounds = Bootstrap([inside], settings).bounds(contrasts, np.ones(1))
    return Slice(
        by=by,
        value=value,
        n=n,
        tiny=n < TINY,
        scores={name: estimate(bounds, i, n) for i, name in enumerate(scores.systems)},
        differences={name: estimate(bounds, systems + i, n) for i, name in enumerate(scores.systems[1:])},
    )


def _bin(number: int, bins: Sequence[tuple[int, str]], beyond: str) -> str:
    if number == 0:
        return "none"
    return next((label for limit, label in bins if number <= limit), beyond)


def thirds(values: Sequence[float]) -> list[str]:
    """Cut into thirds by value; equal values stay together, so thirds may be uneven."""
    low, high = np.quantile(values, (1 / 3, 2 / 3))
    return [_THIRDS[0] if v <= low else _THIRDS[1] if v <= high else _THIRDS[2] for v in values]


def _order(by: str, labels: Sequence[str]) -> list[str]:
    """The values of a column in an order that makes sense to a reader."""
    present = dict.fromkeys(labels)
    fixed = {
        "positives": ["none", *(label for _, label in _POSITIVES), "6 and more"],
        "query length": ["none", *(label for _, label in _WORDS), "over 200 words"],
        "difficulty": list(_THIRDS),
        "audit": ["flagged", "not flagged"],
    }
    return (
        [v for v in fixed[by] if v in present] if by in fixed else sorted(present, key=lambda v: (v == NOT_STATED, v))
    )
