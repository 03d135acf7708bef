"""`r2med.run` and `r2med.compare`: the command line's job as function calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import r2med
from r2med.core import Unavailable, UnknownName, UsageError


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_run_gives_the_numbers_of_the_command(tmp_path: Path) -> None:
    scores = r2med.run("bm25", "bm25-lucene", tasks=["mini/Biology", "mini/MedQA-Diag"], fuse="rrf")
    command = [sys.executable, "-m", "r2med", "run", "-r", "bm25", "-r", "bm25-lucene", "--fuse", "rrf", "--json"]
    done = subprocess.run([*command, "-t", "mini/Biology,mini/MedQA-Diag"], capture_output=True, check=True)
    assert json.loads(done.stdout) == json.loads(json.dumps(scores.to_dict())), "and the stored results were taken"
    assert [row.system for row in scores.table.rows] == ["bm25", "bm25-lucene", "bm25+bm25-lucene.rrf"]
    assert f"{100 * scores.table.rows[0].tasks['mini/Biology']:.2f}" in repr(scores)
    assert scores.to_markdown().startswith("| System |")
    assert "R@100" in repr(scores.by("R@100"))
    assert scores.rows()[0].keys() >= {"system", "task", "queries", "ndcg_at_10"}


def test_the_default_systems(tmp_path: Path) -> None:
    assert r2med.run(tasks="mini/Biology").table.rows[0].system == "bm25"


def test_an_object_is_a_system() -> None:
    scores = r2med.run(r2med.BM25(k1=1.2, name="mine"), "bm25", tasks="mini/Biology", fuse="rrf")
    assert [row.system for row in scores.table.rows] == ["mine", "bm25", "mine+bm25.rrf"]


def test_compare_stored_systems_and_evaluations() -> None:
    r2med.run("bm25", "bm25-lucene", tasks="mini/Biology")
    stored = r2med.compare("bm25", "bm25-lucene", resamples=500)
    task = r2med.load("mini/Biology")
    fresh = r2med.compare({name: r2med.evaluate(name, task) for name in ("bm25", "bm25-lucene")}, resamples=500)
    assert stored.pairs[0].macro.difference == pytest.approx(fresh.pairs[0].macro.difference, abs=1e-12)
    assert stored.pairs[0].moved[0].snippet
    assert "bm25-lucene minus bm25" in stored._repr_html_()


def test_mistakes() -> None:
    with pytest.raises(UnknownName, match="did you mean bm25"):
        r2med.run("bm26")
    with pytest.raises(Unavailable, match="not on this machine"):
        r2med.run("bm25", tasks="r2med/Biology")
    with pytest.raises(UsageError):
        r2med.run(3)
    with pytest.raises(UsageError, match="two retrievers are called 'bm25'"):
        r2med.run(r2med.BM25(k1=2), "bm25")
    with pytest.raises(UnknownName, match="unknown option 'devise'; did you mean device"):
        r2med.run("bm25", tasks="mini/Biology", devise="cpu")
    with pytest.raises(UsageError, match="no tasks"):
        r2med.run("bm25", tasks=[])
    task = r2med.load("mini/Biology")
    for given in (task, [task]):
        with pytest.raises(UsageError, match=r"names or folders, not mini/Biology itself: r2med\.evaluate"):
            r2med.run("bm25", tasks=given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="two or more names"):
        r2med.compare("bm25")
    with pytest.raises(UsageError, match="is no evaluation"):
        r2med.compare({"a": 1, "b": 2})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="unknown setting 'resample'"):
        r2med.compare("a", "b", resample=3)
