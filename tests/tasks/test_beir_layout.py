"""BEIR's layout and MTEB's JSON lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.core import DataError, Document, Documents, Qrels, Query, Task
from r2med.tasks import write_task
from tests.builders import lines, load_path, small_task

CORPUS = lines([{"_id": "d1", "title": "T", "text": "one", "metadata": {}}, {"_id": "d2", "title": "", "text": "two"}])
QUERIES = lines([{"_id": f"q{i}", "text": f"query {i}", "metadata": {"x": 1}} for i in range(1, 5)])


def folder_with(folder: Path, **qrels: bytes) -> Path:
    (folder / "qrels").mkdir()
    (folder / "corpus.jsonl").write_bytes(CORPUS)
    (folder / "queries.jsonl").write_bytes(QUERIES)
    for name, content in qrels.items():
        (folder / "qrels" / name.replace("_", ".")).write_bytes(content)
    return folder


def test_the_files_are_those_of_beir(tmp_path: Path) -> None:
    write_task(small_task(), tmp_path, to="beir")
    assert (tmp_path / "qrels" / "test.tsv").read_text().splitlines()[:2] == ["query-id\tcorpus-id\tscore", "q1\td1\t1"]
    assert (tmp_path / "corpus.jsonl").read_text().startswith('{"_id":"d1","title":"","text":"a first text"}\n')


def test_the_test_split_and_its_queries_are_the_task(tmp_path: Path) -> None:
    header = b"query-id\tcorpus-id\tscore\n"
    folder = folder_with(
        tmp_path, dev_tsv=header + b"q3\td1\t1\n", test_tsv=header + b"q2\td1\t2\n", train_tsv=header + b"q4\td1\t1\n"
    )
    task = load_path(folder)
    assert [q.id for q in task.queries] == ["q2"]
    assert task.qrels.of("q2") == {"d1": 2}
    assert task.documents[0] == Document("d1", "one", "T")


@pytest.mark.parametrize("name", ["test_tsv", "test_jsonl", "dev_tsv"])
def test_one_split_of_any_kind(tmp_path: Path, name: str) -> None:
    content = lines([{"query-id": "q1", "corpus-id": "d2", "score": 1}]) if "json" in name else b"q1\td2\t1\n"
    task = load_path(folder_with(tmp_path, **{name: content}))
    assert list(task.qrels) == [("q1", "d2", 1)]


def test_qrels_beside_the_corpus_as_mteb_writes_them(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    (folder / "qrels").rmdir()
    (folder / "qrels.jsonl").write_bytes(lines([{"query-id": "q1", "corpus-id": "d2", "score": 1.0}]))
    assert list(load_path(folder).qrels) == [("q1", "d2", 1)]


def test_without_judgments(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no qrels/test\.tsv"):
        load_path(folder_with(tmp_path))


@pytest.mark.parametrize("bad", ["a\tb", "a\nb", " a", ""])
def test_an_id_that_tsv_cannot_carry_is_refused(tmp_path: Path, bad: str) -> None:
    task = Task("t", (Query(bad, "x"),), Documents.of([Document("d", "text")]), Qrels.from_judgments([(bad, "d", 1)]))
    with pytest.raises(DataError, match="cannot stand in a tab-separated file"):
        write_task(task, tmp_path, to="beir")


def test_a_query_without_judgments_survives(tmp_path: Path) -> None:
    queries = (Query("q1", "x"), Query("q2", "y"))
    task = Task("t", queries, Documents.of([Document("d", "text")]), Qrels.from_judgments([("q1", "d", 1)]))
    write_task(task, tmp_path, to="beir")
    assert load_path(tmp_path).queries == queries
