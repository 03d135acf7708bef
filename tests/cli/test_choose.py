"""`r2med recommend`, and `r2med tune`: weights chosen on one set of queries make a system that runs on another."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

import r2med
from r2med.cli.choose import recommend, tune
from r2med.core import UsageError
from r2med.pipeline.experiment import BEST_OFFLINE


def test_the_weights_are_the_best_of_the_grid() -> None:
    found = r2med.tune("bm25", "bm25-lucene:k1=2", tasks="mini-dev/Biology", steps=4)
    task = r2med.load("mini-dev/Biology")
    names = ("bm25", "bm25-lucene:k1=2")
    runs = [r2med.get_retriever(name).prepare(task).search(r2med.Queries.of(task), 1000) for name in names]
    shares = [(a / 4, b / 4) for a, b in product(range(5), repeat=2) if a + b == 4]
    by_hand: dict[tuple[float, ...], float] = {
        w: r2med.score(r2med.fuse(runs, task, f"weighted:w={w[0]}/{w[1]}"), task).mean() for w in shares
    }
    assert by_hand[found.weights] == pytest.approx(max(by_hand.values()), abs=1e-12)
    assert found.score == pytest.approx(max(by_hand.values()), abs=1e-12)
    assert found.equal == pytest.approx(by_hand[0.5, 0.5], abs=1e-12)
    assert found.queries == 8


def test_the_command_prints_a_system_that_runs(tmp_path: Path) -> None:
    done = CliRunner().invoke(tune, ["bm25", "bm25-lucene", "-t", "mini-dev/MedQA-Diag", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert str(r2med.SystemSpec.parse(told["system"])) == told["system"]
    scores = r2med.run(told["system"], tasks="mini-dev/MedQA-Diag", results=tmp_path)
    (row,) = scores.results
    assert row.measures["ndcg_at_10"] == pytest.approx(told["score"], abs=1e-6)


def test_one_retriever_is_no_fusion() -> None:
    with pytest.raises(UsageError, match="two retrievers or more"):
        r2med.tune("bm25", tasks="mini-dev/Biology")


def test_recommendations_and_their_commands() -> None:
    done = CliRunner().invoke(
        recommend, ["--gpu-memory", "24GB", "--dollars", "0", "--seconds-per-query", "1", "-n", "2"]
    )
    assert done.exit_code == 0
    assert "GPU memory" in done.stdout
    assert "r2med run --tasks r2med --system " in done.stdout
    assert "not measured here: its score on R2MED" in done.stdout
    assert "do not compare" in done.stderr
    assert "that no other of the same or less cost beats" in done.stdout
    every = CliRunner().invoke(recommend, ["--all", "-n", "2"]).stdout
    assert "beats" not in every, "what others beat is among them"


def test_recommendations_as_json() -> None:
    done = CliRunner().invoke(recommend, ["--json"])
    document = json.loads(done.stdout)
    first = document["pipelines"][0]
    assert {"system", "score", "published", "measured", "needs", "commands", "not_measured"} == first.keys()
    assert first["system"] == BEST_OFFLINE
    assert document["unranked"] == []
