"""Models that misbehave: one line that names the model and the batch, and what was finished stays."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import r2med
from r2med.core import ModelError
from r2med.results import ResultStore
from r2med.retrieve import get_retriever
from r2med.retrieve.encoders import custom
from tests import own_models as models

ROOT = Path(__file__).parents[3]
NAME = "tests.own_models:Versioned"


@pytest.fixture(scope="module")
def task() -> r2med.Task:
    return r2med.load("mini@1/Biology")


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "CHUNK", 20)


def second_batch(change: Callable[[Any], Any]) -> Callable[[list[str]], Any]:
    """A model that does well once."""
    calls = []

    def odd_model(texts: list[str]) -> Any:
        calls.append(1)
        made = models.vectors(texts)
        return made if len(calls) == 1 else change(made)

    return odd_model


def raising(_: Any) -> Any:
    raise KeyError("input_ids")


def overflowing(made: Any) -> Any:
    with np.errstate(over="ignore"):
        return (made * 1e5).astype(np.float16)


def with_nan(made: Any) -> Any:
    made[3, 0] = np.nan
    return made


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda made: made[:-1], r"returned an array of shape \(19, 128\) for 20 texts, documents 20–39 of \d+"),
        (lambda made: made[0], r"shape \(128,\) for 20 texts, documents 20–39"),
        (lambda made: made[:, None], r"shape \(20, 1, 128\) for 20 texts, documents 20–39"),
        (lambda made: made[:, :0], r"shape \(20, 0\) for 20 texts, documents 20–39"),
        (lambda made: made[:, :64], "64 dimensions for documents 20–39 .* 128 before"),
        (with_nan, "not finite for 1 of documents 20–39 .* the first being text 23"),
        (overflowing, "not finite .infinite: numbers beyond what float16 holds.* of documents 20–39"),
        (lambda made: made.astype(np.float64) * 1e300, "not finite .* documents 20–39"),
        (lambda made: None, "did not return an array of numbers for documents 20–39"),
        (lambda made: {"dense_vecs": made}, "did not return an array of numbers for documents 20–39"),
        (lambda made: [["x"]] * len(made), "did not return an array of numbers for documents 20–39"),
        (lambda made: made.astype(complex), "did not return an array of numbers for documents 20–39"),
        (lambda made: [row[: i + 1] for i, row in enumerate(made)], "did not return an array of numbers"),
        (raising, "failed on documents 20–39 of .*KeyError: 'input_ids'"),
        (lambda made: sys.exit(3), "failed on documents 20–39 of .*SystemExit: 3"),
    ],
)
@pytest.mark.usefixtures("small_batches")
def test_one_line_names_the_model_and_the_batch(change: Any, words: str, task: r2med.Task) -> None:
    with pytest.raises(ModelError, match=rf"odd_model~\w+ (.*{words}|{words})") as caught:
        r2med.evaluate(second_batch(change), task)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("small_batches")
def test_what_was_encoded_is_not_encoded_again(task: r2med.Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL_ON", task.documents[len(task.documents) - 1].contents)
    with pytest.raises(ModelError, match=r"Versioned,version=7 failed on documents \d+–\d+ .*illegal memory access"):
        r2med.evaluate(models.Versioned(), task)
    monkeypatch.delenv("FAIL_ON")
    run = get_retriever(models.Versioned()).retrieve(task)
    cache = run.notes["cache"]
    assert isinstance(cache, dict)
    assert cache["cached"] >= 60
    assert r2med.score(run, task).mean() == r2med.evaluate(models.encode, task).mean()


class RevisedMteb(models.MtebEncoder):
    revision = "1"


@pytest.mark.parametrize("model", [models.CustomModel(), RevisedMteb()])
def test_what_may_change_is_not_kept(model: Any, task: r2med.Task) -> None:
    """No version, or prompts that may be another task's."""
    for _ in range(2):
        run = get_retriever(model).retrieve(task)
        assert run.notes["cache"] == {"cached": 0, "encoded": run.notes["cache"]["encoded"], "damaged_shards": 0}  # type: ignore[index]


def test_finished_tasks_stay(tmp_path: Path) -> None:
    """A run over two tasks that breaks in the second: one line, and the first task's result is there."""
    second = r2med.load("mini@1/PMC-Clinical").documents[0].contents[:60]
    flags = ("--tasks", "mini@1/Biology,mini@1/PMC-Clinical", "--retriever", "tests.own_models:Versioned", "--results")
    done = subprocess.run(
        [sys.executable, "-m", "r2med", "run", *flags, str(tmp_path)], cwd=ROOT, env=os.environ | {"FAIL_ON": second},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("r2med: ")]
    assert len(lines) == 1, done.stderr
    assert "Versioned failed on documents 0–" in lines[0]
    assert "Traceback" not in done.stderr
    kept = [ResultStore(tmp_path).path(NAME, "mini@1", task).is_file() for task in ("Biology", "PMC-Clinical")]
    assert kept == [True, False]


def _in_a_pool(texts: list[str]) -> Any:
    return models.vectors(texts)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_model_with_processes_of_its_own(method: str, task: r2med.Task) -> None:
    def pooled(texts: list[str]) -> Any:
        middle = len(texts) // 2
        with multiprocessing.get_context(method).Pool(2) as pool:
            return np.concatenate(pool.map(_in_a_pool, [texts[:middle], texts[middle:]]))

    assert r2med.evaluate(pooled, task).mean() == r2med.evaluate(models.encode, task).mean()


def test_a_child_that_comes_back_ends(tmp_path: Path) -> None:
    """A model that forks and lets both processes return: one of them writes results, once."""
    (tmp_path / "forking.py").write_text(
        "import os\nfrom tests import own_models as models\n\n\n"
        "def encode(texts):\n    os.fork()\n    return models.vectors(texts)\n"
    )
    flags = ("--tasks", "mini@1/Biology", "--retriever", "forking:encode", "--results", "out", "--json")
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "r2med", "run", *flags], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"schema"') == 1
    assert "encode forked on documents" in done.stderr
