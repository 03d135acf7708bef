"""Published figures on SciFact, with real weights. Vectors are kept in the home of the person who runs this."""

from __future__ import annotations

import pytest

import r2med
from r2med.retrieve import get_retriever
from r2med.scoring import score
from tests.conftest import SHARED_DATA
from tests.retrieve.encoders.weights import HOME, real_model

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("name", "file", "needs", "low", "high"),
    [
        ("bge-small", "model.onnx", "onnxruntime", 0.69, 0.72),
        ("minilm", "model.safetensors", "transformers", 0.640, 0.650),
    ],
)
def test_scifact(name: str, file: str, needs: str, low: float, high: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(HOME))
    pytest.importorskip(needs)
    real_model(name, file)
    if not (SHARED_DATA / "scifact").is_dir():
        pytest.skip("SciFact is not beside the project")
    task = r2med.load(str(SHARED_DATA / "scifact"))
    run = get_retriever(name).retrieve(task, depth=100)
    assert low <= score(run, task.qrels).mean() <= high
