"""Learned sparse retrieval against plain code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from r2med.core import IdTable, MissingExtra, TextColumn, UsageError
from r2med.core.options import Options
from r2med.core.queries import Feedback, Queries, QueryText
from r2med.core.spec import Spec
from r2med.pipeline import Builder
from r2med.retrieve import Retriever
from r2med.retrieve import splade as splade_module
from r2med.retrieve.splade import SpladeEncoder, SpladeRetriever
from tests.retrieve.encoders import tiny
from tests.retrieve.test_late_interaction import tiny_task

CPU = Options(device="cpu", threads=1)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """A masked language model with random weights, its tokenizer, and the folder of both."""
    folder = tmp_path_factory.mktemp("splade")
    return (folder, *tiny.save_masked_lm(folder))


@pytest.fixture(scope="module")
def splade(parts: tuple[Path, Any, Any]) -> SpladeRetriever:
    card = tiny.card("bert", "none", kind="sparse")
    return SpladeRetriever(card, Spec(card.name), SpladeEncoder(card, parts[0], CPU), CPU)


def test_a_missing_extra_is_named_before_anything_runs(
    splade: SpladeRetriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came up when documents were encoded, after expansions had been paid for."""
    splade.check()
    monkeypatch.setattr("r2med.models.registry.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"running tiny-bert needs .*r2med\[torch\]"):
        splade.check()


def test_learned_sparse_retrieval(parts: tuple[Path, Any, Any], splade: SpladeRetriever) -> None:
    import torch

    _, model, tokenizer = parts
    task = tiny_task()
    assert isinstance(splade, Retriever)
    run = splade.retrieve(task)

    def weights(text: str) -> Any:
        with torch.no_grad():
            ids = tokenizer(text, truncation=True, max_length=64, return_tensors="pt").input_ids
            logits = model(input_ids=ids).logits[0]
        return torch.log1p(torch.relu(logits)).max(dim=0).values.numpy()

    for query in task.queries:
        scores = {hit.doc_id: hit.score for hit in run.of(query.id)}
        for document in task.documents:
            assert scores[document.id] == pytest.approx(float(weights(query.text) @ weights(document.text)), rel=1e-4)


@pytest.mark.parametrize(
    "queries",
    [
        {"texts": [(QueryText("fever", side="document"),)]},
        {"texts": [(QueryText("fever", instruction=False),)]},
        {"feedback": (Feedback("rm3", "lexical", 3, 0.5, 0.5, 10),)},
    ],
)
def test_what_would_be_ignored_is_refused(splade: SpladeRetriever, queries: Any) -> None:
    asked = Queries(IdTable(["q"]), TextColumn.from_texts(["fever"]), **queries)
    with pytest.raises(UsageError, match="encodes all texts as queries"):
        splade.prepare(tiny_task()).search(asked, 3)


def test_several_texts_of_a_query_are_averaged(splade: SpladeRetriever) -> None:
    task = tiny_task()
    index = splade.prepare(task)
    one, other = (q.text for q in task.queries[:2])
    asked = Queries(task.query_ids, task.query_texts, [(QueryText(one), QueryText(other, 3.0))] * 3)
    first, second, both = (
        {hit.doc_id: hit.score for hit in index.search(queries, 10).row(row)}
        for queries, row in ((Queries.of(task), 0), (Queries.of(task), 1), (asked, 0))
    )
    assert both == pytest.approx({doc: (first[doc] + 3 * second[doc]) / 4 for doc in both}, rel=1e-5)


def test_another_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    card = tiny.card("bert", "none", backend="onnx", kind="sparse")
    monkeypatch.setattr(splade_module, "card_of", lambda spec: card)
    with pytest.raises(UsageError, match="learned sparse models run in transformers"):
        SpladeRetriever.from_spec(Spec(card.name), Builder())


def test_terms_add_up_to_the_score(splade: SpladeRetriever) -> None:
    task = tiny_task()
    index = splade.prepare(task)
    asked = Queries.typed([task.queries[0].text])
    run = index.search(asked, 5)
    for score, found in zip(run.scores[0], index.explain(asked, run.docs[0].tolist()), strict=True):
        assert sum(share.adds for share in found.shares) == pytest.approx(score, rel=1e-4)
        assert all(isinstance(share.part, str) and share.part for share in found.shares)
