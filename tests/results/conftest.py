from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from r2med.pipeline import run_experiment, systems_from
from r2med.results import ResultStore
from r2med.tasks import resolve


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two real systems and their fusion on two tasks of Mini."""
    root = tmp_path_factory.mktemp("made") / "results"
    refs = [*resolve("mini/Biology"), *resolve("mini/PMC-Clinical")]
    run_experiment(refs, systems_from(["bm25", "bm25-lucene"], "rrf"), ResultStore(root))
    return root


@pytest.fixture
def own_results(made: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return shutil.copytree(made, tmp_path / "results")
