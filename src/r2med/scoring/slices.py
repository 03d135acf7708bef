"""Scores of groups of queries, each with its interval and size: where a system is good and where it is not."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ..core import Task, UsageError
from ..core.columns import Int64
from .effects import spread, widened
from .evaluation import ScoreSet
from .intervals import Bootstrap, Estimate, Settings
from .measures import Bools
from .significance import SignFlips, pair_tests

TINY = 10
NOT_STATED = "not stated"
THIRDS = ("hard: least shared words", "middle", "easy: most shared words")
_POSITIVES = {0: "none", 1: "1", 2: "2", 5: "3–5", math.inf: "6 and more"}
_WORDS = {0: "none", 50: "up to 50 words", 100: "51–100 words", 200: "101–200 words", math.inf: "over 200 words"}
FLAGS = ("flagged", "not flagged")
GROUPS = ("family", "body system", "positives", "query length", "difficulty")
"""What queries are grouped by."""
ORDERS: dict[str, Collection[str]] = {
    "positives": _POSITIVES.values(), "query length": _WORDS.values(), "difficulty": (*THIRDS, NOT_STATED),
    "audit": FLAGS,
}  # fmt: skip
"""The order of the groups; others go by name."""

Tokens = Callable[[str], Iterable[str]]


class Traits(NamedTuple):
    """What a query can be grouped by."""

    family: str
    body_system: str
    positives: int
    words: int
    overlap: float | None  # None where there is nothing to compare: no word, or no positive passage.


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
    for query_id in positives.query_ids:
        query = task.query(query_id)
        passages = [task.documents.get(doc_id) for doc_id in positives.of(query_id)]
        words = frozenset(tokens(query.text)) if query is not None else frozenset()
        shared = [len(words & frozenset(tokens(p.contents))) / len(words) for p in passages if p is not None and words]
        traits[query_id] = Traits(
            family=task.family or NOT_STATED,
            body_system=(query.body_system if query is not None else None) or NOT_STATED,
            positives=len(passages),
            words=len(query.text.split()) if query is not None else 0,
            overlap=float(np.mean(shared)) if shared else None,
        )
    return traits


def thirds(values: Sequence[float]) -> Int64:
    """The third that each value belongs to: 0 the lowest, 2 the highest. Equal values stay together."""
    return np.searchsorted(np.quantile(values, (1 / 3, 2 / 3)), values, side="left")


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
    labels = slice_labels(scores, traits, flagged)
    return [
        _slice(scores, by, value, inside, settings)
        for by, of_queries in labels.items()
        for value, inside in _in_order(of_queries, ORDERS.get(by) or sorted(set(of_queries), key=_last)).items()
    ]


def slice_labels(
    scores: ScoreSet, traits: Mapping[str, Mapping[str, Traits]], flagged: Collection[tuple[str, str]] | None = None
) -> dict[str, list[str]]:
    """For each way to group queries, the group of each query of a score set, task after task."""
    order = [(task.name, query_id) for task in scores.tasks for query_id in task.query_ids]
    if lacking := next((f"{t}: {q}" for t, q in order if q not in traits.get(t, {})), None):
        raise UsageError(f"nothing is known about query {lacking}")
    known = [traits[task][query_id] for task, query_id in order]
    labels = {
        "family": [t.family for t in known],
        "body system": [t.body_system for t in known],
        "positives": [_bin(t.positives, _POSITIVES) for t in known],
        "query length": [_bin(t.words, _WORDS) for t in known],
        "difficulty": _difficulty([t.overlap for t in known]),
    }
    if flagged is not None:
        labels["audit"] = [FLAGS[place not in flagged] for place in order]
    return labels


def _difficulty(overlaps: Sequence[float | None]) -> list[str]:
    """The third that each query belongs to by the words it shares with its positives."""
    parts = iter(thirds([overlap for overlap in overlaps if overlap is not None] or [0.0]))
    return [NOT_STATED if overlap is None else THIRDS[next(parts)] for overlap in overlaps]


def _bin(number: int, bins: Mapping[float, str]) -> str:
    """The label of the first bin whose upper limit is not exceeded."""
    return next(label for limit, label in bins.items() if number <= limit)


def _last(label: str) -> tuple[bool, str]:
    """By name, with what is not stated behind the rest."""
    return label == NOT_STATED, label


def _in_order(labels: Sequence[str], order: Iterable[str]) -> dict[str, Bools]:
    """For each label that occurs, which queries have it."""
    present = np.array(labels)
    return {label: present == label for label in order if label in labels}


def _slice(scores: ScoreSet, by: str, value: str, inside: Bools, settings: Settings) -> Slice:
    systems, n = len(scores.systems), int(inside.sum())
    # One stratum: the few queries that a task gives to a slice would understate the spread if drawn by themselves.
    values = np.concatenate(scores.matrices, axis=1)[:, inside]
    bounds = Bootstrap([values], settings).scores(np.ones(1))
    differences = dict[str, Estimate]()
    if systems > 1:
        line = SignFlips([values], draws=settings.resamples, seed=settings.seed).exact_line(np.ones(1))
        spreads = [spread([row - values[0]], [1.0]) for row in values[1:]]
        tested = pair_tests(line, [(0, i) for i in range(1, systems)], settings.level)
        tested = widened(tested, spreads, line.weights, settings.level)
        found = zip(scores.systems[1:], tested.difference, tested.low, tested.high, strict=True)
        differences = {name: Estimate(float(value), float(low), float(high), n) for name, value, low, high in found}
    return Slice(
        by=by,
        value=value,
        n=n,
        tiny=n < TINY,
        scores={name: bounds.estimate(i, n) for i, name in enumerate(scores.systems)},
        differences=differences,
    )
