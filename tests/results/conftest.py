from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import r2med
from r2med.tasks import resolve


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two real systems and their fusion on two tasks of Mini."""
    root = tmp_path_factory.mktemp("made") / "results"
    refs = [*resolve("mini@1/Biology"), *resolve("mini@1/PMC-Clinical")]
    r2med.run("bm25", "bm25-lucene", tasks=refs, fuse="rrf", results=root)
    return root


@pytest.fixture
def own_results(made: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return shutil.copytree(made, tmp_path / "results")
