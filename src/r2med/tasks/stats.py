"""The figures people quote about a task."""

from __future__ import annotations

import msgspec
import numpy as np

from ..core import Task


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
