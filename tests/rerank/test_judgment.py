"""Language models that judge pairs by their next token, against the way their authors' code does it, to 1e-5."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.core import ModelError, Query, Task, UsageError
from r2med.core.options import Options
from r2med.models import get_card
from r2med.pipeline import Builder
from r2med.rerank.judgment import JudgingModel
from r2med.rerank.pairs import Pairs
from r2med.rerank.pointwise import PointwiseReranker

from . import tiny, tiny_lm
from .test_torch_cross_encoder import pairs_of, scores

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("transformers", reason="the torch extra is not installed")
torch.set_num_threads(1)
CPU = Options(device="cpu", cache=False)
QWEN3_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
QWEN3_AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
INSTRUCTION = "Given a medical query, retrieve passages whose content resolves it"


def with_marks(task: Task) -> Task:
    """Queries that end in marks and line breaks, which a tokenizer may join with what follows."""
    ends = (".", "?\n", " \n\n", "  ")
    queries = tuple(Query(q.id, q.text + ends[i % 4]) for i, q in enumerate(task.queries))
    return replace(task, queries=queries)


def last_logits(model: Any, tokenizer: Any, prompts: list[list[int]]) -> Any:
    """Logits behind the last token of every prompt, padded on the left in one batch, as the authors do."""
    tokenizer.padding_side = "left"
    inputs = tokenizer.pad({"input_ids": prompts}, padding=True, return_tensors="pt")
    with torch.no_grad():
        return model(**inputs).logits[:, -1, :]


def plain_qwen3(model: Any, tokenizer: Any, pairs: list[tuple[str, str]], limit: int, instruction: str) -> Any:
    """The whole text of a pair is tokenized and cut before the chat's prefix and suffix are put around it."""
    before, after = (tokenizer.encode(t, add_special_tokens=False) for t in (QWEN3_BEFORE, QWEN3_AFTER))
    bodies = [f"<Instruct>: {instruction}\n<Query>: {q}\n<Document>: {d}" for q, d in pairs]
    cut = tokenizer(bodies, truncation="longest_first", max_length=limit - len(before) - len(after))["input_ids"]
    logits = last_logits(model, tokenizer, [before + ids + after for ids in cut])
    both = torch.stack([logits[:, tokenizer.convert_tokens_to_ids(word)] for word in ("no", "yes")], dim=1)
    return torch.nn.functional.log_softmax(both.float(), dim=1)[:, 1].exp().numpy()


def plain_parts(
    model: Any, tokenizer: Any, pairs: list[tuple[str, str]], limit: int, labels: tuple[str, str], around: Any
) -> Any:
    """Logits where all parts are tokenized apart, the query is cut at three quarters, and then the document."""

    def ids(*texts: str) -> list[int]:
        return [i for text in texts for i in tokenizer(text, add_special_tokens=False)["input_ids"]]

    outside, first, after = around
    prompts = []
    for query, document in pairs:
        left = first + ids(labels[0] + query)[: limit * 3 // 4]
        right = ids("\n") + ids(labels[1] + document)[:limit]
        prompts.append(ids(*outside) + left + right[: limit - len(left)] + ids(*after))
    return last_logits(model, tokenizer, prompts)


MXBAI_TASK = (
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document "
    "pair, carefully analyze the semantic relationship between them, then provide your binary relevance judgment "
    "(0 for not relevant, 1 for relevant).\nRelevance:"
)
MXBAI_CHAT = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n"
)
GEMMA_TASK = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
    "prediction of either 'Yes' or 'No'."
)


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    task = with_marks(tiny.a_task(longest=60))
    return pairs_of(task, tiny.first_stage(task, depth=10))


@pytest.mark.parametrize("batch", [1, 4096])
@pytest.mark.parametrize("eos", [False, True])
@pytest.mark.parametrize("limit", [8192, 240])
def test_qwen3_reranker(tmp_path: Path, pairs: Pairs, limit: int, eos: bool, batch: int) -> None:
    tokenizer = tiny_lm.save_qwen_tokenizer(tmp_path, eos=eos)
    model = tiny_lm.save_causal(tmp_path, "qwen3", len(tokenizer))
    card = get_card("qwen3-reranker-0.6b").replace(query_length=limit, document_length=limit)
    scorer = JudgingModel(card, tmp_path, replace(CPU, batch_tokens=batch))
    texts = pairs.texts(np.arange(len(pairs)))
    wanted = plain_qwen3(model, tokenizer, texts, limit, INSTRUCTION)
    made = np.full(len(pairs), np.nan, dtype=np.float32)
    cut = 0
    for scored in scorer.stream(pairs):
        made[scored.rows] = scored.scores
        cut += int((scored.cut[:, 0] > 0).sum())
        assert not scored.cut[:, 1].any()
    assert np.ptp(wanted) > 0.1
    assert (cut > 5) == (limit < 8192)
    np.testing.assert_allclose(made, wanted, atol=1e-5)


