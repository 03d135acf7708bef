from __future__ import annotations

import msgspec
import pytest

from r2med.core import Document, Documents, Qrels, Query, Task
from r2med.tasks import stats


def test_figures_are_those_computed_by_hand() -> None:
    task = Task(
        "t",
        (Query("q1", "one two"), Query("q2", "three"), Query("q3", "β γ δ")),
        Documents.of([Document("d1", "a b c d"), Document("d2", "é"), Document("d3", " x\ny ", "A Title")]),
        Qrels.from_judgments([("q1", "d1", 2), ("q1", "d2", 1), ("q1", "d3", 0), ("q2", "d1", 1), ("q9", "d1", 1)]),
        collection="c",
    )
    assert msgspec.to_builtins(stats(task)) == {
        "task": "c/t",
        "queries": 3,
        "documents": 3,
        "judgments": 5,
        "positives": 4,
        "positives_mean": 1.0,  # 2, 1, 0
        "positives_min": 0,
        "positives_median": 1.0,
        "positives_max": 2,
        "multi_positive_queries": 1,
        "multi_positive_share": pytest.approx(1 / 3),
        "relevant_documents": 2,  # d1 twice, d2; q9 is no query of the task
        "query_words_mean": 2.0,  # 2, 1, 3
        "document_words_mean": pytest.approx(7 / 3),  # 4, 1, 2: the title is not counted
        "query_chars_mean": pytest.approx(17 / 3),  # 7, 5, 5
        "document_chars_mean": pytest.approx(13 / 3),  # 7, 1, 5
        "fingerprint": task.fingerprint,
    }
