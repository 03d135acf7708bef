"""The notebook in examples/ runs from top to bottom in a kernel of its own, offline."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"
WEIGHTS = Path(os.environ.get("R2MED_HOME", "")) / "models" / "bge-small"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and a kernel that is this interpreter, whatever kernels the machine has."""
    spec = tmp_path / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    about = {"argv": command, "display_name": "Python 3", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(about))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    work = tmp_path / "work"
    work.mkdir()
    return work


def outputs(cell: Any, kind: str) -> list[str]:
    return [o["data"][kind] for o in cell.get("outputs", ()) if kind in o.get("data", {})]


@pytest.mark.filterwarnings("default")
def test_it_runs_with_words_alone(kernel: Path) -> None:
    assert "bm25-lucene" in execute(kernel)[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.skipif(not WEIGHTS.is_dir(), reason="bge-small is not in R2MED_HOME")
def test_it_runs_with_the_embedded_model(kernel: Path) -> None:
    home = Path(os.environ["R2MED_HOME"])
    (home / "models").mkdir(parents=True)
    (home / "models" / "bge-small").symlink_to(WEIGHTS)
    assert "bm25+bge-small.rrf" in execute(kernel)[0]


def execute(kernel: Path) -> list[str]:
    """Run all cells; the tables they showed."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(kernel)}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) >= 8
    tables = [html for cell in cells for html in outputs(cell, "text/html")]
    assert len(tables) == 8, "scores twice, a comparison, task, run, evaluation, own system, its comparison"
    assert all("<table" in html and "<script" not in html for html in tables)
    assert "MedXpert" in tables[0]
    assert "shared-words" in tables[-2]
    assert (kernel / "results" / "bm25" / "mini" / "Biology.json").is_file()
    return tables


def test_it_is_committed_without_outputs() -> None:
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert NOTEBOOK.stat().st_size < 20_000