@pytest.mark.parametrize("limit", [8192, 48])
@pytest.mark.parametrize("name", ["mxbai-rerank-base-v2", "mxbai-rerank-large-v2"])
def test_mxbai_rerank(tmp_path: Path, pairs: Pairs, name: str, limit: int) -> None:
    tokenizer = tiny_lm.save_qwen_tokenizer(tmp_path)
    model = tiny_lm.save_causal(tmp_path, "qwen2", len(tokenizer))
    card = get_card(name).replace(query_length=limit, document_length=limit)
    around: Any = (MXBAI_CHAT,), [], ("\n", MXBAI_TASK, "<|im_end|>\n<|im_start|>assistant\n")
    texts = pairs.texts(np.arange(len(pairs)))
    logits = plain_parts(model, tokenizer, texts, limit, ("query: ", "document: "), around)
    yes, no = (tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in "10")
    wanted = (logits[:, yes] - logits[:, no]).numpy()
    assert np.ptp(wanted) > 0.1
    np.testing.assert_allclose(scores(JudgingModel(card, tmp_path, CPU), pairs), wanted, atol=1e-5)


@pytest.mark.parametrize("limit", [512, 40])
def test_bge_reranker_v2_gemma(tmp_path: Path, pairs: Pairs, limit: int) -> None:
    tokenizer = tiny_lm.save_gemma_tokenizer(tmp_path)
    model = tiny_lm.save_causal(tmp_path, "gemma", len(tokenizer))
    card = get_card("bge-reranker-v2-gemma").replace(query_length=limit, document_length=limit)
    around: Any = (), [tokenizer.bos_token_id], ("\n", GEMMA_TASK)
    logits = plain_parts(model, tokenizer, pairs.texts(np.arange(len(pairs))), limit, ("A: ", "B: "), around)
    wanted = logits[:, tokenizer("Yes", add_special_tokens=False)["input_ids"][0]].numpy()
    assert np.ptp(wanted) > 0.1
    np.testing.assert_allclose(scores(JudgingModel(card, tmp_path, CPU), pairs), wanted, atol=1e-5)


def test_a_task_has_its_own_instruction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, from the folder of one's own; the family's line unless a pack says another."""
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    folder = tmp_path / "models" / "qwen3-reranker-0.6b"
    tokenizer = tiny_lm.save_qwen_tokenizer(folder)
    model = tiny_lm.save_causal(folder, "qwen3", len(tokenizer))
    pack = tmp_path / "mine.toml"
    pack.write_text('[query]\ndefault = "Find the cause"\n')
    task = replace(tiny.a_task(), family="Clinical case")
    first = tiny.first_stage(task)
    asked = {
        "qwen3-reranker-0.6b": get_card("qwen3-reranker-0.6b").instruction("query", "Clinical case"),
        f"qwen3-reranker-0.6b:prompts={pack}": "Find the cause",
    }
    seen = []
    for spec, instruction in asked.items():
        reranker = Builder(CPU).reranker(spec)
        assert isinstance(reranker, PointwiseReranker)
        run = reranker.rerank(task, first, 12)
        hit = run.row(0)[0]
        document = task.documents.get(hit.doc_id)
        assert document is not None
        wanted = plain_qwen3(model, tokenizer, [(task.queries[0].text, document.text)], 8192, instruction)
        assert hit.score == pytest.approx(wanted[0], abs=1e-5)
        seen.append(json.dumps(reranker.describe(), sort_keys=True))
    assert seen[0] != seen[1]
    assert "Judge whether" in seen[0]


def test_a_long_query_leaves_room_for_the_document(tmp_path: Path) -> None:
    tokenizer = tiny_lm.save_qwen_tokenizer(tmp_path)
    tiny_lm.save_causal(tmp_path, "qwen3", len(tokenizer))
    card = get_card("qwen3-reranker-0.6b").replace(query_length=512, document_length=512)
    scorer = JudgingModel(card, tmp_path, CPU)
    pairs = Pairs(["fever " * 900], ["rash " * 900], np.zeros(1, np.int32), np.zeros(1, np.int32))
    (item,) = scorer.tokenize(pairs)
    assert len(item) == 512
    assert tokenizer.decode(item.ids).count("rash") >= 512 // 8 - 8
    assert min(item.cut) > 0


def test_a_language_model_without_its_head_is_refused(tmp_path: Path, pairs: Pairs) -> None:
    """Files leave out a head that is tied to the embeddings; here the configuration says that it is not."""
    tokenizer = tiny_lm.save_qwen_tokenizer(tmp_path)
    tiny_lm.save_causal(tmp_path, "qwen3", len(tokenizer))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    with pytest.raises(ModelError, match=r"the weights lack lm_head\.weight: this is not the whole model"):
        scores(JudgingModel(get_card("qwen3-reranker-0.6b"), tmp_path, CPU), pairs)


def test_models_that_cannot_judge(tmp_path: Path) -> None:
    tokenizer = tiny_lm.save_qwen_tokenizer(tmp_path)
    tiny_lm.save_causal(tmp_path, "qwen3", len(tokenizer))
    task = tiny.a_task()
    pairs = pairs_of(task, tiny.first_stage(task))
    card = get_card("qwen3-reranker-0.6b")
    assert card.judgment is not None
    strange = card.replace(judgment=type(card.judgment)(yes="certainly", no="no"))
    with pytest.raises(ModelError, match="'certainly' is not one token"):
        scores(JudgingModel(strange, tmp_path, CPU), pairs)
    short = card.replace(query_length=20, document_length=20)
    with pytest.raises(ModelError, match="20 tokens leaves no room"):
        scores(JudgingModel(short, tmp_path, CPU), pairs)
    with pytest.raises(UsageError, match="no parameter 'logit'"):
        Builder(CPU).reranker("qwen3-reranker-0.6b:logit=1")
    for weights in tmp_path.glob("*.safetensors"):
        weights.unlink()
    with pytest.raises(ModelError, match="no weights"):
        JudgingModel(card, tmp_path, CPU)
