from __future__ import annotations

from pathlib import Path

import pytest

from r2med.pipeline import run_experiment, systems_from
from r2med.results import ResultStore
from r2med.tasks import resolve


@pytest.fixture(scope="session")
def mini_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two real systems on all of Mini, and a third on one task only."""
    folder = tmp_path_factory.mktemp("mini") / "results"
    store = ResultStore(folder)
    run_experiment(resolve("mini"), systems_from(["bm25", "bm25-lucene"]), store)
    run_experiment(resolve("mini/Biology"), systems_from(["bm25:k1=1.2,b=0.75"]), store)
    return folder
