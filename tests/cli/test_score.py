"""What a run and its judgments do not share is counted and said, never dropped in silence."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from r2med.cli.score import score as command
from r2med.core import DataError
from r2med.scoring import USUAL
from r2med.scoring.measures import definitions


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
    assert "2 of 3 queries are missing from the run and scored 0" in said
    assert "1 query of the run without judgments did not count" in said


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


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The real command."""
    command = [sys.executable, "-m", "r2med", "score", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def test_measures_with_parameters(files: tuple[str, str], tmp_path: Path) -> None:
    Path(files[1]).write_text("q1 0 d1 1\nq1 0 d9 3\nq2 0 d2 1\n")
    asked = ("-m", "R(rel=2)@100", "-m", "nDCG(dcg='exp-log2')@10", "-m", "P@2")
    found = json.loads(run(*files, *asked, "--json", "--per-query", cwd=tmp_path).stdout)
    assert found["measures"]["recall_rel_2_at_100"] == 0.5
    assert list(found["measures"]) == ["recall_rel_2_at_100", "ndcg_dcg_exp_at_10", "precision_at_2"]
    assert found["per_query"]["q1"]["precision_at_2"] == 1.0
    expected = (1 + 7 / math.log2(3)) / (7 + 1 / math.log2(3))
    assert found["per_query"]["q1"]["ndcg_dcg_exp_at_10"] == pytest.approx(expected)
    table = run(*files, *asked, "--per-query", cwd=tmp_path).stdout
    for words in ("R(rel=2)@100", "nDCG(dcg=exp)@10", "50.00", f"{100 * expected:.2f}", "Scores × 100"):
        assert words in table


def test_the_default_table_shows_the_usual_measures(files: tuple[str, str]) -> None:
    shown = CliRunner().invoke(command, list(files)).stdout
    assert shown.split()[: len(USUAL)] == [str(measure) for measure in USUAL]
    assert shown.splitlines()[2].split()[:2] == ["a.run", "33.33"]
    assert shown.splitlines()[3] == "Scores × 100, means over 3 queries."
    stored = json.loads(CliRunner().invoke(command, [*files, "--json"]).stdout)["measures"]
    assert len(stored) == 54 + 9
    assert stored["recall_micro_at_10"] == 0.5


def test_judged_documents_stand_beside_every_score(files: tuple[str, str]) -> None:
    Path(files[0]).write_text("q1 Q0 new 1 3 x\nq1 Q0 d1 2 2 x\nq2 Q0 d2 1 1 x\n")
    Path(files[1]).write_text("q1 0 d1 1\nq2 0 d2 1\n")
    plain = json.loads(CliRunner().invoke(command, [*files, "-m", "RR", "--json"]).stdout)
    alone = json.loads(CliRunner().invoke(command, [*files, "-m", "RR", "--condensed", "--json"]).stdout)
    assert (plain["measures"]["mrr"], alone["measures"]["mrr"]) == (0.75, 1.0)
    assert plain["judged_at_10"] == alone["judged_at_10"] == 0.75
    assert (plain["condensed"], alone["condensed"]) == (False, True)
    assert "judged@10 75 %" in CliRunner().invoke(command, list(files)).stderr


def test_help_lists_every_measure(tmp_path: Path) -> None:
    said = run("--help", cwd=tmp_path).stdout
    for definition in definitions():
        assert definition.shape in said
        assert definition.summary in said
        assert all(parameter.help in said for parameter in definition.parameters.values())


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        ("nDGC@10", "unknown measure 'nDGC@10'; did you mean nDCG@10"),
        ("nDCG(dgc=exp)@10", "nDCG has no parameter 'dgc'; did you mean dcg?"),
        ("R(rel=none)@10", "rel of R must be a number of at least 1, not 'none'"),
    ],
)
def test_a_measure_that_is_not_there_is_one_line(files: tuple[str, str], measure: str, words: str) -> None:
    done = run(*files, "-m", measure, cwd=Path(files[0]).parent)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
