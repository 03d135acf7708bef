"""Runs scored again: true results are verified, false ones are not, and what cannot be judged says why."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import r2med
from r2med.core import Run
from r2med.core.files import home
from r2med.report.submissions import Judgments, Verdict, verify
from r2med.results import ResultIndex
from r2med.results.beside import write_blocks
from tests.builders import QRELS, lines, other_folder, r2med_folder
from tests.results.sealing import edit


def verdicts(results: Path, *folders: Path) -> list[Verdict]:
    return verify(ResultIndex([results]).select(), Judgments(folders))


@pytest.fixture
def biology(tmp_path: Path) -> Path:
    r2med.run("bm25", tasks="mini@1/Biology", results=tmp_path / "results")
    return tmp_path / "results"


def the_file(results: Path) -> Path:
    (path,) = results.glob("*/*/*.json")
    return path


def test_true_results_are_verified_in_their_order(mini_results: Path) -> None:
    stored = ResultIndex([mini_results]).select()
    told: list[tuple[int, int]] = []
    found = verify(stored, Judgments(), lambda done, total: told.append((done, total)))
    assert [(v.system, v.task) for v in found] == [(s.system, s.full_name) for s in stored]
    assert {v.status for v in found} == {"verified"}
    assert told[-1] == (len(stored), len(stored))


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("recall_micro_at_10", lambda d: d["measures"].update(recall_micro_at_10=0.75)),
        ("judged_at_10", lambda d: d.update(judged_at_10=1.0)),
        ("missing_queries", lambda d: d.update(missing_queries=1)),
        ("documents", lambda d: d["task"].update(documents=85)),
        ("depth", lambda d: d.update(depth=5)),
    ],
)
def test_a_number_that_is_not_true(biology: Path, what: str, change: object) -> None:
    edit(the_file(biology), change)  # type: ignore[arg-type]
    (verdict,) = verdicts(biology)
    assert verdict.status == "differs"
    assert [difference.what for difference in verdict.differences] == [what]
    assert verdict.reason.startswith(f"{what} is ")


def test_a_query_whose_score_was_moved_to_another(biology: Path) -> None:
    """The mean stays what it was."""
    path = the_file(biology)
    scored = [json.loads(line) for line in path.with_suffix(".queries.jsonl").read_text().splitlines()]
    one, other = scored[0]["measures"], next(s["measures"] for s in scored if s["measures"] != scored[0]["measures"])
    one["ndcg_at_10"], other["ndcg_at_10"] = other["ndcg_at_10"], one["ndcg_at_10"]
    path.with_suffix(".queries.jsonl").write_bytes(lines(scored))
    edit(path, lambda document: document["files"].pop(".queries.jsonl"))
    (verdict,) = verdicts(biology)
    assert (verdict.status, len(verdict.differences)) == ("differs", 2)
    assert {difference.query for difference in verdict.differences} >= {"Biology-q01"}


@pytest.mark.parametrize(
    ("query", "doc", "message"),
    [("Biology-q01", "nowhere", "unknown document 'nowhere'"), ("q0", "Biology-d001", "that the task does not: 'q0'")],
)
def test_a_run_over_something_else(biology: Path, query: str, doc: str, message: str) -> None:
    path = the_file(biology)
    ids = r2med.load("mini@1/Biology").documents.ids
    run = Run.from_rankings({query: [(doc if doc == "nowhere" else ids[0], 1.0)]})
    digest = write_blocks(run, path.with_suffix(".run.gz"))
    edit(path, lambda document: document["files"].update({".run.gz": digest}))
    (verdict,) = verdicts(biology)
    assert verdict.status == "differs"
    assert message in verdict.reason


def test_other_data_and_the_data_of_another_task(biology: Path) -> None:
    edit(the_file(biology), lambda document: document["task"].update(fingerprint="0" * 32))
    (verdict,) = verdicts(biology)
    assert verdict.status == "unverified"
    assert verdict.reason == "mini@1/Biology on this machine is not what these results were made on."
    content = r2med.load("mini@1/PMC-Clinical").fingerprint
    edit(the_file(biology), lambda document: document["task"].update(fingerprint=content))
    (verdict,) = verdicts(biology)
    assert (verdict.status, verdict.reason) == ("differs", "was made on the data of mini@1/PMC-Clinical")


def test_a_task_that_was_not_downloaded(biology: Path) -> None:
    edit(the_file(biology), lambda document: document["task"].update(collection="r2med", revision="x"))
    (verdict,) = verdicts(biology)
    assert verdict.status == "unverified"
    assert "r2med data download" in verdict.reason


def test_folders_of_ones_own_are_known_by_content(tmp_path: Path) -> None:
    folder, results = r2med_folder(tmp_path / "cases"), tmp_path / "results"
    r2med.run("bm25", tasks=str(folder), results=results)
    assert [v.status for v in verdicts(results)] == ["verified"]  # the place is remembered
    shutil.rmtree(home() / "places")
    assert [v.status for v in verdicts(results)] == ["unverified"]
    moved = shutil.move(folder, tmp_path / "renamed")
    assert [v.status for v in verdicts(results, Path(moved))] == ["verified"]
    other = other_folder(tmp_path / "elsewhere" / "cases")
    assert [v.status for v in verdicts(results, other)] == ["unverified"]
    assert [v.status for v in verdicts(results, other, Path(moved))] == ["verified"]
    r2med.add_collection("mine", str(moved))
    shutil.rmtree(home() / "places", ignore_errors=True)
    assert [v.status for v in verdicts(results)] == ["verified"]


def test_other_judgments_are_other_data(tmp_path: Path) -> None:
    folder, results = r2med_folder(tmp_path / "cases"), tmp_path / "results"
    r2med.run("bm25", tasks=str(folder), results=results)
    r2med_folder(folder, qrels=lines([*QRELS, {"q_id": "q1", "p_id": "d2", "score": 1}]))
    (verdict,) = verdicts(results, folder)
    assert verdict.status == "unverified"
    assert "is not what these results were made on" in verdict.reason
