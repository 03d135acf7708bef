from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import r2med
from r2med.core import DataError, Run
from r2med.core.run import write_run
from r2med.core.spec import Content
from r2med.retrieve.contract import on_task
from r2med.retrieve.stored import StoredRun, load_candidates, read_topk
from r2med.tasks import write_task
from tests.builders import small_task

TASK = small_task()


def topk(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def test_upstreams_lines(tmp_path: Path) -> None:
    path = topk(
        tmp_path / "small.jsonl",
        {"id": "q2", "topk_pid": [["d1", 0.5], ["d3", 0.75]]},
        {"id": "q1", "topk_pid": [["d2", 3]], "query": "ignored"},
    )
    run = load_candidates(path, TASK)
    assert run.name == "small"
    assert run.query_ids == TASK.query_ids
    assert [h.doc_id for h in run.of("q2")] == ["d3", "d1"]
    assert run.notes["candidates"] == {
        "name": "small",
        "queries_without": 0,
        "shortest": 1,
        "longest": 2,
    }


def test_lines_without_scores_keep_their_order(tmp_path: Path) -> None:
    run = load_candidates(topk(tmp_path / "a.jsonl", {"id": "q1", "topk_pid": ["d3", "d1", "d2"]}), TASK)
    assert [h.doc_id for h in run.of("q1")] == ["d3", "d1", "d2"]
    assert run.of("q2") == []


def test_trec_and_compressed(tmp_path: Path) -> None:
    run = Run.from_rankings({"q1": [("d1", 2.0), ("d2", 1.0)]}, name="mine")
    write_run(run, tmp_path / "r.run.gz")
    assert [h.doc_id for h in load_candidates(tmp_path / "r.run.gz", TASK).of("q1")] == ["d1", "d2"]
    packed = tmp_path / "t.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"id": "q1", "topk_pid": [["d1", 1]]}\n'))
    assert load_candidates(packed, TASK).lengths().tolist() == [1, 0]


def test_unknown_ids_are_refused_by_name(tmp_path: Path) -> None:
    path = topk(
        tmp_path / "x.jsonl",
        {"id": "q1", "topk_pid": [["d9", 5], ["d1", 4], ["d8", 3], ["d2", 2]]},
        {"id": "q7", "topk_pid": [["d1", 1]]},
    )
    with pytest.raises(DataError, match=r"x\.jsonl.*'q7'"):
        load_candidates(path, TASK)
    only_document = topk(tmp_path / "y.jsonl", {"id": "q1", "topk_pid": [["d9", 5]]})
    with pytest.raises(DataError, match="'d9'"):
        load_candidates(only_document, TASK)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b'{"id": "q1"}\n', "topk_pid"),
        (b'{"id": "q1", "topk_pid": [["d1", "high"]]}\n', "topk_pid"),
        (b'{"id": "q1", "topk_pid": [["d1"', "x.jsonl:1"),
        (b'{"id": "q1", "topk_pid": ["d1", ["d2", 0.5]]}\n', "x.jsonl:1.*some documents have a score and others none"),
        (b'{"id": "q1", "topk_pid": []}\n{"id": "q1", "topk_pid": []}\n', "stands twice"),
        (b'{"id": "q1", "topk_pid": [["d1", 1], ["d1", 2]]}\n', "twice"),
        (b"q1 Q0 d1 1\n", "expected 6 columns"),
        (b'\xff{"id"', "columns"),
    ],
)
def test_broken_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_candidates(path, TASK)


def test_two_files_of_one_task_are_refused(tmp_path: Path) -> None:
    """The compressed one was taken, whichever was newer."""
    lines = {"id": "q1", "topk_pid": [["d1", 1]]}
    topk(tmp_path / f"{TASK.name}.jsonl", lines)
    run = StoredRun(Content.of(tmp_path))
    assert run.retrieve(TASK).lengths().tolist() == [1, 0]
    (tmp_path / f"{TASK.name}.run").write_text("q1 Q0 d2 1 1.0 x\n")
    with pytest.raises(DataError, match=rf"holds two rankings of .*: {TASK.name}\.run and {TASK.name}\.jsonl"):
        StoredRun(Content.of(tmp_path)).retrieve(TASK)


