"""Feedback within the candidates: passages that resemble the best one move up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from r2med.core import Document, Documents, Qrels, Query, Run, Task, UsageError
from r2med.core.files import home
from r2med.core.options import Options
from r2med.pipeline import Builder, SystemSpec
from r2med.rerank import rerankers
from r2med.rerank.contract import Float64
from r2med.retrieve.dense import DenseRetriever
from tests.retrieve.encoders import tiny

TEXTS = tiny.texts(12)


@pytest.fixture
def builder() -> Iterator[Builder]:
    pytest.importorskip("torch", reason="the torch extra is not installed")
    folder = home() / "models" / "e5"
    tiny.save_tokenizer(folder, "mistral")
    tiny.save_model(folder, "mistral")
    with Builder(Options(device="cpu", threads=1)) as made:
        yield made


@pytest.fixture
def task() -> Task:
    documents = Documents.of(Document(f"d{i}", text) for i, text in enumerate(TEXTS))
    return Task(
        "Alpha", (Query("q", TEXTS[0]), Query("r", TEXTS[1])), documents, Qrels.from_judgments([("q", "d1", 1)])
    )


@pytest.fixture
def first(task: Task) -> Run:
    rankings = {"q": [(f"d{i}", 12.0 - i**1.5 / 4) for i in range(10)], "r": [("d3", 2.0)]}
    return Run.from_rankings(rankings, doc_ids=task.documents.ids)


def scaled(values: Float64) -> Float64:
    return np.asarray((values - values.min()) / (values.max() - values.min()))


@pytest.mark.parametrize(("seeds", "weight"), [(1, 0.5), (3, 0.25), (8, 1.0)])
def test_by_hand(builder: Builder, task: Task, first: Run, seeds: int, weight: float) -> None:
    spec = f"neighbours:model=e5,seeds={seeds},weight={weight}"
    run = builder.reranker(spec).rerank(task, first, 8)
    dense = builder.retriever("e5")
    assert isinstance(dense, DenseRetriever)
    vectors = dense.embed(TEXTS[:8], "document", dense.instruction("document")).rows.take(np.arange(8))
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = scaled(first.scores[0, :8].astype(np.float64))
    mean = sum(scores[i] * vectors @ vectors[i] for i in range(seeds)) / scores[:seeds].sum()
    wanted = weight * scaled(mean) + (1 - weight) * scores
    order = np.argsort(-wanted, kind="stable")
    assert [hit.doc_id for hit in run.of("q")[:8]] == [f"d{i}" for i in order]
    assert [hit.score for hit in run.of("q")[:8]] == pytest.approx(wanted[order].tolist(), rel=1e-4, abs=1e-5)
    assert [hit.doc_id for hit in run.of("q")[8:]] == ["d8", "d9"], "what is below the depth follows as it was"
    assert [hit.doc_id for hit in run.of("r")] == ["d3"]


def test_without_weight_nothing_moves(builder: Builder, task: Task, first: Run) -> None:
    run = builder.reranker("neighbours:model=e5,weight=0").rerank(task, first, 10)
    assert [hit.doc_id for hit in run.of("q")] == [hit.doc_id for hit in first.of("q")]
    moved = builder.reranker("neighbours:model=e5").rerank(task, first, 10)
    assert [hit.doc_id for hit in moved.of("q")] != [hit.doc_id for hit in first.of("q")]
    assert moved.of("q")[0].doc_id == "d0", "the only seed is most like itself"


def test_equal_scores_and_no_candidates(builder: Builder, task: Task) -> None:
    flat = Run.from_rankings({"q": [("d1", 1.0), ("d2", 1.0), ("d3", 1.0)], "r": []}, doc_ids=task.documents.ids)
    run = builder.reranker("neighbours:model=e5").rerank(task, flat, 10)
    assert {hit.doc_id for hit in run.of("q")} == {"d1", "d2", "d3"}
    assert run.of("r") == []


def test_names(builder: Builder) -> None:
    """Settings that change a ranking are in the name, defaults are not; two that differ never share one."""
    specs = ["neighbours", "neighbours:weight=0.4", "neighbours:seeds=2", "neighbours:model=e5"]
    assert [str(rerankers.parse(spec).at(None)) for spec in specs] == specs
    assert str(rerankers.parse("neighbours:seeds=1,weight=0.5,model=bge-small").at(None)) == "neighbours"
    described = [builder.reranker(f"neighbours:model=e5{more}").describe() for more in ("", ",seeds=2", ",weight=0.4")]
    assert len({str(facts) for facts in described}) == 3
    system = "bm25+e5.rrf+neighbours:model=e5@20"
    assert str(SystemSpec.parse(system)) == system


class Searches:
    """Somebody's retriever, which has no vectors."""

    def retrieve(self, task: Task, depth: int) -> Run:
        raise NotImplementedError


class AsksForTheTask:
    """An encoder of MTEB's contract, whose vectors depend on the task that it is told."""

    version = "1"

    def encode(self, inputs: Any, *, task_metadata: Any, **_: Any) -> Float64:
        seed = sum(task_metadata.name.encode())
        texts = [text for batch in inputs for text in batch["text"]]
        return np.array([np.random.default_rng([seed, len(text)]).normal(size=4) for text in texts])


def test_an_encoder_is_told_the_task_whoever_uses_it_first(task: Task, first: Run) -> None:
    """The same ranking whether or not a retriever of the same encoder prepared the task before."""
    address = f"{__name__}:AsksForTheTask"
    with Builder() as alone, Builder() as after:
        after.retriever(address).prepare(task)
        runs = [each.reranker(f"neighbours:model={address}").rerank(task, first, 8) for each in (alone, after)]
    assert runs[0].docs.tolist() == runs[1].docs.tolist()
    assert runs[0].scores.tolist() == runs[1].scores.tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            "neighbours:weight=1.5",
            "neighbours:seeds=0",
            "neighbours:model=bm25",
            f"neighbours:model={__name__}:Searches",
        ),
        *("neighbours:model=e5:dimension=8", "neighbours:model=e5:variant=int8", "neighbours:model=e5:similarity=dot"),
    ],
)
def test_what_cannot_be_asked_for(builder: Builder, wrong: str) -> None:
    with pytest.raises(UsageError):
        builder.reranker(wrong)
