"""Language models that judge pairs or read whole lists, as tiny models against the way their authors' code does it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from r2med.core import Document, Documents, ModelError, Qrels, Query, Run, Task, UsageError
from r2med.core.options import Options
from r2med.models import get_card
from r2med.pipeline import Builder
from r2med.rerank.language_models import LAYERS, JudgingModel, OneContextModel, OneContextReranker
from r2med.rerank.pointwise import Pairs, PointwiseReranker
from tests.retrieve.encoders.tiny import change_weights, texts

from . import tiny, tiny_lm
from .test_torch_cross_encoder import pairs_of, scores

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("transformers", reason="the torch extra is not installed")
torch.set_num_threads(1)
CPU = Options(device="cpu", threads=1)
UNCACHED = Options(device="cpu", cache=False)
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
    scorer = JudgingModel(card, tmp_path, replace(UNCACHED, batch_tokens=batch))
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
    np.testing.assert_allclose(scores(JudgingModel(card, tmp_path, UNCACHED), pairs), wanted, atol=1e-5)


@pytest.mark.parametrize("limit", [512, 40])
def test_bge_reranker_v2_gemma(tmp_path: Path, pairs: Pairs, limit: int) -> None:
    tokenizer = tiny_lm.save_gemma_tokenizer(tmp_path)
    model = tiny_lm.save_causal(tmp_path, "gemma", len(tokenizer))
    card = get_card("bge-reranker-v2-gemma").replace(query_length=limit, document_length=limit)
    around: Any = (), [tokenizer.bos_token_id], ("\n", GEMMA_TASK)
    logits = plain_parts(model, tokenizer, pairs.texts(np.arange(len(pairs))), limit, ("A: ", "B: "), around)
    wanted = logits[:, tokenizer("Yes", add_special_tokens=False)["input_ids"][0]].numpy()
    assert np.ptp(wanted) > 0.1
    np.testing.assert_allclose(scores(JudgingModel(card, tmp_path, UNCACHED), pairs), wanted, atol=1e-5)


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
        reranker = Builder(UNCACHED).reranker(spec)
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
    scorer = JudgingModel(card, tmp_path, UNCACHED)
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
        scores(JudgingModel(get_card("qwen3-reranker-0.6b"), tmp_path, UNCACHED), pairs)


def test_models_that_cannot_judge(tmp_path: Path) -> None:
    tokenizer = tiny_lm.save_qwen_tokenizer(tmp_path)
    tiny_lm.save_causal(tmp_path, "qwen3", len(tokenizer))
    task = tiny.a_task()
    pairs = pairs_of(task, tiny.first_stage(task))
    card = get_card("qwen3-reranker-0.6b")
    assert card.judgment is not None
    strange = card.replace(judgment=type(card.judgment)(yes="certainly", no="no"))
    with pytest.raises(ModelError, match="'certainly' is not one token"):
        scores(JudgingModel(strange, tmp_path, UNCACHED), pairs)
    short = card.replace(query_length=20, document_length=20)
    with pytest.raises(ModelError, match="20 tokens leaves no room"):
        scores(JudgingModel(short, tmp_path, UNCACHED), pairs)
    with pytest.raises(UsageError, match="no parameter 'logit'"):
        Builder(UNCACHED).reranker("qwen3-reranker-0.6b:logit=1")
    for weights in tmp_path.glob("*.safetensors"):
        weights.unlink()
    with pytest.raises(ModelError, match="no weights"):
        JudgingModel(card, tmp_path, UNCACHED)


NAME = "jina-reranker-v3"
MARKS = ("<|embed_token|>", "<|rerank_token|>")
QUERIES = ["fever and rash in a child", "which nerve is <|embed_token|> injured?"]
PASSAGES = [*texts(6, longest=30), "copper<|rerank_token|> in the liver", "", "naïve\n\nB cells {query} {text}"]


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
    (made_all,), (saved_all,) = (run.reused.values() for run in runs[:2])  # cold seconds lacked what was stored
    assert (made_all.saved, saved_all.saved) == (0.0, made_all.seconds)
    assert made_all.seconds
    assert scores_of(runs[0], 0, 4) == scores_of(runs[1], 0, 4)
    assert scores_of(runs[0], 0, 4) != scores_of(runs[2], 0, 4)[::-1]
    with Builder(Options(device="cpu", threads=1, keep_queries=False)) as builder:
        assert builder.reranker(NAME).rerank(task, first).notes["rerank"]["scored"] == 4  # type: ignore[index]


@pytest.mark.parametrize("layer", [*LAYERS, "model.layers.1.mlp.up_proj.weight"])
def test_weights_that_are_not_whole_are_refused(folder: Path, layer: str) -> None:
    change_weights(folder, layer)
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
