"""Late interaction against plain code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from r2med.core import Document, Documents, IdTable, Qrels, Query, Task, TextColumn, UsageError
from r2med.core.options import Options
from r2med.core.queries import Queries, QueryText
from r2med.core.spec import Spec
from r2med.models import get_card
from r2med.retrieve import Explains, Retriever
from r2med.retrieve.encoders import token_encoder
from r2med.retrieve.late_interaction import MaxSimRetriever
from tests.retrieve.encoders import tiny
from tests.retrieve.encoders.weights import real_model

CPU = Options(device="cpu", threads=1)


def plain_maxsim(query: Any, document: Any) -> float:
    return float(sum(max(float(q @ d) for d in document) for q in query))


def tiny_task() -> Task:
    texts = [*tiny.texts(9), tiny.texts(9)[4]]
    return Task(
        "made",
        tuple(Query(f"q{i}", t) for i, t in enumerate(tiny.texts(3, seed=7))),
        Documents.of(Document(f"d{i}", t) for i, t in enumerate(texts)),
        Qrels.from_judgments([("q0", "d0", 1)]),
    )


def test_late_interaction_over_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    model, tokenizer = tiny.save_model(tmp_path, "bert"), tiny.save_tokenizer(tmp_path, "bert")
    task = tiny_task()
    card = tiny.card("bert", "tokens", kind="late-interaction", normalize=True, document_length=16)
    used = MaxSimRetriever(card, Spec(card.name), token_encoder(card, tmp_path, CPU), CPU)
    assert isinstance(used, Retriever)
    run = used.retrieve(task)

    def states(text: str, limit: int) -> Any:
        with torch.no_grad():
            ids = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt").input_ids
            made = model(input_ids=ids).last_hidden_state[0]
        return torch.nn.functional.normalize(made, dim=1).numpy()

    for query in task.queries:
        scores = {hit.doc_id: hit.score for hit in run.of(query.id)}
        for document in task.documents:
            assert scores[document.id] == pytest.approx(
                plain_maxsim(states(query.text, 64), states(document.text, 16)), rel=2e-5
            )
        assert scores["d4"] == scores["d9"]
    assert run.notes["truncation"]["document"]["texts_cut"] > 0  # type: ignore[index]
    one, other = (q.text for q in task.queries[:2])
    asked = Queries(task.query_ids, task.query_texts, [(QueryText(one), QueryText(other, 3.0))] * 3)
    both = {hit.doc_id: hit.score for hit in used.prepare(task).search(asked, 10).row(2)}
    first, second = ({hit.doc_id: hit.score for hit in run.row(row)} for row in (0, 1))
    assert both == pytest.approx({doc: (first[doc] + 3 * second[doc]) / 4 for doc in both}, rel=1e-5)


def test_late_interaction_over_onnx() -> None:
    pytest.importorskip("onnxruntime", reason="the onnx extra is not installed")
    folder = real_model("colbert-small-backbone", "model.onnx")
    texts = ["Wilson disease: copper accumulates in the liver.", "A fracture of the femur.", "Copper wire."]
    task = Task(
        "made",
        (Query("q", "copper storage disease of the liver"),),
        Documents.of(Document(f"d{i}", t) for i, t in enumerate(texts)),
        Qrels.from_judgments([("q", "d0", 1)]),
    )
    card = get_card("colbert-small-backbone")
    used = MaxSimRetriever(card, Spec(card.name), token_encoder(card, folder, Options()), Options())
    run = used.retrieve(task)
    assert [hit.doc_id for hit in run.row(0)] == ["d0", "d2", "d1"]


def test_a_backend_without_tokens_is_refused(tmp_path: Path) -> None:
    card = tiny.card("api", "none", backend="openai", kind="late-interaction")
    with pytest.raises(UsageError, match="gives no vectors of tokens"):
        token_encoder(card, tmp_path, Options())


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="the torch extra is not installed")
    folder = tmp_path_factory.mktemp("bert")
    tiny.save_model(folder, "bert")
    tiny.save_tokenizer(folder, "bert")
    return folder


def over(folder: Path, options: Options) -> MaxSimRetriever:
    card = tiny.card("bert", "tokens", kind="late-interaction", normalize=True, document_length=16)
    return MaxSimRetriever(card, Spec(card.name), token_encoder(card, folder, options), options)


@pytest.mark.parametrize("cache", [True, False])
def test_tokens_add_up_to_the_score(tiny_bert: Path, cache: bool) -> None:
    task = tiny_task()
    index = over(tiny_bert, Options(device="cpu", threads=1, cache=cache)).prepare(task)
    assert isinstance(index, Explains)
    texts = [(QueryText(task.queries[0].text), QueryText(task.queries[1].text, 3.0))]
    for asked in (Queries.typed([task.queries[0].text]), Queries(IdTable(["q"]), TextColumn.from_texts(["x"]), texts)):
        run = index.search(asked, 10)
        documents = run.docs[0].tolist()
        for score, document, found in zip(run.scores[0], documents, index.explain(asked, documents), strict=True):
            assert sum(share.adds for share in found.shares) == pytest.approx(score, rel=1e-6)
            words = " ".join(share.match for share in found.shares if not share.match.startswith(("[", "##")))
            assert set(words.split()) <= set(task.documents[document].text.lower().split())


def test_documents_are_encoded_once(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches after the first, and explanations, read the vectors that lie on disk; without a cache, too."""
    task, asked = tiny_task(), Queries.of(tiny_task())
    kept, lent = (over(tiny_bert, Options(device="cpu", threads=1, cache=cache)) for cache in (True, False))
    expected = kept.prepare(task).search(asked, 10)
    for used in (kept, lent):
        index = used.prepare(task)

        def queries_only(texts: Any, side: Any, instruction: str = "", used: MaxSimRetriever = used) -> Any:
            assert side == "query", "documents are encoded again"
            return type(used.encoder).stream_states(used.encoder, texts, side, instruction)

        monkeypatch.setattr(used.encoder, "stream_states", queries_only)
        found = index.search(asked, 10)
        assert found.docs.tolist() == expected.docs.tolist()
        assert found.scores.tolist() == expected.scores.tolist()
        assert index.explain(Queries.typed(["pain"]), [0])[0].shares
    assert kept.prepare(task).documents.encoded == 0
