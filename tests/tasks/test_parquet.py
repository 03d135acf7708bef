"""The three parquet layouts: what others write, and files that are not what they should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, IdTable, Run
from r2med.core.stores import open_store
from r2med.tasks import write_task
from r2med.tasks.formats.parquet import candidate_configs, read_candidates, write_candidates
from r2med.tasks.load import every_part, from_path
from tests.builders import load_path, small_task


def write(folder: Path, name: str, columns: dict[str, Any]) -> None:
    path = folder / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def hub_folder(folder: Path, **replaced: dict[str, Any]) -> Path:
    configs: dict[str, dict[str, Any]] = {
        "corpus": {"id": ["d1", "d2"], "text": ["one", "two"]},
        "query": {"id": ["q1"], "text": ["first"]},
        "qrels": {"q_id": ["q1"], "p_id": ["d1"], "score": [1]},
    }
    for config, columns in (configs | replaced).items():
        write(folder, f"{config}/{config}-00000-of-00001", columns)
    return folder


@pytest.mark.parametrize(
    ("layout", "files"),
    [
        ("hub", ["corpus/corpus", "qrels/qrels", "query/query"]),
        ("mteb", ["corpus/test", "qrels/test", "queries/test"]),
        ("nano", ["corpus/small", "qrels/small", "queries/small"]),
    ],
)
def test_files_have_the_names_of_the_hub(tmp_path: Path, layout: str, files: list[str]) -> None:
    write_task(small_task(), tmp_path, to=layout)
    written = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.parquet"))
    assert written == [f"{file}-00000-of-00001.parquet" for file in files]


@pytest.mark.parametrize("judgments", ["qrels/test", "data/test-00000-of-00001", "default/test"])
@pytest.mark.parametrize("split", ["test", "corpus"])
def test_mteb_as_others_upload_it(tmp_path: Path, judgments: str, split: str) -> None:
    write(tmp_path, f"corpus/{split}-00000-of-00002", {"_id": ["d1"], "title": [None], "text": ["one"]})
    write(
        tmp_path,
        f"corpus/{split}-00001-of-00002",
        {"_id": pa.array(["d2"], pa.large_string()), "title": ["T"], "text": ["two"]},
    )
    write(tmp_path, f"queries/{'queries' if split == 'corpus' else split}", {"_id": ["q1"], "text": ["first"]})
    write(tmp_path, judgments, {"query-id": ["q1", "q1"], "corpus-id": ["d1", "d2"], "score": [1.0, 2.0]})
    task = load_path(tmp_path)
    assert task.extra["layout"] == "mteb"
    assert list(task.documents) == [("d1", "one", ""), ("d2", "two", "T")]
    assert task.qrels.of("q1") == {"d1": 1, "d2": 2}


def test_mteb_with_several_splits(tmp_path: Path) -> None:
    """One corpus and one file of queries for all splits, as MTEB uploads them."""
    write(tmp_path / "set", "corpus/corpus", {"_id": ["d1", "d2"], "title": ["", ""], "text": ["one", "two"]})
    write(tmp_path / "set", "queries/queries", {"_id": ["q1", "q2"], "text": ["first", "second"]})
    for split, query in (("dev", "q1"), ("train", "q2")):
        write(tmp_path / "set", f"default/{split}", {"query-id": [query], "corpus-id": ["d1"], "score": [1]})
    refs = every_part(tmp_path / "set")
    assert [ref.name for ref in refs] == ["set@dev", "set@train"]
    assert [[q.id for q in ref.load().queries] for ref in refs] == [["q1"], ["q2"]]
    write(tmp_path / "set", "corpus/other", {"_id": ["d1"], "title": [""], "text": ["one"]})
    with pytest.raises(DataError, match="config 'corpus' has no split 'dev'"):
        refs[0].load()


def test_nano_under_data(tmp_path: Path) -> None:
    write_task(small_task(), tmp_path / "data", to="nano", split="NanoR2MEDBiology")
    (ref,) = from_path(tmp_path)
    assert ref.split == "NanoR2MEDBiology"
    assert ref.load().fingerprint == small_task().fingerprint


def test_nano_with_several_tasks(tmp_path: Path) -> None:
    for split in ("NanoR2MEDBiology", "NanoR2MEDMedQADiag", "Mine"):
        write_task(small_task(), tmp_path, to="nano", split=split)
    refs = from_path(tmp_path)
    assert {ref.split for ref in refs} == {"NanoR2MEDBiology", "NanoR2MEDMedQADiag", "Mine"}
    assert {ref.name for ref in refs} == {"Biology", "MedQA-Diag", "Mine"}
    with pytest.raises(DataError, match="holds no task 'Other'"):
        refs[0]._replace(split="Other").load()


def test_a_score_column_is_written_where_grades_differ_from_one(tmp_path: Path) -> None:
    write_task(small_task(), tmp_path, to="nano")
    assert "score" in pq.read_schema(tmp_path / "qrels" / "small-00000-of-00001.parquet").names
    table = hub_folder(tmp_path / "hub", qrels={"q_id": ["q1"], "p_id": ["d1"]})
    assert list(load_path(table).qrels) == [("q1", "d1", 1)]


DOC_IDS = [f"d{i}" for i in range(8)]
RANKINGS = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3"]), st.lists(st.sampled_from(DOC_IDS), unique=True), min_size=1
)


@given(RANKINGS)
def test_candidates_survive(rankings: dict[str, list[str]]) -> None:
    import tempfile

    run = Run.from_rankings(
        {q: [(d, -float(i)) for i, d in enumerate(docs)] for q, docs in rankings.items()}, doc_ids=IdTable(DOC_IDS)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_task(small_task(), folder, to="nano", split="Task")
        for config in ("bm25", "harrier_oss_v1_270m"):
            write_candidates(run, folder, config, "Task")
        store = open_store(folder)
        assert candidate_configs(store, "Task") == ["bm25", "harrier_oss_v1_270m"]
        back = read_candidates(store, "bm25", "Task", IdTable(["q1", "q2", "q3"]), IdTable(DOC_IDS))
        assert {q: [hit.doc_id for hit in hits] for q, hits in back} == rankings
        assert back.name == "bm25"
        assert load_path(folder).fingerprint == small_task().fingerprint


def test_candidates_that_do_not_fit(tmp_path: Path) -> None:
    write_task(small_task(), tmp_path, to="nano", split="Task")
    write(tmp_path, "bm25/Task", {"query-id": ["q1"], "corpus-ids": [["d1", "d9"]]})
    write(tmp_path, "twice/Task", {"query-id": ["q1", "q1"], "corpus-ids": [["d1"], ["d2"]]})
    write(tmp_path, "null/Task", {"query-id": ["q1"], "corpus-ids": pa.array([None], pa.list_(pa.string()))})
    write(tmp_path, "other/Task", {"query-id": ["q1"], "documents": [["d1"]]})
    write(tmp_path, "elsewhere/Task", {"query-id": ["q7"], "corpus-ids": [["d1"]]})
    write(tmp_path, "changed/Task", {"query-id": ["q1"], "corpus-ids": [["d1"]]})
    (tmp_path / "manifest.json").write_text('{"files": {"changed/Task.parquet": "e3b0c44298fc1c14"}}')
    store, known = open_store(tmp_path), (IdTable(["q1", "q2"]), IdTable(["d1", "d2", "d3"]))
    for config, message in (
        ("bm25", r"bm25/Task\.parquet: query 'q1' retrieves unknown document 'd9'"),
        ("twice", r"twice/Task\.parquet: query 'q1' stands twice"),
        ("null", r"null/Task\.parquet: row 1: column 'corpus-ids' holds no text"),
        ("other", r"other/Task\.parquet: has no column 'corpus-ids' \(columns: query-id, documents\)"),
        ("absent", "config 'absent' has no split 'Task'"),
        ("elsewhere", r"elsewhere/Task\.parquet: lists candidates of query 'q7', which is none of the task's"),
        ("changed", r"changed/Task\.parquet: is not the file that manifest\.json names: build the task again"),
    ):
        with pytest.raises(DataError, match=message):
            read_candidates(store, config, "Task", *known)


INVALID = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff"))
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("corpus", {"id": ["d1"], "body": ["one"]}, r"has no column 'text' \(columns: id, body\)"),
    ("corpus", {"id": ["d1", None], "text": ["one", "two"]}, "column 'id' has 1 empty cells"),
    ("corpus", {"id": ["d1", "d2"], "text": [None, None]}, "column 'text' has 2 empty cells"),
    ("corpus", {"id": [1, 2], "text": ["one", "two"]}, "column 'id' holds int64, expected text"),
    ("corpus", {"id": ["d1", "d2"], "text": INVALID}, "column 'text' is not valid UTF-8"),
    ("query", {"id": ["q1"], "text": [["a", "b"]]}, "column 'text' holds list<.*>, expected text"),
    ("query", {"id": ["q1"], "text": ["x"], "answer": [3]}, "column 'answer' holds int64, expected text"),
    ("qrels", {"q_id": ["q1"], "p_id": ["d1"], "score": [1.5]}, "grade 1.5 is not a whole number"),
    ("qrels", {"q_id": ["q1"], "p_id": ["d1"], "score": pa.array([None], pa.int32())}, "grade None is not a whole"),
    ("qrels", {"q_id": ["q1"], "p_id": ["d1"], "score": ["high"]}, "column 'score' holds string, expected whole"),
    ("qrels", {"q_id": ["q1"], "p_id": ["d1"], "score": [2**40]}, "grade 1099511627776 is out of range"),
    ("qrels", {"q_id": ["q1"], "p_id": ["d1"], "relevance": [0]}, "has no column 'score', but 'relevance': rename"),
    ("qrels", {"q_id": ["q1"] * 2, "p_id": ["d1"] * 2, "score": [1, 2]}, "query 'q1' judges document 'd1' twice"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "columns", "message"), BAD)
def test_a_column_that_is_not_what_it_should_be(
    tmp_path: Path, config: str, columns: dict[str, Any], message: str
) -> None:
    folder = hub_folder(tmp_path, **{config: columns})
    with pytest.raises(DataError, match=rf"{config}/{config}-00000-of-00001\.parquet: {message}"):
        load_path(folder)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"garbage" * 100, b"PAR1" + b"\xff" * 50 + b"\x10\0\0\0PAR1"])
def test_a_file_that_is_no_parquet(tmp_path: Path, content: bytes) -> None:
    path = hub_folder(tmp_path) / "query" / "query-00000-of-00001.parquet"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"query-00000-of-00001\.parquet: not a readable parquet file"):
        load_path(tmp_path)


def test_a_truncated_parquet(tmp_path: Path) -> None:
    path = hub_folder(tmp_path) / "corpus" / "corpus-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"corpus-00000-of-00001\.parquet: not a readable parquet file"):
        load_path(tmp_path)


def test_shards_that_do_not_fit_each_other(tmp_path: Path) -> None:
    path = hub_folder(tmp_path) / "corpus" / "corpus-00000-of-00001.parquet"
    path.rename(path.with_name("corpus-00000-of-00002.parquet"))
    write(tmp_path, "corpus/corpus-00001-of-00002", {"id": [1], "text": [2]})
    with pytest.raises(DataError, match=r"corpus-0000\d-of-00002\.parquet: not a readable parquet file"):
        load_path(tmp_path)


@pytest.mark.parametrize(
    ("kept", "added", "message"),
    [
        ("00000-of-00002", [], r"corpus-00000-of-00002\.parquet: is one of 2 files, of which number 00001 is missing"),
        ("00002-of-00003", ["00001-of-00003"], r"is one of 3 files, of which number 00000 is missing"),
        ("00000-of-00001", ["00000-of-00002", "00001-of-00002"], "do not belong to one set of files"),
        ("00000-of-00001", ["00001-of-00001"], "do not belong to one set of files"),
        ("00000-of-00001", [""], "do not belong to one set of files"),
    ],
)
def test_a_split_that_is_not_there_whole_or_is_there_twice(
    tmp_path: Path, kept: str, added: list[str], message: str
) -> None:
    """A download that stopped half-way, or files of an earlier upload beside those of a later one."""
    path = hub_folder(tmp_path) / "corpus" / "corpus-00000-of-00001.parquet"
    path.rename(path.with_name(f"corpus-{kept}.parquet"))
    for place, shard in enumerate(added):
        write(tmp_path, f"corpus/corpus{shard and '-'}{shard}", {"id": [f"e{place}"], "text": ["three"]})
    with pytest.raises(DataError, match=message):
        load_path(tmp_path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": ["q1"], "hy_doc": pa.array([None], pa.string())}, "row 1: column 'hy_doc' holds no text"),
        ({"id": ["q1"], "hy_doc": [7]}, "row 1: column 'hy_doc' holds no text"),
        ({"id": ["q1", "q1"], "hy_doc": ["a", "b"]}, "query 'q1' stands twice"),
        ({"id": ["q1"]}, "has no column 'hy_doc'"),
    ],
)
def test_broken_expansions(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    write(hub_folder(tmp_path), "hyde/gpt4", columns)
    (ref,) = from_path(tmp_path)
    with pytest.raises(DataError, match=rf"hyde/gpt4\.parquet: {message}"):
        list(ref.expansions())


def test_judgments_without_grades_count_one(tmp_path: Path) -> None:
    """A frame of pandas may have written its index beside them."""
    columns = {"q_id": ["q1"], "p_id": ["d2"], "__index_level_0__": [7]}
    assert list(load_path(hub_folder(tmp_path, qrels=columns)).qrels) == [("q1", "d2", 1)]
