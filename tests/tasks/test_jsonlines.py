"""Layouts of JSON lines, R2MED's own and BEIR's, in the shapes in which they are found."""

from __future__ import annotations

import gzip
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from r2med.core import DataError, Document, Documents, Qrels, Query, Task
from r2med.tasks import convert, load, write_task
from r2med.tasks.load import every_part, from_path
from r2med.tasks.validate import validate
from tests.builders import QRELS, beir_folder, lines, load_path, r2med_folder, small_task

BEIR_CORPUS = lines(
    [{"_id": "d1", "title": "T", "text": "one", "metadata": {}}, {"_id": "d2", "title": "", "text": "two"}]
)
BEIR_QUERIES = lines([{"_id": f"q{i}", "text": f"query {i}", "metadata": {"x": 1}} for i in range(1, 5)])


def zipped(folder: Path, path: Path, inside: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            archive.write(file, inside + file.relative_to(folder).as_posix())
    return path


def test_the_files_are_those_of_the_repository(tmp_path: Path) -> None:
    write_task(small_task(), tmp_path, to="r2med")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus.jsonl", "qrels.jsonl", "query.jsonl"]
    first = {p.stem: json.loads(p.read_text().splitlines()[0]) for p in tmp_path.iterdir()}
    assert first == {
        "corpus": {"id": "d1", "text": "a first text"},
        "query": {
            "id": "q1",
            "text": "why does it hurt",
            "doc_id": ["d1", "d2"],
            "answer": "inflammation",
            "body_system": "Nervous",
        },
        "qrels": {"q_id": "q1", "p_id": "d1", "score": 1},
    }


@pytest.mark.parametrize("inside", ["", "small/", "data/R2MED/small/"])
def test_the_zip_of_a_task(tmp_path: Path, inside: str) -> None:
    write_task(small_task(), tmp_path / "a", to="r2med", compress="gz")
    task = load_path(zipped(tmp_path / "a", tmp_path / "Small Task.zip", inside))
    assert task.name == "Small Task"
    assert task.fingerprint == small_task().fingerprint
    assert load(str(tmp_path / "Small Task.zip")).fingerprint == task.fingerprint


def test_a_zip_made_on_a_mac_or_with_backslashes(tmp_path: Path) -> None:
    write_task(small_task(), tmp_path / "a", to="r2med")
    path = zipped(tmp_path / "a", tmp_path / "t.zip", "small\\")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/small/._corpus.jsonl", b"\0\5")
    assert load_path(path).fingerprint == small_task().fingerprint


def test_a_folder_of_zips(tmp_path: Path) -> None:
    write_task(small_task(), tmp_path / "a", to="r2med")
    (tmp_path / "all").mkdir()
    for name in ("x.zip", "y.zip"):
        zipped(tmp_path / "a", tmp_path / "all" / name)
    assert [ref.name for ref in from_path(tmp_path / "all")] == ["x", "y"]
    (tmp_path / "all" / "z.zip").write_bytes(b"PK broken")
    with pytest.raises(DataError, match=r"z\.zip: not a readable zip file"):
        from_path(tmp_path / "all")


@pytest.mark.parametrize(
    "content",
    [
        b"q1 0 d1 1\nq2 0 d2 1\n",
        b"q1\t0\td1\t1\r\nq2\t0\td2\t1\r\n",
        b"q1\td1\t1\nq2\td2\t1\n",
        b"q_id\tp_id\tscore\nq1\td1\t1\n\nq2\td2\t1.0",
        b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n",
        lines(QRELS),
        lines({"query-id": q["q_id"], "corpus-id": q["p_id"], "score": 1.0} for q in QRELS),
        lines({"query-id": q["q_id"], "corpus-id": q["p_id"]} for q in QRELS),
    ],
)
def test_judgments_as_text(tmp_path: Path, content: bytes) -> None:
    expected = load_path(r2med_folder(tmp_path / "a")).qrels
    folder = r2med_folder(tmp_path / "b")
    (folder / "qrels.jsonl").unlink()
    (folder / "qrels.txt").write_bytes(content)
    assert load_path(folder).qrels == expected


def test_tabs_keep_the_spaces_inside_ids(tmp_path: Path) -> None:
    folder = r2med_folder(
        tmp_path,
        queries=lines([{"id": "q 1", "text": "x"}]),
        qrels=b"q 1\td1\t1\n",
    )
    assert load_path(folder).qrels.of("q 1") == {"d1": 1}


def test_an_id_may_be_called_like_a_field(tmp_path: Path) -> None:
    queries = lines([{"id": "query-id", "text": "x"}, {"id": "_id", "text": "y"}])
    qrels = lines([{"q_id": "query-id", "p_id": "d1", "score": 1}])
    assert load_path(r2med_folder(tmp_path, queries=queries, qrels=qrels)).qrels.of("query-id") == {"d1": 1}


def test_blank_lines_and_unknown_fields_are_passed_over(tmp_path: Path) -> None:
    corpus = b'\n{"id": "d1", "text": "one", "meta": {"x": [1]}}\r\n  \n{"id": "d2", "text": "two", "title": null}'
    task = load_path(r2med_folder(tmp_path, corpus=corpus))
    assert list(task.documents.texts) == ["one", "two"]
    assert task.documents.titles is None


def folder_with(folder: Path, **qrels: bytes) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_bytes(BEIR_CORPUS)
    (folder / "queries.jsonl").write_bytes(BEIR_QUERIES)
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


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_folder_of_two_layouts_is_refused(tmp_path: Path, suffix: str) -> None:
    """The queries and judgments of one were used, and nobody heard of the others."""
    folder = beir_folder(tmp_path / "set", test="q1\td1\t1\n")
    r2med_folder(tmp_path / "other")
    for name in ("query.jsonl", "qrels.jsonl"):
        shutil.copy(tmp_path / "other" / name, folder)
    if suffix:
        (folder / "queries.jsonl.gz").write_bytes(gzip.compress((folder / "queries.jsonl").read_bytes()))
        (folder / "queries.jsonl").unlink()
    with pytest.raises(DataError, match=rf"query\.jsonl and queries\.jsonl{suffix} are the queries of two layouts"):
        load_path(folder)


def test_without_judgments(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no qrels/test\.tsv"):
        load_path(folder_with(tmp_path))


@pytest.mark.parametrize("bad", ["a\tb", "a\nb", " a", "", '"a', '"a"'])
def test_an_id_that_tsv_cannot_carry_is_refused(tmp_path: Path, bad: str) -> None:
    task = Task("t", (Query(bad, "x"),), Documents.of([Document("d", "text")]), Qrels.from_judgments([(bad, "d", 1)]))
    with pytest.raises(DataError, match="cannot stand in a tab-separated file"):
        write_task(task, tmp_path, to="beir")


def test_a_query_without_judgments_survives(tmp_path: Path) -> None:
    queries = (Query("q1", "x"), Query("q2", "y"))
    task = Task("t", queries, Documents.of([Document("d", "text")]), Qrels.from_judgments([("q1", "d", 1)]))
    write_task(task, tmp_path, to="beir")
    assert load_path(tmp_path).queries == queries


def test_judgments_of_any_split_lie_in_qrels(tmp_path: Path) -> None:
    """Beside the corpus only the usual names are judgments; in `qrels` other tables are, but no notes."""
    folder = folder_with(tmp_path, fold1_tsv=b"q1\td2\t1\n", dev_jsonl=b'{"query-id": "q1", "corpus-id": "d1"}\n')
    (folder / "qrels" / "README.txt").write_text("what the folds are")
    (folder / "notes.tsv").write_text("q1\td1\t1\n")
    assert [ref.name.rpartition("@")[2] for ref in every_part(folder)] == ["dev", "fold1"]
    (ref,) = from_path(folder, "fold1")
    assert list(ref.load().qrels) == [("q1", "d2", 1)]


@pytest.mark.parametrize("to", ["beir", "mteb"])
def test_a_split_keeps_its_name_where_the_layout_has_one(tmp_path: Path, to: str) -> None:
    """Judgments of dev that were written as test would pass for the test set."""
    folder = folder_with(tmp_path / "a", test_tsv=b"q2\td1\t1\n", fold1_tsv=b"q1\td2\t1\n")
    for split in ("fold1", "test"):
        (before,) = from_path(folder, split)
        convert([before], tmp_path / to / split, to=to)
        (after,) = from_path(tmp_path / to / split)
        assert after.name == ("fold1@fold1" if split == "fold1" else "test")
        assert after.load().fingerprint == before.load().fingerprint


@pytest.mark.parametrize(
    ("file", "twin"),
    [
        ("corpus.jsonl", "corpus.jsonl.gz"),
        ("queries.jsonl", "queries.jsonl.gz"),
        ("qrels/test.tsv", "qrels/test.tsv.gz"),
        ("qrels/test.tsv", "test.tsv"),
        ("qrels/test.tsv", "qrels/test.jsonl"),
    ],
)
def test_a_file_that_is_there_twice_is_refused(tmp_path: Path, file: str, twin: str) -> None:
    """Judgments were read from the compressed file and documents from the plain one, without a word."""
    write_task(small_task(), tmp_path / "t", to="beir")
    (tmp_path / "t" / twin).write_bytes((tmp_path / "t" / file).read_bytes())
    with pytest.raises(DataError, match=r"(in two forms|are both judgments of test): keep one"):
        load(tmp_path / "t")


def test_two_files_of_different_judgments_are_refused(tmp_path: Path) -> None:
    """The first was read, and the other one not looked at."""
    write_task(small_task(), tmp_path / "t", to="r2med")
    rows = [f"{q} 0 {d} {grade}\n" for q, d, grade in small_task().qrels]
    (tmp_path / "t" / "qrels.txt").write_text("".join(reversed(rows)))
    assert load(tmp_path / "t").fingerprint == small_task().fingerprint
    (tmp_path / "t" / "qrels.txt").write_text("".join(rows[1:]))
    with pytest.raises(DataError, match=r"qrels\.jsonl and qrels\.txt hold different judgments: keep one"):
        load(tmp_path / "t")
    assert [finding.code for finding in validate(from_path(tmp_path / "t")[0]).errors] == ["bad-judgments"]
