"""Rerankers by vectors ask a model what retrievers ask it: the line of the task, where a pack has one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r2med.core import Document, Documents, Qrels, Query, Task, UsageError
from r2med.core.files import home
from r2med.core.options import Options
from r2med.pipeline import Builder
from r2med.rerank.pointwise import PointwiseReranker
from r2med.retrieve.bm25 import BM25
from tests.retrieve.encoders import tiny

PACK = """
[query]
Alpha = "Find fever"
Beta = "Find fever and pain and the cause of all of it"
"Clinical evidence" = "Find evidence"
"""


@pytest.fixture
def tasks() -> list[Task]:
    texts = tiny.texts(6)
    documents = Documents.of(Document(f"d{i}", text) for i, text in enumerate(texts))
    first = Task(
        "Alpha", (Query("q", texts[0]),), documents, Qrels.from_judgments([("q", "d1", 1)]), family="Clinical evidence"
    )
    return [first, replace(first, name="Beta")]


@pytest.mark.parametrize("reranker", ["e5", "maxsim:model=e5"])
def test_the_line_of_a_task_reaches_a_reranker(tasks: list[Task], tmp_path: Path, reranker: str) -> None:
    """The line of the family was used instead, and the scores of one task for another of the family."""
    pytest.importorskip("torch", reason="the torch extra is not installed")
    folder = home() / "models" / "e5"
    tiny.save_tokenizer(folder, "mistral")
    tiny.save_model(folder, "mistral")
    pack = tmp_path / "pack.toml"
    pack.write_text(PACK)
    joined = f"{reranker}{',' if ':' in reranker else ':'}prompts={pack}"
    found: list[Any] = []
    with Builder(Options(device="cpu", threads=1)) as builder:
        made = builder.reranker(joined)
        assert isinstance(made, PointwiseReranker)
        for task in tasks:
            candidates = BM25(analyzer="whitespace").retrieve(task)
            found.append({hit.doc_id: hit.score for hit in made.rerank(task, candidates, 10).row(0)})
    assert found[0].keys() == found[1].keys()
    assert found[0] != found[1]


@pytest.mark.parametrize("variant", ["variant=int8", "dimension=8", "dimension=8,oversample=0"])
def test_smaller_vectors_are_for_searching(variant: str) -> None:
    """Candidates were compared by whole vectors, under a name that says otherwise."""
    pytest.importorskip("torch", reason="the torch extra is not installed")
    folder = home() / "models" / "e5"
    tiny.save_tokenizer(folder, "mistral")
    tiny.save_model(folder, "mistral")
    with Builder(Options(device="cpu")) as builder, pytest.raises(UsageError, match="compares whole vectors"):
        builder.reranker(f"e5:{variant}")


def test_tokens_explain_a_score_and_no_query_is_kept(tasks: list[Task]) -> None:
    pytest.importorskip("torch", reason="the torch extra is not installed")
    folder = home() / "models" / "bge"
    tiny.save_tokenizer(folder, "bert")
    tiny.save_model(folder, "bert")
    options = Options(device="cpu", threads=1, keep_queries=False)
    task, candidates = tasks[0], BM25(analyzer="whitespace").retrieve(tasks[0])
    with Builder(options) as builder:
        for name in ("maxsim:max_length=64,model=bge", "bge:max_length=64"):
            made = builder.reranker(name)
            assert isinstance(made, PointwiseReranker)
            run = made.rerank(task, candidates, 10)
            documents = run.docs[0][: run.lengths()[0]].tolist()
            for score, found in zip(run.scores[0], made.explain(task, documents), strict=False):
                if name.startswith("bge"):
                    assert found.shares == ()
                    assert "does not say" in found.note
                else:
                    assert sum(share.adds for share in found.shares) == pytest.approx(score, abs=1e-4)
    assert not (home() / "rerank").exists()
    sets = [json.loads(path.read_text()) for path in (home() / "embeddings").rglob("set.json")]
    assert {one["side"] for one in sets} == {"document"}
