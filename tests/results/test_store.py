from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from r2med.core import ResultError
from r2med.pipeline import Builder, SystemSpec, run_experiment
from r2med.results import ResultStore
from r2med.results.store import slug
from r2med.scoring import evaluate_run
from r2med.tasks import resolve


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    store = ResultStore(tmp_path / "results")
    run_experiment(resolve("mini/Biology"), [Builder().build(SystemSpec(retrievers=["bm25"]))], store)
    return store


def test_three_files_a_task(store: ResultStore) -> None:
    folder = store.root / "bm25" / "mini"
    assert sorted(p.name for p in folder.iterdir()) == ["Biology.json", "Biology.queries.jsonl", "Biology.run.gz"]


def test_a_result_says_how_it_was_made(store: ResultStore) -> None:
    document = json.loads((store.root / "bm25" / "mini" / "Biology.json").read_text())
    assert document["schema"] == 1
    assert 0 < document["measures"]["ndcg_at_10"] < 1
    assert document["system"]["description"]["retrievers"][0] == {
        "retriever": "bm25", "k1": 0.9, "b": 0.4, "query": "bm25", "analyzer": "english",
    }  # fmt: skip
    assert document["task"]["fingerprint"]
    assert {"load", "retrieve", "score"} <= document["seconds"].keys()
    assert {"numpy", "python", "r2med"} <= document["environment"]["versions"].keys()


def test_run_and_per_query_scores_read_back(store: ResultStore) -> None:
    (result,) = store
    per_query = store.per_query(result, "ndcg_at_10")
    assert np.mean(list(per_query.values())) == pytest.approx(result.measures["ndcg_at_10"], abs=1e-12)
    (ref,) = resolve("mini/Biology")
    assert evaluate_run(store.run(result), ref.load().qrels).mean() == pytest.approx(result.measures["ndcg_at_10"])


@pytest.mark.parametrize("texts", [["zzz"], ["zzz", "gout"]], ids=["no query finds anything", "one does"])
def test_queries_without_hits_read_back(texts: list[str], tmp_path: Path) -> None:
    task = tmp_path / "task"
    task.mkdir()
    (task / "corpus.jsonl").write_text('{"id": "d1", "text": "gout"}\n')
    (task / "query.jsonl").write_text("".join(f'{{"id": "q{i}", "text": "{text}"}}\n' for i, text in enumerate(texts)))
    (task / "qrels.jsonl").write_text(
        "".join(f'{{"q_id": "q{i}", "p_id": "d1", "score": 1}}\n' for i in range(len(texts)))
    )
    store = ResultStore(tmp_path / "results")
    run_experiment(resolve(str(task)), [Builder().build(SystemSpec(retrievers=["bm25"]))], store)
    (result,) = store
    run = store.run(result)
    assert {query_id: len(hits) for query_id, hits in run} == {f"q{i}": int(t == "gout") for i, t in enumerate(texts)}
    (store.root / "bm25" / "own" / "task.queries.jsonl").write_text("{")
    with pytest.raises(ResultError, match=r"queries\.jsonl: the per-query scores cannot be read"):
        store.run(result)


def test_another_schema_is_refused(store: ResultStore) -> None:
    path = store.root / "bm25" / "mini" / "Biology.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 99', 1))
    with pytest.raises(ResultError, match="schema 99"):
        list(store)
    path.write_text('{"schema": 1}')
    with pytest.raises(ResultError, match="not a result file"):
        list(store)
    path.write_text("{")
    with pytest.raises(ResultError, match="not a result file"):
        list(store)


def test_an_old_result_does_not_stand_beside_a_new_run(store: ResultStore, monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = store
    run = store.run(result)
    (ref,) = resolve("mini/Biology")
    evaluation = evaluate_run(run, ref.load().qrels)
    monkeypatch.setattr("r2med.results.store.QueryScores", None)  # stopped after the run, before the scores
    with pytest.raises(TypeError):
        store.write(result, run, evaluation)
    assert list(store) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bm25+e5.rrf", "bm25+e5.rrf"),
        ("../../etc", "_.._etc"),
        ("BAAI/bge", "BAAI_bge"),
        ("bm25,k1=1.2", "bm25,k1=1.2"),
    ],
)
def test_names_cannot_escape_the_folder(name: str, expected: str) -> None:
    assert slug(name) == expected


def test_a_name_of_dots_is_refused() -> None:
    with pytest.raises(ResultError):
        slug("..")
