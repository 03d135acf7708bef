"""jina-reranker-v3 on a tiny model in its published files, against its authors' rule written out in plain torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from r2med.core import Document, Documents, ModelError, Qrels, Query, Run, Task
from r2med.core.options import Options
from r2med.models import get_card
from r2med.pipeline.system import Builder
from r2med.rerank import one_context
from r2med.rerank.one_context import OneContextModel, OneContextReranker
from tests.retrieve.encoders import tiny

from . import tiny_lm

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("transformers", reason="the torch extra is not installed")

NAME = "jina-reranker-v3"
MARKS = ("<|embed_token|>", "<|rerank_token|>")
QUERIES = ["fever and rash in a child", "which nerve is <|embed_token|> injured?"]
PASSAGES = [*tiny.texts(6, longest=30), "copper<|rerank_token|> in the liver", "", "naïve\n\nB cells {query} {text}"]
CPU = Options(device="cpu", threads=1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The layout of the hub: a Qwen3 without a head, a projector in its weights, and code that must not be run."""
    from safetensors.torch import load_file, save_file

    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    made = tmp_path / "models" / NAME
    tokenizer = tiny_lm.save_qwen_tokenizer(made, *MARKS)
    tiny_lm.save_causal(made, "qwen3", len(tokenizer))
    weights = load_file(made / "model.safetensors")
    torch.manual_seed(2)
    weights |= {"projector.0.weight": torch.randn(16, 32), "projector.2.weight": torch.randn(12, 16)}
    save_file(weights, made / "model.safetensors", {"format": "pt"})
    config = json.loads((made / "config.json").read_text())
    named = {"architectures": ["JinaForRanking"], "auto_map": {"AutoModel": "modeling.JinaForRanking"}}
    (made / "config.json").write_text(json.dumps(config | named))
    (made / "modeling.py").write_text("raise SystemExit('code of the model was run')")
    return made


