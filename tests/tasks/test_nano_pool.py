from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, Document, Documents, Qrels, Query, Run, Task, UsageError
from r2med.retrieve import BM25
from r2med.tasks.nano import Pool, PoolSettings, build_pool
from tests.builders import tasks


def small(size: int = 8) -> Task:
    """Two queries with one text, a positive with a copy, a copy among the others, a judgment of a missing document."""
    documents = [Document(f"d{i}", f"text number {i}") for i in range(size)]
    documents[5] = Document("d5", "text number 1")
    documents[7] = Document("d7", "text number 6")
    queries = (Query("q1", "number 1"), Query("q2", "number 2"), Query("q3", "number 1"), Query("q4", "nobody knows"))
    judgments = [("q1", "d5", 1), ("q2", "d2", 2), ("q3", "d3", 1), ("q3", "d1", 1), ("q2", "gone", 1), ("q4", "d0", 0)]
    return Task("small", queries, Documents.of(documents), Qrels.from_judgments(judgments))


def reasons(pool: Pool, task: Task) -> dict[str, str]:
    return {task.documents.ids[a.doc]: a.by for a in pool.admissions}


def test_everything_relevant_stays_and_copies_are_merged() -> None:
    pool = build_pool(small(), PoolSettings(docs=6))
    # d1 and d5 are one text, both positive: the first stands for both. q3 is q1 again and hands over its judgments.
    assert sorted(pool.task.qrels) == [("q1", "d1", 1), ("q1", "d3", 1), ("q2", "d2", 2)]
    assert pool.account.copies_merged_into_positives == {"d5": "d1"}
    assert pool.account.duplicate_queries == {"q3": "q1"}
    assert pool.account.queries_without_positive == ["q4"]
    assert pool.account.judgments_of_missing_documents == [("q2", "gone")]
    assert pool.account.positives_merged == 1
    assert [q.id for q in pool.task.queries] == ["q1", "q2"]
    assert list(pool.task.documents.ids) == ["d0", "d1", "d2", "d3", "d4", "d6"]
    assert pool.account.copies_left_out == 1
    assert reasons(pool, small())["d1"] == "positive"
    assert reasons(pool, small())["d0"] == "source-order"


def test_a_copy_of_a_positive_never_stands_for_it() -> None:
    task = Task(
        "t", (Query("q", "x"),), Documents.of([Document("copy", "same"), Document("gold", "same"), Document("z", "z")]),
        Qrels.from_judgments([("q", "gold", 1)]),
    )  # fmt: skip
    pool = build_pool(task, PoolSettings(docs=3))
    assert list(pool.task.documents.ids) == ["gold", "z"]
    assert pool.account.copies_merged_into_positives == {"copy": "gold"}


def test_titles_belong_to_the_text() -> None:
    documents = [Document("a", "same", "one"), Document("b", "same", "two")]
    task = Task("t", (Query("q", "x"),), Documents.of(documents), Qrels.from_judgments([("q", "a", 1)]))
    assert list(build_pool(task, PoolSettings(docs=5)).task.documents) == documents


@given(tasks(), st.integers(1, 8), st.sampled_from(["source-order", "hard"]), st.integers(0, 3))
def test_a_pool_loses_no_relevant_text(task: Task, docs: int, fill: str, seed: int) -> None:
    settings = PoolSettings(docs=docs, fill="hard" if fill == "hard" else "source-order", seed=seed)
    positive_texts = {
        (task.query(q).text, task.documents.get(d).contents)  # type: ignore[union-attr]
        for q, d, g in task.qrels
        if g > 0 and task.documents.get(d) and task.query(q)
    }
    runs = [BM25().retrieve(task, depth=5)]
    needed = len({text for _, text in positive_texts})
    if not positive_texts:
        with pytest.raises(DataError, match="no query with a positive"):
            build_pool(task, settings, runs)
        return
    if needed > docs:
        with pytest.raises(UsageError, match="cannot hold them"):
            build_pool(task, settings, runs)
        return
    pool = build_pool(task, settings, runs)
    kept = pool.task
    got = {(kept.query(q).text, kept.documents.get(d).contents) for q, d, _ in kept.qrels}  # type: ignore[union-attr]
    assert got == positive_texts
    assert len(kept.documents) == min(docs, len(set(task.documents.contents)))
    assert len(set(kept.documents.contents)) == len(kept.documents)
    assert len({q.text for q in kept.queries}) == len(kept.queries)
    assert build_pool(task, settings, runs).task.fingerprint == kept.fingerprint


def test_hard_negatives_come_in_turn_and_are_accounted_for() -> None:
    documents = [Document(f"d{i}", f"text {i}") for i in range(10)]
    task = Task(
        "t", (Query("a", "x"), Query("b", "y")), Documents.of(documents),
        Qrels.from_judgments([("a", "d0", 1), ("b", "d1", 1)]),
    )  # fmt: skip
    one = Run.from_rankings(
        {"a": [("d9", 3.0), ("d8", 2.0)], "b": [("d7", 3.0), ("d0", 1.0)]}, doc_ids=task.documents.ids, name="one"
    )
    two = Run.from_rankings({"a": [("d6", 3.0)], "b": [("d9", 3.0)]}, doc_ids=task.documents.ids, name="two")
    pool = build_pool(task, PoolSettings(docs=5, fill="hard"), [one, two])
    by = {task.documents.ids[x.doc]: (x.by, x.query, x.rank) for x in pool.admissions}
    assert by == {
        "d0": ("positive", "", 0), "d1": ("positive", "", 0), "d9": ("one", "a", 1), "d6": ("two", "a", 1),
        "d7": ("one", "b", 1),
    }  # fmt: skip
    rest = build_pool(task, PoolSettings(docs=8, fill="hard"), [one, two])
    assert sum(x.by == "random" for x in rest.admissions) == 2


def test_the_seed_decides_the_random_part_alone() -> None:
    documents = [Document(f"d{i}", f"text {i}") for i in range(200)]
    task = Task("t", (Query("a", "x"),), Documents.of(documents), Qrels.from_judgments([("a", "d0", 1)]))
    run = Run.from_rankings({"a": [("d9", 3.0)]}, doc_ids=task.documents.ids, name="r")
    first, again, other = (
        build_pool(task, PoolSettings(docs=20, fill="hard", seed=seed), [run]).task for seed in (1, 1, 2)
    )
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint
    assert {"d0", "d9"} <= set(first.documents.ids) & set(other.documents.ids)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"docs": 0}, "at least one document"), ({"fill": "easy"}, "unknown fill"), ({"seed": -1}, "negative")],
)
def test_senseless_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PoolSettings(**settings)  # type: ignore[arg-type]


def test_hard_needs_candidates() -> None:
    with pytest.raises(UsageError, match="needs the candidates"):
        build_pool(small(), PoolSettings(fill="hard"))
