"""Rerankers that people bring: cross-encoders of whichever library, functions of pairs, and those that misbehave."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import r2med
from r2med.core import ModelError, UsageError
from r2med.rerank import as_reranker
from r2med.retrieve import as_retriever
from tests import own_models as models
from tests.own_rankings import Ranking, beyond_the_documents, broken, run_of, with_nan
from tests.rerank.tiny import save_classifier, save_tokenizer


@pytest.fixture(scope="module")
def task() -> r2med.Task:
    return r2med.load("mini@1/MedQA-Diag")


@pytest.mark.parametrize("model", [models.overlap, models.Predicting(), models.Predicting, models.MtebCrossEncoder()])
def test_rerankers_as_objects(model: Any, task: r2med.Task) -> None:
    ours = r2med.evaluate("bm25", task, rerank=(model, 20)).mean()
    named = r2med.evaluate("bm25", task, rerank="tests.own_models:overlap@20").mean()
    assert ours == pytest.approx(named, abs=1e-9)
    assert ours != r2med.evaluate("bm25", task).mean()


def test_a_cross_encoder_as_system_reranks_bm25(task: r2med.Task) -> None:
    given = r2med.evaluate(models.Predicting(), task).mean()
    assert given == r2med.evaluate(models.Predicting, task).mean()
    assert given == r2med.evaluate("bm25", task, rerank=models.overlap).mean()
    with pytest.raises(UsageError, match="a reranker, not a retriever"):
        as_retriever(models.Predicting())


def test_a_real_cross_encoder(tmp_path: Path, task: r2med.Task) -> None:
    library = pytest.importorskip("sentence_transformers")
    save_classifier(tmp_path, "bert")
    save_tokenizer(tmp_path, "bert")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = library.CrossEncoder(str(tmp_path), device="cpu", max_length=64)
        reranker = as_reranker(model)
        candidates = r2med.BM25().retrieve(task, depth=5)
        run = reranker.rerank(task, candidates, 5)
    query = task.queries[0]
    pairs = [(query.text, task.documents[int(d)].contents) for d in candidates.docs[0]]
    scores = model.predict(pairs, show_progress_bar=False)
    assert [hit.score for hit in run.of(query.id)] == pytest.approx(sorted(map(float, scores), reverse=True), abs=1e-5)


def test_a_real_cross_encoder_of_mteb(tmp_path: Path, task: r2med.Task) -> None:
    library = pytest.importorskip("sentence_transformers")
    pytest.importorskip("mteb")
    save_classifier(tmp_path, "bert")
    save_tokenizer(tmp_path, "bert")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mteb.models.sentence_transformer_wrapper import CrossEncoderWrapper

        pairs = library.CrossEncoder(str(tmp_path), device="cpu", max_length=64)
        candidates = r2med.BM25().retrieve(task, depth=4)
        mine = as_reranker(CrossEncoderWrapper(pairs)).rerank(task, candidates, 4)
        assert np.allclose(mine.scores, as_reranker(pairs).rerank(task, candidates, 4).scores, atol=1e-5)


def raising(_: Any) -> Any:
    raise KeyError("input_ids")


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (lambda pairs: [1.0], r"shape \(1,\) for pairs 0–"),
        (lambda pairs: [float("inf")] * len(pairs), "not finite for 65 of pairs 0–64 of 65, the first being"),
        (lambda pairs: "high", "did not return scores for pairs 0–64"),
        (raising, "failed on pairs 0–64 of 65 .KeyError"),
    ],
)
def test_scores_that_cannot_be_used(scores: Any, words: str) -> None:
    task = r2med.load("mini@1/Biology")
    candidates = r2med.BM25().retrieve(task, depth=5)
    with pytest.raises(ModelError, match=words):
        as_reranker(scores).rerank(task, candidates, 5)


class Reranking(Ranking):
    def rerank(self, task: r2med.Task, candidates: r2med.Run, depth: int = 100, *, rest: str = "keep") -> Any:
        return self.answer(task)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            broken,
            r"theirs~\w+ failed on .*13 queries of mini@1/Biology \(RuntimeError: CUDA out of memory on device 0\)",
        ),
        (lambda task: None, r"theirs~\w+ returned NoneType for .*13 queries of mini@1/Biology, not a Run"),
        (lambda task: run_of(task, query="nobody"), "'nobody', which mini@1/Biology does not hold"),
        (lambda task: run_of(task, doc="nothing"), "unknown document 'nothing'"),
        (with_nan, "scores that are not numbers"),
        (beyond_the_documents, "cannot be used"),
    ],
)
def test_one_line_names_the_reranker(answer: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        r2med.evaluate("bm25", r2med.load("mini@1/Biology"), rerank=Reranking(answer))
    assert "\n" not in str(caught.value)


def test_a_good_one_passes_through(task: r2med.Task) -> None:
    run = r2med.BM25().retrieve(task, depth=20)
    reranked = r2med.evaluate("bm25", task, rerank=Reranking(lambda _: run)).means
    assert reranked == r2med.score(run, task).means
    order = np.random.default_rng(0).permutation(run.depth)
    shuffled = r2med.Run(run.query_ids, run.doc_ids, run.docs[:, order], run.scores[:, order])
    assert r2med.evaluate("bm25", task, rerank=Reranking(lambda _: shuffled)).means == reranked
