"""Relevant documents against others, by a classifier that never sees the query.

Two kinds of negatives are looked at: those that somebody judged, and what BM25 puts among its first documents without
being judged relevant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..core import Task
from ..core.columns import Int64
from ..scoring.hits import Float64
from ..tasks.audit.style import style_parts
from ..text.duplicates import groups, near_duplicates, shingle
from .separation import (
    Examples,
    auc_by_query,
    balanced,
    connected,
    cross_validated,
    fit,
    group_values,
    make_folds,
    pooled_auc,
)

Negatives = Literal["judged", "bm25"]
MOST_QUERIES = 1_000
"""Queries that are looked at, drawn by the seed where there are more: enough for an interval of ±0.02."""
_RESAMPLES = 500
_LEVEL = 0.95
_TOLD_WORDS = 8


class Classified(NamedTuple):
    """What the classifiers of one task reached; rows are parts of the style, the first of them all together."""

    negatives_are: Negatives
    parts: list[str]
    values: Float64  # the AUC within queries: parts × groups of queries
    queries: int
    folds: int
    positives: int
    negatives: int
    pooled: tuple[float, float, float]  # value and interval
    words_of_relevant: list[str]
    words_of_others: list[str]

    @property
    def groups(self) -> int:
        return int(self.values.shape[1])


def classify(
    task: Task, negatives_are: Negatives, positives: Sequence[Sequence[int]], negatives: Sequence[Sequence[int]],
    *, seed: int,
) -> Classified | None:  # fmt: skip
    """Cross-validate classifiers on the documents of each query that has both, given as positions in the corpus.

    None where the queries cannot be divided: all of them share relevant documents.
    """
    pairs = [pair for pair in zip(positives, negatives, strict=True) if all(pair)]
    if len(pairs) > MOST_QUERIES:
        drawn = np.random.default_rng(seed).choice(len(pairs), MOST_QUERIES, replace=False)
        pairs = [pairs[i] for i in sorted(drawn.tolist())]
    used = sorted({at for positive, negative in pairs for at in (*positive, *negative)})
    texts = task.documents.contents.take(used)
    row = {at: i for i, at in enumerate(used)}
    copy = np.arange(len(used))
    for members in groups(near_duplicates(shingle(texts)), len(used)):
        copy[members] = members[0]
    good = [(q, row[at], 1) for q, (positive, _) in enumerate(pairs) for at in positive]
    others = [(q, row[at], 0) for q, (_, negative) in enumerate(pairs) for at in negative]
    query, document, relevant = np.array(good + others, dtype=np.int64).T
    examples = Examples(query, document, copy[document], relevant == 1)
    group = connected(((q, int(copy[at])) for q, at, _ in good), len(pairs))
    if len(np.unique(group)) < 2:
        return None
    style, folds = style_parts(texts), make_folds(examples, group, seed)
    features = np.concatenate([part.values for part in style], axis=1)
    columns = [np.arange(features.shape[1]), *_columns([part.values.shape[1] for part in style])]
    scores = cross_validated(features, columns, examples, folds)
    aucs = np.stack([auc_by_query(of_part, examples) for of_part in scores])
    tested = ~np.isnan(aucs[0])
    if not tested.any():
        return None
    words = style[0].columns
    labels, every = np.where(examples.relevant, 1.0, -1.0), np.arange(len(query))
    ((weights, _),) = fit(style[0].values[document], labels, balanced(examples, every), [np.arange(len(words))])
    order = np.argsort(weights, kind="stable")
    return Classified(
        negatives_are=negatives_are,
        parts=["all", *(part.name for part in style)],
        values=np.stack([group_values(of_part[tested], group[tested]) for of_part in aucs]),
        queries=int(tested.sum()),
        folds=len(folds),
        positives=int(examples.relevant.sum()),
        negatives=int((~examples.relevant).sum()),
        pooled=_pooled(scores[0], examples, group, seed),
        words_of_relevant=[words[i] for i in order[::-1][:_TOLD_WORDS].tolist()],
        words_of_others=[words[i] for i in order[:_TOLD_WORDS].tolist()],
    )


def _columns(sizes: Sequence[int]) -> list[Int64]:
    """The columns of each part, side by side."""
    ends = np.cumsum(sizes)
    return [np.arange(end - size, end) for end, size in zip(ends.tolist(), sizes, strict=True)]


def _pooled(scores: Float64, examples: Examples, group: Int64, seed: int) -> tuple[float, float, float]:
    """The pooled AUC with a percentile interval of resamples of whole groups of queries."""
    kept = ~np.isnan(scores)
    examples = Examples(examples.query[kept], examples.document[kept], examples.copy[kept], examples.relevant[kept])
    _, number = np.unique(group, return_inverse=True)
    count = int(number.max()) + 1
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=_RESAMPLES)
    once = np.ones((1, len(group)))
    found = pooled_auc(scores[kept], examples, np.concatenate((once, drawn[:, number].astype(np.float64))))
    tail = (1.0 - _LEVEL) / 2.0
    low, high = np.nanquantile(found[1:], [tail, 1.0 - tail]).tolist()
    return float(found[0]), float(low), float(high)
