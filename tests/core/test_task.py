from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from r2med.core import Document, Documents, Qrels, Query, Task
from tests.builders import small_task, tasks


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