@pytest.mark.parametrize("whole_folder", [True, False])
def test_a_ranking_that_changes_while_a_run_goes_on_is_refused(whole_folder: bool, tmp_path: Path) -> None:
    """It would be filed under the content that was there before."""
    (tmp_path / "mine").mkdir()
    file = topk(tmp_path / "mine" / f"{TASK.name}.jsonl", {"id": "q1", "topk_pid": ["d3", "d1"]})
    stored = StoredRun(Content.of(file.parent if whole_folder else file))
    stored.prepare(TASK)
    topk(file, {"id": "q1", "topk_pid": ["d1", "d3"]})
    with pytest.raises(DataError, match="has changed since this run began"):
        stored.prepare(TASK)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        load_candidates(tmp_path / "nothing", TASK)


def test_numbers_as_ids(tmp_path: Path) -> None:
    assert list(read_topk(topk(tmp_path / "n.jsonl", {"id": 7, "topk_pid": [[12, 1.5]]})).doc_ids) == ["12"]


def test_published_runs_are_candidates(shared_runs: Path) -> None:
    from r2med.core.run import read_run

    run = read_run(shared_runs / "e5-mistral.Biology.run.gz")
    assert run.lengths().max() == 100


def test_a_run_of_the_task_stays_itself() -> None:
    run = Run(TASK.query_ids, TASK.documents.ids, np.array([[0, 1], [2, -1]], np.int32), np.array([[2, 1], [1, -np.inf]], np.float32))  # fmt: skip  # noqa: E501
    assert on_task(run, TASK).docs is run.docs


def test_a_run_is_refused_where_its_result_is_of_other_data(tmp_path: Path) -> None:
    """A run of the same ids on another version of the data used to be taken."""
    write_run(Run.from_rankings({"q1": [("d1", 2.0)]}), tmp_path / "small.run.gz")
    beside = tmp_path / "small.json"
    for fingerprint, words in (
        (TASK.fingerprint, ""),
        ("0" * 32, "was made on own/small, whose data are not those of"),
    ):
        beside.write_text(json.dumps({"task": {"name": "small", "collection": "own", "fingerprint": fingerprint}}))
        for place in (tmp_path / "small.run.gz", tmp_path):
            stored = StoredRun(Content.of(place))
            if words:
                with pytest.raises(DataError, match=words) as caught:
                    stored.prepare(TASK)
                assert "\n" not in str(caught.value)
            else:
                assert stored.retrieve(TASK).of("q1")[0].doc_id == "d1"
    for other in ("[]", '{"task": "small"}', "not JSON"):  # somebody's own file
        beside.write_text(other)
        assert StoredRun(Content.of(tmp_path / "small.run.gz")).retrieve(TASK).lengths().tolist() == [1, 0]


@pytest.mark.parametrize("kind", ["nano", "MyNano", "Capital", "collection"])
def test_results_on_tasks_of_ones_own_are_candidates(kind: str, tmp_path: Path) -> None:
    """Whatever the folder is called: results on `nano~` and `MyNano` lie in folders with a hash."""
    folder, results, spec = tmp_path / kind, tmp_path / "results", str(tmp_path / kind)
    layout = "nano" if kind in ("nano", "MyNano") else "beir"
    write_task(r2med.load("mini@1/Biology"), folder, to=layout, split="One")
    if kind == "collection":
        r2med.add_collection("mine", f"Task={folder}")
        spec = "mine"
    first = r2med.run("bm25", tasks=spec, results=results).results[0]
    again = r2med.run(f"run:{results / 'bm25'}", tasks=spec, results=results).results[0]
    assert again.measures == first.measures
    assert again.task.full_name == first.task.full_name
