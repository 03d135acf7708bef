from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, Document, Documents, Hasher, Judgment, Qrels, Query, Task
from tests.builders import small_task, tasks


@pytest.mark.parametrize(("queries", "documents", "kind"), [("qq", "d", "query"), ("q", "dd", "document")])
def test_an_id_that_stands_twice_is_refused(queries: str, documents: str, kind: str) -> None:
    """The last of two documents was ranked and scored for both."""
    with pytest.raises(DataError, match=f"two of {kind} id"):
        Task(
            "t",
            tuple(Query(name, f"text {i}") for i, name in enumerate(queries)),
            Documents.of(Document(name, f"text {i}") for i, name in enumerate(documents)),
            Qrels.from_judgments([("q", "d", 1)]),
        )


@given(tasks())
def test_columns_hold_the_documents(task: Task) -> None:
    documents = list(task.documents)
    assert [task.documents[i] for i in range(len(documents))] == documents
    assert task.documents[-1] == documents[-1]
    assert task.documents[:2] == documents[:2]
    assert [task.documents.get(d.id) for d in documents] == documents
    assert list(task.documents.contents) == [d.contents for d in documents]
    assert Documents.of(documents).fingerprint == task.documents.fingerprint


def test_the_contents_are_title_and_text() -> None:
    assert Document("d", "text", "Title").contents == "Title text"
    assert Document("d", "text").contents == "text"
    assert Documents.of([Document("d", "text")]).titles is None


def test_a_query_is_found_by_its_id() -> None:
    task = small_task()
    assert task.query("q2") == Query("q2", "what is this")
    assert task.query("q9") is None
    assert task.documents.get("d9") is None
    assert list(task.query_texts) == ["why does it hurt", "what is this"]


def test_every_content_changes_the_fingerprint_and_no_name_does() -> None:
    task = small_task()
    first, *rest = task.queries
    texts = list(task.documents)
    changed = [
        replace(task, queries=(first._replace(text="other"), *rest)),
        replace(task, queries=(first._replace(answer="other"), *rest)),
        replace(task, queries=(first._replace(body_system="other"), *rest)),
        replace(task, queries=(first._replace(answer="Nervous", body_system="inflammation"), *rest)),
        replace(task, queries=(*rest, first)),
        replace(task, documents=Documents.of(texts[::-1])),
        replace(task, documents=Documents.of([texts[0]._replace(title="t"), *texts[1:]])),
        replace(task, documents=Documents.of([texts[0]._replace(text="t"), *texts[1:]])),
        replace(task, documents=Documents.of([texts[0]._replace(id="t"), *texts[1:]])),
        replace(task, qrels=Qrels.from_judgments([("q1", "d1", 1)])),
    ]
    assert len({task.fingerprint, *(t.fingerprint for t in changed)}) == len(changed) + 1
    renamed = replace(task, name="x", collection="y", family="z", source="s", revision="r")
    assert renamed.fingerprint == task.fingerprint


def test_the_fingerprint_of_a_task_is_stable() -> None:
    assert small_task().fingerprint == "7ee8cc31d7f73ae9cf82c836b61f67be"


def test_the_full_name_carries_the_collection() -> None:
    task = small_task()
    assert task.full_name == "small"
    assert replace(task, collection="mini@1").full_name == "mini@1/small"
    assert repr(task) == "Task('small', 2 queries, 3 documents, 4 judgments)"


IDS = st.text("abß🧬", min_size=1, max_size=2)
JUDGMENTS = st.dictionaries(st.tuples(IDS, IDS), st.integers(-2, 3), max_size=12)


def make(judged: dict[tuple[str, str], int]) -> Qrels:
    return Qrels.from_judgments((q, d, g) for (q, d), g in judged.items())


@given(JUDGMENTS)
def test_the_fingerprint_is_that_of_the_sorted_judgments(judged: dict[tuple[str, str], int]) -> None:
    """Results and caches on disk carry it: a faster way to compute it must give the same."""
    ordered, hasher = sorted((q, d, g) for (q, d), g in judged.items()), Hasher("qrels")
    hasher.texts(query_id for query_id, _, _ in ordered)
    hasher.texts(doc_id for _, doc_id, _ in ordered)
    hasher.data(np.array([grade for _, _, grade in ordered], dtype="<i4"))
    assert make(judged).fingerprint == hasher.digest()


@given(JUDGMENTS)
def test_judgments_go_in_and_come_out(judged: dict[tuple[str, str], int]) -> None:
    qrels = make(judged)
    assert len(qrels) == len(judged)
    assert {(j.query_id, j.doc_id): j.grade for j in qrels} == judged
    for query_id in qrels.query_ids:
        assert qrels.of(query_id) == {d: g for (q, d), g in judged.items() if q == query_id}
    assert qrels.positives == sum(g > 0 for g in judged.values())
    per_query = dict(zip(qrels.query_ids, qrels.positives_per_query().tolist(), strict=True))
    assert per_query == {q: sum(g > 0 for (p, _), g in judged.items() if p == q) for q, _ in judged}


@given(JUDGMENTS, st.randoms())
def test_order_does_not_matter(judged: dict[tuple[str, str], int], random: Random) -> None:
    shuffled = list(judged.items())
    random.shuffle(shuffled)
    one, other = make(judged), make(dict(shuffled))
    assert one == other
    assert one.fingerprint == other.fingerprint


@given(JUDGMENTS)
def test_positives_only_keeps_the_queries(judged: dict[tuple[str, str], int]) -> None:
    qrels = make(judged)
    positives = qrels.positives_only()
    assert list(positives.query_ids) == list(qrels.query_ids)
    assert list(positives) == [j for j in qrels if j.grade > 0]
    assert positives.positives_per_query().tolist() == qrels.positives_per_query().tolist()


def test_a_pair_may_be_repeated_but_not_contradicted() -> None:
    assert len(Qrels.from_judgments([("q", "d", 1), ("q", "d", 1)])) == 1
    with pytest.raises(DataError, match="query 'q' judges document 'd' twice, as 1 and 2"):
        Qrels.from_judgments([("q", "d", 1), ("q", "d", 2)])


def test_queries_come_in_order_of_appearance() -> None:
    qrels = Qrels.from_judgments([("b", "x", 1), ("a", "x", 0), Judgment("b", "y", 2)])
    assert list(qrels.query_ids) == ["b", "a"]
    assert repr(qrels) == "Qrels(2 queries, 3 judgments, 2 positive)"


def test_an_unknown_query_has_no_judgments() -> None:
    assert Qrels.from_judgments([]).of("q") == {}


@given(JUDGMENTS, JUDGMENTS)
def test_fingerprints_tell_judgments_apart(one: dict[tuple[str, str], int], other: dict[tuple[str, str], int]) -> None:
    assert (make(one).fingerprint == make(other).fingerprint) == (one == other)


@pytest.mark.parametrize("grade", [0.5, 1.9, float("nan")])
def test_a_fraction_is_no_grade(grade: float) -> None:
    """Numbers would be cut to whole ones without a word: 0.5 to not relevant."""
    with pytest.raises(DataError, match=f"query 'q' judges document 'd' as {grade}"):
        Qrels.from_judgments([("q", "d", grade)])  # type: ignore[list-item]
    assert list(Qrels.from_judgments([("q", "d", 2.0)])) == [("q", "d", 2)]  # type: ignore[list-item]