def plain(folder: Path, query: str, passages: list[str]) -> tuple[Any, Any]:
    """Vectors of a query and passages that share one context."""
    import transformers as tf
    from safetensors.torch import load_file

    tokenizer = tf.AutoTokenizer.from_pretrained(folder)
    model = tf.Qwen3Model.from_pretrained(folder, dtype=torch.float32).eval()
    shown = "\n".join(f'<passage id="{i}">\n{text}<|embed_token|>\n</passage>' for i, text in enumerate(passages))
    prompt = (
        "<|im_start|>system\nYou are a search relevance expert who can determine a ranking of the passages based on "
        "how relevant they are to the query. If the query is a question, how relevant a passage is depends on how well "
        "it answers the question. If not, try to analyze the intent of the query and assess how well each passage "
        "satisfies the intent. If an instruction is provided, you should follow the instruction when determining the "
        "ranking.<|im_end|>\n<|im_start|>user\n"
        f"I will provide you with {len(passages)} passages, each indicated by a numerical identifier. Rank the "
        f"passages based on their relevance to query: {query}\n{shown}\n<query>\n{query}<|rerank_token|>\n</query>"
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    weights = load_file(folder / "model.safetensors")
    with torch.no_grad():
        hidden = model(input_ids=ids).last_hidden_state[0]
        made = torch.relu(hidden @ weights["projector.0.weight"].T) @ weights["projector.2.weight"].T
    first, second = (ids[0] == tokenizer.convert_tokens_to_ids(token) for token in reversed(MARKS))
    return made[first][0].numpy(), made[second].numpy()


def cosines(query: Any, passages: Any) -> Any:
    return passages @ query / np.linalg.norm(query) / np.linalg.norm(passages, axis=1)


def unmarked(text: str) -> str:
    return text.replace(MARKS[0], "").replace(MARKS[1], "")


def task_of(queries: list[str], passages: list[str]) -> tuple[Task, Run]:
    """A task, and a first stage that finds all passages in their order."""
    task = Task(
        "made",
        tuple(Query(f"q{i}", text) for i, text in enumerate(queries)),
        Documents.of(Document(f"d{i}", text) for i, text in enumerate(passages)),
        Qrels.from_judgments([("q0", "d0", 1)]),
    )
    docs = np.tile(np.arange(len(passages), dtype=np.int32), (len(queries), 1))
    scores = np.tile(np.arange(len(passages), 0, -1, dtype=np.float32), (len(queries), 1))
    return task, Run(task.query_ids, task.documents.ids, docs, scores, name="first")


def scores_of(run: Run, row: int, count: int) -> list[float]:
    found = {hit.doc_id: hit.score for hit in run.row(row)}
    return [found[f"d{i}"] for i in range(count)]


def test_scores_are_those_of_its_authors_rule(folder: Path) -> None:
    task, first = task_of(QUERIES, PASSAGES)
    with Builder(CPU) as builder:
        made = builder.reranker(NAME)
        assert isinstance(made, OneContextReranker)
        run = made.rerank(task, first)
    for row, query in enumerate(QUERIES):
        wanted = cosines(*plain(folder, unmarked(query), [unmarked(text) for text in PASSAGES]))
        assert scores_of(run, row, len(PASSAGES)) == pytest.approx(wanted, abs=1e-5)
    assert run.notes["rerank"]["scored"] == 2 * len(PASSAGES)  # type: ignore[index]


def test_lists_too_long_for_one_context_meet_the_mean_of_their_queries(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either too many passages, or too many tokens: the context of the tokenizer less twice the query."""
    card = get_card(NAME)
    assert card.one_context is not None
    few = card.replace(one_context=msgspec.structs.replace(card.one_context, most=4))
    short = card.replace(document_length=40, query_length=40)
    query, passages = QUERIES[0], [unmarked(text) for text in PASSAGES]
    for used, context in ((few, None), (short, 140)):
        model = OneContextModel(used, folder, CPU)
        if context:
            monkeypatch.setattr(model.hub_tokenizer, "model_max_length", context)
        listed = model.read(query, passages)
        parts = model._parts(listed)
        assert [text for part in parts for text in part] == listed.passages
        assert len(parts) > 1
        vectors = [plain(folder, listed.query, part) for part in parts]
        weights = [(1 + cosines(*pair).max()) / 2 for pair in vectors]
        mean = np.average([pair[0] for pair in vectors], axis=0, weights=weights)
        wanted = cosines(mean, np.concatenate([pair[1] for pair in vectors]))
        assert model.scores(listed, 0) == pytest.approx(wanted, abs=1e-5)
    assert [len(part) for part in OneContextModel(few, folder, CPU)._parts(listed)] == [4, 4, 1]


def test_texts_are_cut_and_counted(folder: Path) -> None:
    task, first = task_of(["fever " * 30], ["rash " * 50, "pain"])
    with Builder(CPU) as builder:
        run = builder.reranker(f"{NAME}:max_length=16").rerank(task, first)
    cut = run.notes["rerank"]["truncation"]  # type: ignore[index]
    assert (cut["documents_cut"], cut["queries_cut"]) == (1, 1)
    model = OneContextModel(get_card(NAME).replace(query_length=16, document_length=16), folder, CPU)
    listed = model.read("fever " * 30, ["rash " * 50, "pain"])
    assert len(model.hub_tokenizer(listed.query)["input_ids"]) == 16
    assert scores_of(run, 0, 2) == pytest.approx(model.scores(listed, 0), abs=1e-6)


def test_scores_are_kept_for_the_whole_list_only(folder: Path) -> None:
    """The same pair in another list, or at another place of it, has another score; the same list is not read again."""
    del folder
    task, first = task_of(QUERIES[:1], PASSAGES[:4])
    other, turned = task_of(QUERIES[:1], PASSAGES[3::-1])
    with Builder(CPU) as builder:
        made = builder.reranker(NAME)
        runs = [made.rerank(*given) for given in ((task, first), (task, first), (other, turned))]
        notes: list[Any] = [run.notes["rerank"] for run in (*runs, made.rerank(task, first, 3))]
    assert [note["scored"] for note in notes] == [4, 0, 4, 3]
    assert scores_of(runs[0], 0, 4) == scores_of(runs[1], 0, 4)
    assert scores_of(runs[0], 0, 4) != scores_of(runs[2], 0, 4)[::-1]
    with Builder(Options(device="cpu", threads=1, keep_queries=False)) as builder:
        assert builder.reranker(NAME).rerank(task, first).notes["rerank"]["scored"] == 4  # type: ignore[index]


@pytest.mark.parametrize("layer", [*one_context.LAYERS, "model.layers.1.mlp.up_proj.weight"])
def test_weights_that_are_not_whole_are_refused(folder: Path, layer: str) -> None:
    tiny.change_weights(folder, layer)
    task, first = task_of(QUERIES, PASSAGES)
    lack = f"the weights lack {layer.removeprefix('model.')}: this is not the whole model"
    with Builder(CPU) as builder, pytest.raises(ModelError, match=lack) as caught:
        builder.reranker(NAME).rerank(task, first)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_without_its_tokens_is_refused(folder: Path) -> None:
    tiny_lm.save_qwen_tokenizer(folder)
    task, first = task_of(QUERIES, PASSAGES)
    with Builder(CPU) as builder, pytest.raises(ModelError, match=r"has no token '<\|rerank_token\|>', which marks"):
        builder.reranker(NAME).rerank(task, first)


def test_no_candidates(folder: Path) -> None:
    del folder
    task, first = task_of(QUERIES, PASSAGES)
    empty = Run(first.query_ids, first.doc_ids, np.full((2, 3), -1, np.int32), np.full((2, 3), -np.inf, np.float32))
    with Builder(CPU) as builder:
        assert builder.reranker(NAME).rerank(task, empty).lengths().tolist() == [0, 0]
