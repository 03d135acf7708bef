"""What an artefact audit measures: a classifier that never sees the query, twins among queries, documents that quote.

The classifier tells relevant documents from others. Two kinds of negatives are looked at: those that somebody judged,
and what BM25 puts among its first documents without being judged relevant. It is ridge regression on labels of +1 and
-1 (a regularised linear discriminant): closed form, the same on every machine. It is tested on queries, and on
documents, that it was not trained on.

Twins are queries that ask for the same thing twice; a document quotes its query where it shares a run of words with it.
Documents that lie in the order of the queries they answer are found by whoever looks at their places or ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from ..core import Task, TextColumn
from ..core.columns import Int64, grouped
from ..expand.answers import answer_forms, content_words
from ..scoring.intervals import Estimate
from ..scoring.measures import Bools, Float64
from ..tasks.audit.style import style_parts, word_weights
from ..text.duplicates import WIDTH, Pairs, groups, near_duplicates, overlaps, shingle, text_key
from .nano_build import spearman

Negatives = Literal["judged", "bm25"]
FOLDS = 10
PENALTY = 10.0
"""Of the ridge. Of 0.3, 1, 3 and 10 the one that told most apart on real collections, and no less on small tasks."""
MOST_QUERIES = 1_000
"""Queries that are looked at, drawn by the seed where there are more: enough for an interval of ±0.02."""
_RESAMPLES = 500
_LEVEL = 0.95
_NORMAL = 1.959964  # of the normal distribution, at this level
_NEARLY_ONE = 1 - 1e-9
_TOLD_WORDS = 8
_DIGITS = 9
TWIN_COSINE = 0.7
"""Of tf-idf: claims that differ in one word lie above it, questions of one pattern ("What is the use of …") below."""
_MOST_TERMS = 10_000  # of the queries; those of a few thousand queries fit in memory
_ROWS_AT_ONCE = 1_000

TwinKind = Literal["words", "relevant", "answer"]


class Examples(NamedTuple):
    """Documents as they were met under queries: an entry per pair of query and document."""

    query: Int64  # numbers from 0
    document: Int64  # rows of the features
    copy: Int64  # equal for documents that are near copies of each other
    relevant: Bools

    @property
    def queries(self) -> int:
        return int(self.query.max()) + 1 if len(self.query) else 0


class Fold(NamedTuple):
    """Rows of the examples to train on, and rows to test."""

    train: Int64
    test: Int64


def connected(judged: Iterable[tuple[int, int]], queries: int) -> Int64:
    """The group of each query: queries that share a judged document, or are joined by a chain of such, have one.

    `judged` are pairs of a query and a document.
    """
    sharing = grouped((document, query) for query, document in judged)
    pairs = [(members[0], other) for members in sharing.values() for other in members[1:]]
    first, second = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    group = np.arange(queries)
    for members in groups(Pairs(first, second, np.ones(len(first))), queries):
        group[members] = members[0]
    return group


def make_folds(examples: Examples, group: Int64, seed: int, most: int = FOLDS) -> list[Fold]:
    """Folds of whole groups, about equal in queries; a document that is tested, or a copy of it, is not trained on."""
    sizes = np.bincount(group, minlength=len(group))
    named = np.flatnonzero(sizes)
    order = np.random.default_rng(seed).permutation(named)
    order = order[np.argsort(-sizes[order], kind="stable")]
    fold_of, load = np.zeros(len(sizes), dtype=np.int64), np.zeros(min(most, len(named)), dtype=np.int64)
    for one in order.tolist():
        fold_of[one] = int(load.argmin())
        load[fold_of[one]] += sizes[one]
    fold_of_row = fold_of[group[examples.query]]
    folds = []
    for number in range(len(load)):
        tested = fold_of_row == number
        trained = ~tested & ~np.isin(examples.copy, examples.copy[tested])
        folds.append(Fold(np.flatnonzero(trained), np.flatnonzero(tested)))
    return folds


def fit(
    features: Float64, labels: Float64, weights: Float64, parts: Sequence[Int64], penalty: float = PENALTY
) -> list[tuple[Float64, float]]:
    """Coefficients and intercepts of weighted ridge regressions, one over the columns of each part.

    The intercept is not penalised.
    """
    total = weights.sum()
    centre, level = weights @ features / total, float(weights @ labels / total)
    root = np.sqrt(weights)
    rows, wanted = (features - centre) * root[:, None], (labels - level) * root
    products = rows.T @ rows if len(rows) >= rows.shape[1] else None
    found = []
    for part in parts:
        if len(rows) < len(part):  # the same solution from the smaller system
            own = rows[:, part]
            coefficients = own.T @ np.linalg.solve(own @ own.T + penalty * np.eye(len(own)), wanted)
        else:
            square = rows[:, part].T @ rows[:, part] if products is None else products[np.ix_(part, part)]
            coefficients = np.linalg.solve(square + penalty * np.eye(len(part)), rows[:, part].T @ wanted)
        found.append((coefficients, level - float(centre[part] @ coefficients)))
    return found


def balanced(examples: Examples, rows: Int64) -> Float64:
    """Weights under which every query counts alike, and its two classes alike; their mean is 1."""
    code = examples.query[rows] * 2 + examples.relevant[rows]
    weights = 1.0 / np.bincount(code)[code]
    return np.asarray(weights * (len(rows) / weights.sum()))


def cross_validated(features: Float64, parts: Sequence[Int64], examples: Examples, folds: Sequence[Fold]) -> Float64:
    """For each part of the columns, the score of each example by a classifier that saw neither its query nor its text.

    NaN where a fold leaves no example of one class to train on.
    """
    scores = np.full((len(parts), len(examples.query)), np.nan)
    labels = np.where(examples.relevant, 1.0, -1.0)
    for train, test in folds:
        if len(np.unique(examples.relevant[train])) < 2:
            continue
        fitted = fit(features[examples.document[train]], labels[train], balanced(examples, train), parts)
        tested = features[examples.document[test]]
        for row, (part, (coefficients, intercept)) in enumerate(zip(parts, fitted, strict=True)):
            scores[row, test] = tested[:, part] @ coefficients + intercept
    # Equal documents get sums that differ in their last bits, by their place in the matrix: they must stay ties.
    return np.round(scores, _DIGITS)


def auc(positive: Float64, negative: Float64) -> float:
    """The share of pairs in which the positive has the higher score; equal scores count half."""
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, side="left")
    up_to = np.searchsorted(ordered, positive, side="right")
    return float((below + up_to).sum()) / (2.0 * len(positive) * len(negative))


def auc_by_query(scores: Float64, examples: Examples) -> Float64:
    """The AUC within each query: its positives against its own negatives. NaN where it was not tested."""
    found = np.full(examples.queries, np.nan)
    for query in range(examples.queries):
        own = examples.query == query
        positive, negative = scores[own & examples.relevant], scores[own & ~examples.relevant]
        if len(positive) and len(negative) and not np.isnan(scores[own]).any():
            found[query] = auc(positive, negative)
    return found


def pooled_auc(scores: Float64, examples: Examples, copies: Float64) -> Float64:
    """The AUC of all positives against all negatives, under each row of `copies`: how often each query counts."""
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    first = np.searchsorted(ordered, ordered, side="left")
    last = np.searchsorted(ordered, ordered, side="right")
    relevant, query = examples.relevant[order], examples.query[order]
    found = np.empty(len(copies))
    for row, counts in enumerate(copies):
        weights = counts[query]
        negative = np.concatenate(([0.0], np.cumsum(np.where(relevant, 0.0, weights))))
        positive = np.where(relevant, weights, 0.0)
        pairs = positive.sum() * negative[-1]
        wins = (positive * (negative[first] + negative[last])).sum() / 2.0
        found[row] = wins / pairs if pairs else np.nan
    return found


def group_values(values: Float64, group: Int64) -> Float64:
    """A value per group whose plain mean is the mean over queries, and whose spread is that of whole groups.

    These are the linearised values of a ratio: where every group is one query, they are the queries' own values.
    """
    _, number = np.unique(group, return_inverse=True)
    sizes = np.bincount(number)
    mean = values.mean()
    return np.asarray(mean + np.bincount(number, weights=values - mean) * (len(sizes) / len(values)))


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


class Twins(msgspec.Struct, frozen=True, kw_only=True):
    """Two queries that ask for the same: by their words, their set of relevant documents, or their answer."""

    kind: TwinKind
    tasks: tuple[str, str]
    queries: tuple[str, str]
    similarity: float | None = None  # the cosine, where the words are alike


class Place(NamedTuple):
    """A query among those of all tasks."""

    task: int
    query: int


class TwinPair(NamedTuple):
    """Twins, and where they stand."""

    first: Place
    second: Place
    twins: Twins


def find_twins(tasks: Sequence[Task]) -> list[TwinPair]:
    """Pairs of queries that are twins, within tasks and across them.

    Of several queries with the same relevant documents, or the same answer, each is paired with the first.
    """
    places = [Place(i, j) for i, task in enumerate(tasks) for j in range(len(task.queries))]
    kinds: dict[TwinKind, Iterator[_Pair]] = {
        "words": _alike(tasks),
        "relevant": _same_relevant(tasks),
        "answer": _same_answer(tasks),
    }
    return [_twins(tasks, kind, places[a], places[b], alike) for kind, pairs in kinds.items() for a, b, alike in pairs]


def _twins(tasks: Sequence[Task], kind: TwinKind, one: Place, other: Place, similarity: float | None) -> TwinPair:
    twins = Twins(
        kind=kind,
        tasks=(tasks[one.task].full_name, tasks[other.task].full_name),
        queries=(tasks[one.task].queries[one.query].id, tasks[other.task].queries[other.query].id),
        similarity=similarity,
    )
    return TwinPair(one, other, twins)


_Pair = tuple[int, int, float | None]


def _alike(tasks: Sequence[Task]) -> Iterator[_Pair]:
    """Queries whose words are nearly the same."""
    texts = TextColumn.from_texts(query.text for task in tasks for query in task.queries)
    rows = word_weights(texts, "english", most=_MOST_TERMS, least=1).values
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        cosine = np.triu(rows[begin : begin + _ROWS_AT_ONCE] @ rows.T, begin + 1)
        for first, second in np.argwhere(cosine >= TWIN_COSINE).tolist():
            yield begin + first, second, round(min(float(cosine[first, second]), 1.0), 4)


def _same_relevant(tasks: Sequence[Task]) -> Iterator[_Pair]:
    """Queries with the same relevant documents; documents are compared by their texts, for tasks may share a corpus."""
    sets = [
        frozenset(text_key(task.documents.contents[at]) for at in task.positives(query.id))
        for task in tasks
        for query in task.queries
    ]
    yield from _with_first(grouped((relevant, i) for i, relevant in enumerate(sets) if relevant).values())


def _same_answer(tasks: Sequence[Task]) -> Iterator[_Pair]:
    """Queries whose answers have a name in common; answers that are labels, such as yes and no, name nothing."""
    named: dict[tuple[frozenset[str], int], None] = {}
    start = 0
    for task in tasks:
        forms = {i: _names(query.answer) for i, query in enumerate(task.queries, start) if query.answer}
        if len({tuple(of_query) for of_query in forms.values()}) > len(forms) / 2:
            named |= {(frozenset(content_words(form)), i): None for i, of_query in forms.items() for form in of_query}
        start += len(task.queries)
    yield from dict.fromkeys(_with_first(grouped(named).values()))


def _names(answer: str) -> list[str]:
    """What an answer may be called; of `Hip fracture: replacement within two days` also the part before the colon."""
    return [*answer_forms(answer), *answer_forms(answer.partition(":")[0])]


def _with_first(alike: Iterable[list[int]]) -> Iterator[_Pair]:
    for first, *others in alike:
        yield from ((first, other, None) for other in others)


class Quoting(NamedTuple):
    """How documents of one class quote the query they were judged for; an entry per query that has some."""

    queries: Int64
    share: Float64  # of the query's word runs that stand in a document, the mean of its documents
    rate: Float64  # of documents that share a run with the query


def quoting(task: Task, documents: Sequence[Sequence[int]]) -> Quoting:
    """The word runs that each query shares with its documents, given as positions for each query."""
    asked = np.flatnonzero([len(of_query) > 0 for of_query in documents])
    used = sorted({at for of_query in documents for at in of_query})
    row = {at: i for i, at in enumerate(used)}
    queries, texts = shingle(task.query_texts, WIDTH), shingle(task.documents.contents.take(used), WIDTH)
    met = overlaps(queries, texts, least=0.0)
    shares = dict(zip(zip(met.left.tolist(), met.right.tolist(), strict=True), met.left_inside.tolist(), strict=True))
    found = [np.array([shares.get((q, row[at]), 0.0) for at in documents[q]]) for q in asked.tolist()]
    share, rate = [of.mean() for of in found], [(of > 0).mean() for of in found]
    return Quoting(asked, np.array(share, dtype=np.float64), np.array(rate, dtype=np.float64))


def order_followed(tasks: Sequence[Task]) -> Estimate | None:
    """How far relevant documents lie in the order of their queries: the size of Spearman's correlation of both places.

    Of several tasks, the mean of their correlations on Fisher's scale, where the interval is made. None where a task
    has fewer than four queries with relevant documents.
    """
    scaled, variances, count = [], [], 0
    for task in tasks:
        mean_place = [float(np.mean(at)) for query in task.queries if (at := task.positives(query.id))]
        kept = np.linspace(0, len(mean_place) - 1, min(len(mean_place), MOST_QUERIES)).astype(np.int64)
        if len(kept) < 4:
            return None
        (found,) = spearman(kept[None].astype(np.float64), np.array(mean_place)[None, kept])
        scaled.append(np.arctanh(np.clip(found, -_NEARLY_ONE, _NEARLY_ONE)))
        variances.append(1.0 / (len(kept) - 3))
        count += len(kept)
    value, spread = abs(float(np.mean(scaled))), _NORMAL * float(np.sqrt(np.sum(variances))) / len(scaled)
    low, value, high = np.tanh([max(value - spread, 0.0), value, value + spread]).tolist()
    return Estimate(value, low, high, count)
