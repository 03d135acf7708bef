from __future__ import annotations

import numpy as np
import pytest

from r2med.core import Document, Documents, Qrels, Query, Task, UsageError
from r2med.scoring.slices import NOT_STATED, THIRDS, Slice, Traits, query_traits, slice_labels, slice_scores, thirds

from .examples import drawn


def words(text: str) -> list[str]:
    return text.split()


def test_traits_of_queries() -> None:
    task = Task(
        "t",
        (Query("q1", "pain in the chest", body_system="Cardiovascular"), Query("q2", "itch"), Query("q3", "the")),
        Documents.of([Document("d1", "the chest hurts"), Document("d2", "in the dark"), Document("d3", "skin")]),
        Qrels.from_judgments([("q1", "d1", 1), ("q1", "d2", 1), ("q1", "d3", 0), ("q2", "d3", 1), ("q3", "d1", 0)]),
        family="Clinical case",
    )
    traits = query_traits(task, words)
    assert traits["q1"] == Traits("Clinical case", "Cardiovascular", 2, 4, 0.5)  # {the, chest}, {in, the} of four
    assert traits["q2"] == Traits("Clinical case", NOT_STATED, 1, 1, 0.0)
    assert traits["q3"] == Traits("Clinical case", NOT_STATED, 0, 1, None)  # no positive to share words with


def test_a_query_without_positives_is_not_a_hard_one() -> None:
    scores = drawn(2, (12,))
    traits = [Traits("", "", min(i, 1), 9, None if i == 0 else i / 20) for i in range(12)]
    by_query = {"t0": dict(zip(scores.tasks[0].query_ids, traits, strict=True))}
    labels = slice_labels(scores, by_query)["difficulty"]
    assert labels[0] == NOT_STATED
    assert labels[1:] == [THIRDS[0]] * 4 + [THIRDS[1]] * 3 + [THIRDS[2]] * 4
    assert ("difficulty", NOT_STATED, 1) in [(s.by, s.value, s.n) for s in slice_scores(scores, by_query)]


def some_slices(flagged: set[tuple[str, str]] | None = None) -> dict[tuple[str, str], Slice]:
    scores = drawn(3, (12, 20))
    traits = {
        task.name: {
            q: Traits(f"family of {task.name}", "Nervous" if i < 4 else "Skeletal", 1 + i % 7, 30 * (i + 1), i / 20)
            for i, q in enumerate(task.query_ids)
        }
        for task in scores.tasks
    }
    return {(s.by, s.value): s for s in slice_scores(scores, traits, flagged=flagged)}


def test_each_slice_has_its_queries_and_its_interval() -> None:
    scores, slices = drawn(3, (12, 20)), some_slices()
    pooled = np.concatenate(scores.matrices, axis=1)
    nervous = [*range(4), *range(12, 16)]
    found = slices["body system", "Nervous"]
    assert (found.n, found.tiny) == (8, True)
    assert found.scores["s1"].value == pytest.approx(pooled[1, nervous].mean())
    assert found.differences["s2"].value == pytest.approx((pooled[2] - pooled[0])[nervous].mean())
    assert found.differences.keys() == {"s1", "s2"}
    assert found.scores["s1"].low < found.scores["s1"].value < found.scores["s1"].high
    assert slices["family", "family of t1"].n == 20
    assert not slices["family", "family of t1"].tiny
    assert slices["family", "family of t1"].scores["s0"].value == pytest.approx(scores.matrices[1][0].mean())


def test_every_dimension_covers_all_queries_once() -> None:
    sizes: dict[str, int] = {}
    for (by, _), found in some_slices({("t0", "t0-q0"), ("t1", "t1-q0")}).items():
        sizes[by] = sizes.get(by, 0) + found.n
    assert sizes == dict.fromkeys(["family", "body system", "positives", "query length", "difficulty", "audit"], 32)


def test_flags_name_task_and_query() -> None:
    slices = some_slices({("t0", "t0-q0")})
    assert (slices["audit", "flagged"].n, slices["audit", "not flagged"].n) == (1, 31)
    assert not any(by == "audit" for by, _ in some_slices())


def test_thirds_keep_equal_values_together() -> None:
    third = thirds([0.1, 0.1, 0.1, 0.5, 0.9, 0.9]).tolist()
    assert third[:3] == [0, 0, 0]
    assert third[4] == third[5] > 0
    assert thirds([0.3] * 5).tolist() == [0] * 5
    assert thirds([0.9, 0.1, 0.5]).tolist() == [2, 0, 1]
    assert [label.partition(":")[0] for label in THIRDS] == ["hard", "middle", "easy"]


def test_a_query_without_traits_is_named() -> None:
    with pytest.raises(UsageError, match="t0: t0-q0"):
        slice_scores(drawn(1, (3,)), {})
