"""A new measure is one function in one file; the command, its help, its errors and the reference page follow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import r2med

EXAMPLE = '''@register("RBP", "rbp")
def rank_biased_precision(
    hits: HitsAt,
    cutoff: float,
    *,
    p: Annotated[float, Meta(gt=0, lt=1, description="chance that a reader goes on to the next rank")] = 0.8,
    rel: Rel = 1,
) -> Float64:
    """Rank-biased precision: relevant documents, each weighted by the chance that a reader gets to it."""
    found = hits(rel)
    return (1 - p) * found.sum(found.chance * p**found.rank, cutoff)


'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package with the measure added in front of the helpers of the others."""
    source = Path(r2med.__file__).parent
    shutil.copytree(source, tmp_path / "src" / "r2med", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        Path(__file__).parents[2] / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__")
    )
    path = tmp_path / "src" / "r2med" / "scoring" / "measures.py"
    before, marker, after = path.read_text("utf-8").partition("def _gains")
    path.write_text(before + EXAMPLE + marker + after, "utf-8")
    return tmp_path


def test_one_function_is_all_it_takes(package: Path) -> None:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": str(package / "src")}
        return subprocess.run(
            [sys.executable, *command], env=environment, cwd=package, capture_output=True, text=True, check=False
        )

    (package / "a.run").write_text("q Q0 x 1 3.0 r\nq Q0 y 2 2.0 r\nq Q0 z 3 1.0 r\n")
    (package / "a.qrels").write_text("q 0 x 1\nq 0 z 1\n")
    score = ("-m", "r2med", "score", "a.run", "a.qrels")
    done = run(*score, "-m", "RBP@10", "-m", "rbp(p=0.5)", "-m", "nDCG@10", "--json")
    assert done.returncode == 0, done.stderr
    measures = json.loads(done.stdout)["measures"]
    assert list(measures) == ["rbp_at_10", "rbp_p_0.5", "ndcg_at_10"]
    assert measures["rbp_at_10"] == pytest.approx(0.2 * (1 + 0.8**2))
    assert measures["rbp_p_0.5"] == pytest.approx(0.5 * (1 + 0.5**2))
    said = run("-m", "r2med", "score", "--help").stdout
    assert "RBP(p=0.8,rel=1)@k" in said
    assert "chance that a reader goes on" in said
    assert "did you mean RBP@10" in run(*score, "-m", "RPB@10").stderr
    assert "p of RBP must be a number" in run(*score, "-m", "RBP(p=2)@10").stderr
    assert run("tools/docs.py", "reference").returncode == 0
    page = (package / "reference" / "measures.md").read_text("utf-8")
    assert "Rank-biased precision" in page
    assert "stores nDCG, AP, R, P, RR, hit with" in page  # what is stored does not change
    ties = (
        "from r2med.core import Qrels, Run; from r2med.scoring.aware import evaluate_aware; "
        "run = Run.from_rankings({'q': [('x', 1.0), ('y', 1.0)]}); "
        "print(evaluate_aware(run, Qrels.from_judgments([('q', 'x', 1)]), ['RBP']).aware.mean('RBP'))"
    )
    assert float(run("-c", ties).stdout) == pytest.approx(0.2 * (1 + 0.8) / 2)
