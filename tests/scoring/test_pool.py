from __future__ import annotations

import json
from pathlib import Path

import pytest

from r2med.core import DataError, Judgment, Qrels, ResultError, Run, UsageError
from r2med.scoring.pool import PoolEntry, build_pool, read_labels, write_pool
from tests.builders import small_task

QRELS = Qrels.from_judgments([("q1", "d1", 1), ("q2", "d3", 1)])
RUNS = {
    "one": Run.from_rankings({"q1": [("d1", 3.0), ("d2", 2.0), ("d3", 1.0)], "q2": [("d1", 1.0)]}),
    "two": Run.from_rankings({"q1": [("d3", 3.0), ("d2", 2.0)]}),
}


def test_the_pool_holds_each_hole_once() -> None:
    pool = build_pool(RUNS, QRELS, task=small_task())
    assert [(e.query_id, e.doc_id, e.best_rank, e.systems) for e in pool] == [
        ("q1", "d3", 1, ["one", "two"]),
        ("q1", "d2", 2, ["one", "two"]),
        ("q2", "d1", 1, ["one"]),
    ]
    assert (pool[0].task, pool[0].query, pool[0].passage) == ("small", "why does it hurt", "third\none")
    assert [e.doc_id for e in build_pool(RUNS, QRELS, depth=1)] == ["d3", "d1"]


@pytest.mark.parametrize("name", ["pool.tsv", "pool.jsonl"])
def test_labels_come_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    assert write_pool(build_pool(RUNS, QRELS, task=small_task()), path) == 3
    assert read_labels(path) == []  # nothing is filled in yet
    if path.suffix == ".tsv":
        rows = [line.split("\t") for line in path.read_text().splitlines()]
        assert rows[1][7] == "third one"
        rows[1][3], rows[3][3] = "1", "0"
        path.write_text("\n".join("\t".join(row) for row in rows) + "\n")
    else:
        records = [json.loads(line) for line in path.read_text().splitlines()]
        assert records[0]["passage"] == "third\none"
        records[0]["grade"], records[2]["grade"] = 1, 0
        path.write_text("".join(json.dumps(r) + "\n" for r in records))
    assert read_labels(path) == [("small", Judgment("q1", "d3", 1)), ("small", Judgment("q2", "d1", 0))]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a \.tsv or a \.jsonl"):
        write_pool([], tmp_path / "pool.xlsx")
    odd = PoolEntry(task="t", query_id="q\t1", doc_id="d")
    with pytest.raises(DataError, match="cannot stand in a table"):
        write_pool([odd], tmp_path / "pool.tsv")
    assert list(tmp_path.iterdir()) == []
    assert write_pool([odd], tmp_path / "pool.jsonl") == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match="cannot be written"):
        write_pool([], tmp_path / "file" / "pool.tsv")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.tsv", b"", "starts with the columns"),
        ("p.tsv", b"task\tquery_id\tdoc_id\tgrade\nt\tq\td\thigh\n", r"p.tsv:2: grade 'high'"),
        ("p.tsv", b"task\tquery_id\tdoc_id\tgrade\nt\tq\n", "expected at least 4 columns, got 2"),
        ("p.tsv", b"task\tquery_id\tdoc_id\tgrade\nt\tq\t\xff\t1\n", "UTF-8"),
        ("p.jsonl", b'{"task": "t"}\n', r"p.jsonl:1: not a pool entry"),
        ("p.jsonl", b"\n{broken\n", r"p.jsonl:2"),
        ("p.jsonl", b'{"task": "t", "query_id": "q", "doc_id": "d", "grade": 1.5}\n', "not a pool entry"),
    ],
)
def test_broken_labels_are_named(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_labels(tmp_path / name)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_labels(tmp_path / "none.tsv")
