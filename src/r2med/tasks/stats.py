"""The figures people quote about a task, and how its queries relate to their positives."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from ..core import Task
from ..text import term_sets


class Stats(msgspec.Struct):
    """Columns of the R2MED table and of a Nano page. Words are separated by white space; no tokenizer is involved."""

    task: str
    queries: int
    documents: int
    judgments: int
    positives: int
    positives_mean: float
    positives_min: int
    positives_median: float
    positives_max: int
    multi_positive_queries: int
    multi_positive_share: float
    query_words_mean: float
    document_words_mean: float
    query_chars_mean: float
    document_chars_mean: float
    fingerprint: str


def stats(task: Task) -> Stats:
    """Measure a task. Queries without judgments count with zero positives."""
    per_query = np.zeros(len(task.queries), dtype=np.int64)
    rows = task.query_ids.positions(task.qrels.query_ids)
    counts = task.qrels.positives_per_query()
    per_query[rows[rows >= 0]] = counts[rows >= 0]
    multiple = int((per_query > 1).sum())
    return Stats(
        task=task.full_name,
        queries=len(task.queries),
        documents=len(task.documents),
        judgments=len(task.qrels),
        positives=task.qrels.positives,
        positives_mean=float(per_query.mean()),
        positives_min=int(per_query.min()),
        positives_median=float(np.median(per_query)),
        positives_max=int(per_query.max()),
        multi_positive_queries=multiple,
        multi_positive_share=multiple / len(per_query),
        query_words_mean=float(task.query_texts.word_counts().mean()),
        document_words_mean=float(task.documents.texts.word_counts().mean()),
        query_chars_mean=float(task.query_texts.char_lengths().mean()),
        document_chars_mean=float(task.documents.texts.char_lengths().mean()),
        fingerprint=task.fingerprint,
    )


class Tendencies(msgspec.Struct):
    """Figures about the queries of a task; shares lie between 0 and 1, quartiles are 25 %, 50 % and 75 %."""

    query_words: tuple[float, float, float]
    document_words: tuple[float, float, float]
    question_share: float
    overlap: tuple[float, float, float]
    overlap_of_query: dict[str, float]


def tendencies(task: Task) -> Tendencies:
    """Measure a task. Overlap: the share of a query's terms that its best matching positive holds."""
    shared = overlap_with_positives(task)
    return Tendencies(
        query_words=_quartiles(task.query_texts.word_counts()),
        document_words=_quartiles(task.documents.texts.word_counts()),
        question_share=sum("?" in q.text for q in task.queries) / len(task.queries),
        overlap=_quartiles(np.array(list(shared.values()))),
        overlap_of_query={query_id: round(value, 4) for query_id, value in shared.items()},
    )


def overlap_with_positives(task: Task) -> dict[str, float]:
    """For each query with a positive, the largest share of its terms that one positive holds."""
    positives = {
        q.id: [p for d, g in task.qrels.of(q.id).items() if g > 0 and (p := task.documents.ids.position(d)) >= 0]
        for q in task.queries
    }
    needed = {doc: i for i, doc in enumerate(sorted({doc for of_query in positives.values() for doc in of_query}))}
    terms = term_sets([*task.query_texts, *(task.documents.contents[doc] for doc in needed)])
    held, found = terms[len(task.queries) :], {}
    for query, asked in zip(task.queries, terms, strict=False):
        if asked and positives[query.id]:
            found[query.id] = max(len(asked & held[needed[doc]]) for doc in positives[query.id]) / len(asked)
    return found


def _quartiles(values: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> tuple[float, float, float]:
    if not len(values):
        return (0.0, 0.0, 0.0)
    low, middle, high = np.percentile(values, [25, 50, 75]).tolist()
    return (round(low, 4), round(middle, 4), round(high, 4))
