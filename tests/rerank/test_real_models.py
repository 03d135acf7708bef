"""The rerankers that run offline, on their real weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.core import Document, Documents, Qrels, Query, Run, Task
from r2med.core.options import Options
from r2med.core.spec import Spec
from r2med.models import get_card
from r2med.pipeline import Builder
from r2med.rerank import DEFAULT
from r2med.rerank.cross_encoder import OnnxCrossEncoder
from r2med.rerank.pointwise import Pairs, PointwiseReranker
from r2med.rerank.similarity import MaxSimScorer
from r2med.retrieve import get_retriever
from r2med.retrieve.encoders import token_encoder
from r2med.scoring import score
from tests.retrieve.encoders.weights import HOME, real_model

pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")

PASSAGES = {
    "copper": "Wilson disease is an inherited disorder of copper metabolism that damages liver and brain.",
    "iron": "Haemochromatosis is an inherited disorder in which too much iron is taken up from food.",
    "rash": "Measles begins with fever and cough; a rash follows that starts behind the ears.",
    "bone": "A fracture of the scaphoid may not be seen on the first radiograph.",
    "empty": "",
}
ASKED = {
    "q1": "Which disease makes copper pile up in the liver?",
    "q2": "What illness has a rash after fever and cough?",
}
BEST = {"q1": "copper", "q2": "rash"}


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(
        "few",
        tuple(Query(i, t) for i, t in ASKED.items()),
        Documents.of(Document(i, t) for i, t in PASSAGES.items()),
        Qrels.from_judgments([(q, d, 1) for q, d in BEST.items()]),
    )


def all_candidates(task: Task) -> Run:
    docs = np.tile(np.arange(len(PASSAGES) - 1, -1, -1, dtype=np.int32), (2, 1))
    return Run(task.query_ids, task.documents.ids, docs, docs.astype(np.float32))


@pytest.fixture
def with_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Path]:
    """A home of the test's own in which a model is found."""

    def link(name: str) -> Path:
        folder = real_model(name, "model.onnx")
        monkeypatch.setenv("R2MED_HOME", str(tmp_path))
        (tmp_path / "models").mkdir(exist_ok=True)
        (tmp_path / "models" / name).symlink_to(folder)
        return folder

    return link


@pytest.mark.parametrize("name", ["msmarco-minilm", "bge-small", "colbert-small-backbone"])
def test_finds_what_is_meant(task: Task, name: str, with_weights: Callable[[str], Path]) -> None:
    with_weights(name)
    run = Builder().reranker(name).rerank(task, all_candidates(task), 5)
    assert {q: hits[0].doc_id for q, hits in run} == BEST
    note: Any = run.notes["rerank"]
    assert note["empty_documents"] == 1
    again = Builder().reranker(name).rerank(task, all_candidates(task), 5)
    assert (again.scores == run.scores).all()


def test_maxsim_is_the_sum_of_best_matches(task: Task) -> None:
    folder, card = real_model("bge-small", "model.onnx"), get_card("bge-small")
    encoder = token_encoder(card, folder, Options())
    states: dict[str, Any] = {}
    for side, texts in (("query", list(ASKED.values())), ("document", list(PASSAGES.values()))):
        prefix = card.prefix(side, card.instruction(side, ""))  # type: ignore[arg-type]
        for batch in encoder.stream_states(texts, side, prefix):  # type: ignore[arg-type]
            for row, vectors in zip(batch.rows.tolist(), batch.states, strict=True):
                states[texts[row]] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    rows, docs = np.repeat([0, 1], 5).astype(np.int32), np.tile(np.arange(5), 2).astype(np.int32)
    pairs = Pairs(task.query_texts, task.documents.contents, rows, docs)
    made = np.empty(10)
    for scored in MaxSimScorer(card, Options(), encoder=encoder).stream(pairs):
        made[scored.rows] = scored.scores
    for i, (query, document) in enumerate(pairs.texts(np.arange(10))):
        wanted = (states[query] @ states[document].T).max(axis=1).sum()
        # Vectors are compared in steps of 2^-15.
        assert made[i] == pytest.approx(wanted, abs=2e-5 * len(states[query]))


def test_the_cross_encoder_equals_a_plain_session(task: Task) -> None:
    import onnxruntime
    from tokenizers import Tokenizer

    folder = real_model("msmarco-minilm", "model.onnx")
    scorer = OnnxCrossEncoder(get_card("msmarco-minilm"), folder)
    run = PointwiseReranker(scorer, Spec("msmarco-minilm")).rerank(task, all_candidates(task), 5)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    for query_id, hits in run:
        for hit in hits:
            pair = tokenizer.encode(ASKED[query_id], PASSAGES[hit.doc_id])
            feed = {"input_ids": [pair.ids], "attention_mask": [pair.attention_mask], "token_type_ids": [pair.type_ids]}
            (logits,) = session.run(None, {k: np.array(v, dtype=np.int64) for k, v in feed.items()})
            assert hit.score == pytest.approx(float(np.ravel(logits)[0]), abs=1e-4)


@pytest.mark.slow
def test_scifact(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head of BM25's list gets better with the default reranker."""
    import r2med

    real_model("bge-small", "model.onnx")
    monkeypatch.setenv("R2MED_HOME", str(HOME))
    whole = r2med.load(str(shared_data / "scifact"))
    kept = {query.id for query in whole.queries[:20]}
    judged = Qrels.from_judgments(judgment for judgment in whole.qrels if judgment[0] in kept)
    few = replace(whole, queries=whole.queries[:20], qrels=judged)
    first = get_retriever("bm25-lucene").retrieve(few, depth=30)
    after = Builder().reranker(DEFAULT).rerank(few, first, 30)
    assert score(after, few.qrels).mean() > score(first, few.qrels).mean()
