"""What a run and its judgments do not share is counted and said, never dropped in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from r2med.cli.score import command
from r2med.core import DataError


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "a.run").write_text("q1 Q0 d9 1 1.0 x\nq1 Q0 d1 2 3.0 x\nq7 Q0 d1 1 1.0 x\n")
    (tmp_path / "a.qrels").write_text("q1 0 d1 1\nq2 0 d2 1\nq3 0 d3 0\n")
    return str(tmp_path / "a.run"), str(tmp_path / "a.qrels")


def test_missing_and_unjudged_queries_are_counted(files: tuple[str, str]) -> None:
    found = json.loads(CliRunner().invoke(command, [*files, "--json"]).stdout)
    assert (found["queries"], found["missing_queries"], found["unjudged_queries"]) == (3, 2, 1)
    assert found["queries_without_positives"] == 1
    assert found["measures"]["ndcg_at_10"] == pytest.approx(1 / 3)  # by score, whatever the rank column says
    said = CliRunner().invoke(command, list(files)).stderr
    assert "2 of them missing from the run" in said
    assert "1 queries of the run have no judgments" in said


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("", "holds no rankings"),
        ("q1 Q0 d1 1 2.0 x\nq1 Q0 d1 2 1.0 x\n", "retrieves document 'd1' twice"),
        ("q1 Q0 d1 1 nan x\n", "not a number"),
        ("q1 Q0 d1 1\n", "expected 6 columns"),
    ],
)
def test_runs_that_cannot_be_scored(files: tuple[str, str], run: str, words: str) -> None:
    Path(files[0]).write_text(run)
    with pytest.raises(DataError, match=words):
        command.main(list(files), standalone_mode=False)
