"""Every architecture of the catalogue against plain transformers code, to 1e-5."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.core import ModelError, Query, Run, Task, UsageError
from r2med.core.options import Options
from r2med.core.spec import Spec
from r2med.pipeline import Builder
from r2med.rerank import as_reranker
from r2med.rerank.pairs import Pairs
from r2med.rerank.pointwise import PointwiseReranker
from r2med.rerank.torch_cross_encoder import TorchCrossEncoder
from tests.retrieve.encoders.tiny import WORDS, change_weights

from . import tiny

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("transformers", reason="the torch extra is not installed")
torch.set_num_threads(1)  # tiny models: more threads only wait for each other
BATCHES = [1, 32 * 64]
CPU = Options(device="cpu")


def plain(
    model: Any, tokenizer: Any, query: str, document: str, logit: int = 0, limit: int = 64, cut: str = "only_second"
) -> float:
    """One pair at a time, nothing padded, as a model card shows it."""
    inputs = tokenizer(query, document, truncation=cut, max_length=limit, return_tensors="pt")
    with torch.no_grad():
        return float(model(**inputs).logits[0, logit])


def pairs_of(task: Task, run: Run) -> Pairs:
    row, column = np.nonzero(run.docs >= 0)
    return Pairs(task.query_texts, task.documents.contents, row.astype(np.int32), run.docs[row, column])


def ours_of(folder: Path) -> PointwiseReranker:
    card = tiny.card("bert")
    return PointwiseReranker(TorchCrossEncoder(card, folder, CPU), Spec(card.name), CPU)


def scores(scorer: Any, pairs: Pairs) -> np.ndarray[Any, Any]:
    made = np.full(len(pairs), np.nan, dtype=np.float32)
    for scored in scorer.stream(pairs):
        made[scored.rows] = scored.scores
    return made


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any, Any]]:
    made = {}
    for style, labels in (("bert", 1), ("bert-2", 2), ("xlm-roberta", 1)):
        folder = tmp_path_factory.mktemp(style)
        kind = style.removesuffix("-2")
        made[style] = folder, tiny.save_classifier(folder, kind, labels=labels), tiny.save_tokenizer(folder, kind)
    return made


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("style", "logit"), [("bert", 0), ("bert-2", 1), ("xlm-roberta", 0)])
def test_encoders(folders: dict[str, tuple[Path, Any, Any]], style: str, logit: int, batch: int) -> None:
    folder, model, tokenizer = folders[style]
    task = tiny.a_task(longest=90)  # some are cut
    pairs = pairs_of(task, tiny.first_stage(task))
    card = tiny.card(style.removesuffix("-2"), logit=logit)
    scorer = TorchCrossEncoder(card, folder, Options(device="cpu", batch_tokens=batch))
    expected = [plain(model, tokenizer, q, d, logit) for q, d in pairs.texts(np.arange(len(pairs)))]
    np.testing.assert_allclose(scores(scorer, pairs), expected, atol=1e-5)


@pytest.mark.parametrize("batch", BATCHES)
def test_llama_with_a_merged_adapter(tmp_path: Path, batch: int) -> None:
    pytest.importorskip("peft", reason="the torch extra is not installed")
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    tiny.save_classifier(base, "llama")
    tokenizer = tiny.save_tokenizer(base, "llama")
    adapted = tiny.save_adapter(base, adapter)
    task = tiny.a_task(longest=90)
    pairs = pairs_of(task, tiny.first_stage(task, depth=8))
    card = tiny.card(
        "llama", query_template="query: {text}", document_template="document: {text}", base_source="tests/base"
    )
    scorer = TorchCrossEncoder(card, adapter, Options(device="cpu", batch_tokens=batch), base=base)
    expected = [
        plain(adapted, tokenizer, f"query: {q}", f"document: {d}") for q, d in pairs.texts(np.arange(len(pairs)))
    ]
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(scores(scorer, pairs), expected, atol=1e-5)
    assert "base" in scorer.describe()


def save_monobert(folder: Path) -> tuple[Any, Any]:
    """The files of castorini/monobert-large-msmarco: a configuration of 2019 without `model_type`, a pickle, words."""
    import string

    import transformers as tf

    pieces = [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase), *WORDS]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]
    shape = {
        "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 32,
        "initializer_range": 0.5, "intermediate_size": 64, "layer_norm_eps": 1e-12, "max_position_embeddings": 64,
        "num_attention_heads": 4, "num_hidden_layers": 2, "type_vocab_size": 2, "vocab_size": len(words),
    }  # fmt: skip
    old: dict[str, object] = {"finetuning_task": None, "num_labels": 2, "output_attentions": False, "pruned_heads": {}}
    torch.manual_seed(0)
    model: Any = tf.BertForSequenceClassification(tf.BertConfig(**shape, num_labels=2)).eval()
    folder.mkdir(parents=True)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps({**shape, **old}))
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return model, tf.BertTokenizer(str(folder / "vocab.txt"))


def test_monobert_as_it_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, from a pickle, without `model_type`; longest-first and in float32 under the paper's protocol."""
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    model, tokenizer = save_monobert(tmp_path / "models" / "monobert")
    with pytest.raises(ModelError, match="allow them with --allow-pickle, or in a spec, monobert:allow_pickle=yes"):
        Builder(CPU).reranker("monobert:max_length=64")
    task = tiny.a_task(longest=90)
    task = replace(task, queries=(Query("q0", "fever and acute pain " * 12), *task.queries[1:]))
    first = tiny.first_stage(task)
    pickled = Options(device="cpu", allow_pickle=True)
    for spec, options, cut in (
        ("monobert:max_length=64,protocol=r2med-paper", pickled, "longest_first"),
        ("monobert:max_length=64,truncation=longest-first", pickled, "longest_first"),
        ("monobert:max_length=64,allow_pickle=yes", CPU, None),
    ):
        reranker = Builder(options).reranker(spec)
        run = reranker.rerank(task, first, 12)
        assert isinstance(reranker, PointwiseReranker)
        made = scores(reranker.scorer, pairs_of(task, first))
        texts = pairs_of(task, first).texts(np.arange(12 if cut else 48))[0 if cut else 12 :]
        wanted = [plain(model, tokenizer, q, d, 1, cut=cut or "only_second") for q, d in texts]
        np.testing.assert_allclose(made[:12] if cut else made[12:], wanted, atol=1e-5)
        assert run.notes["rerank"]["truncation"]["limit"] == 64  # type: ignore[index]
        assert reranker.describe()["dtype"] == "float32"
        assert reranker.describe().get("truncation") == (cut and "longest-first")
        assert "pickle" not in reranker.name
        assert "pickle" not in str(reranker.describe())


def test_precision_is_the_cards_under_the_papers_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    for name, adapter in (("rankllama", tmp_path / "models" / "rankllama"),):
        base = tmp_path / "models" / name / "base"
        tiny.save_classifier(base, "llama")
        tiny.save_tokenizer(base, "llama")
        tiny.save_adapter(base, adapter)
    described = {
        spec: Builder(CPU).reranker(spec).describe()
        for spec in ("rankllama", "rankllama:protocol=r2med-paper", "rankllama:dtype=bfloat16,protocol=r2med-paper")
    }
    assert [facts["dtype"] for facts in described.values()] == ["float32", "float16", "bfloat16"]
    assert [facts.get("truncation") for facts in described.values()] == [None, "longest-first", "longest-first"]


def test_an_adapter_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="the torch extra is not installed")
    base = tmp_path / "base"
    tiny.save_classifier(base, "llama")
    tiny.save_tokenizer(base, "llama")
    card = tiny.card("llama", base_source="tests/base")
    task = tiny.a_task()
    pairs = pairs_of(task, tiny.first_stage(task))
    for files, message in (((), "adapter_config"), (("adapter_config.json",), "no weights"),
                           (("adapter_config.json", "adapter_model.bin"), "pickled")):  # fmt: skip
        folder = tmp_path / f"adapter{len(files)}"
        folder.mkdir()
        for name in files:
            (folder / name).write_text("{}")
        with pytest.raises(ModelError, match=message):
            scores(TorchCrossEncoder(card, folder, CPU, base=base), pairs)


@pytest.mark.parametrize(
    ("style", "lost"), [("bert", "classifier.bias"), ("bert", "bert.pooler.dense.weight"), ("llama", "score.weight")]
)
def test_a_classifier_without_its_head_is_refused(tmp_path: Path, style: str, lost: str) -> None:
    """BERT's classifier reads the pooler, which encoders do without."""
    tiny.save_classifier(tmp_path, style)
    tiny.save_tokenizer(tmp_path, style)
    change_weights(tmp_path, lost)
    task = tiny.a_task()
    pairs = pairs_of(task, tiny.first_stage(task))
    with pytest.raises(ModelError, match=f"{tmp_path}: the weights lack {lost}: this is not the whole model"):
        scores(TorchCrossEncoder(tiny.card(style), tmp_path, CPU), pairs)


def test_the_head_comes_with_the_adapter_or_with_its_base(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="the torch extra is not installed")
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    tiny.save_classifier(base, "llama")
    tiny.save_tokenizer(base, "llama")
    tiny.save_adapter(base, adapter)
    task = tiny.a_task()
    pairs = pairs_of(task, tiny.first_stage(task))

    def scored() -> Any:
        return scores(TorchCrossEncoder(tiny.card("llama", base_source="tests/base"), adapter, CPU, base=base), pairs)

    whole = scored()
    change_weights(base, "score.weight")
    assert np.array_equal(scored(), whole)
    layer = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"
    change_weights(adapter, layer)
    with pytest.raises(ModelError, match=f"{adapter}: the weights lack {layer}"):
        scored()
    change_weights(adapter, "base_model.model.score.weight")
    with pytest.raises(ModelError, match=rf"{base}: the weights lack score\.weight"):
        scored()


def test_sentence_transformers_object_gives_the_same_order(folders: dict[str, tuple[Path, Any, Any]]) -> None:
    library = pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")
    folder = folders["bert"][0]
    task = tiny.a_task()
    first = tiny.first_stage(task)
    theirs = as_reranker(library.CrossEncoder(str(folder), device="cpu")).rerank(task, first, 10)
    ours = ours_of(folder).rerank(task, first, 10)
    assert (theirs.docs == ours.docs).all()


def test_truncation_is_counted_and_the_query_kept(folders: dict[str, tuple[Path, Any, Any]]) -> None:
    folder = folders["bert"][0]
    task = tiny.a_task(queries=2, longest=90)
    task = replace(task, queries=(Query("q0", "fever " * 200), task.queries[1]))
    run = ours_of(folder).rerank(task, tiny.first_stage(task, 20), 20)
    note = run.notes["rerank"]["truncation"]  # type: ignore[index]
    assert note["queries_cut"] == 1
    assert note["query_tokens_cut"] >= 20 * (200 - 61 + 1)
    assert note["documents_cut"] > 0
    assert note["limit"] == 64


def test_a_folder_says_how_many_classes_it_has(folders: dict[str, tuple[Path, Any, Any]], tmp_path: Path) -> None:
    for style, logit in (("bert", 0), ("bert-2", 1)):
        folder, model, tokenizer = folders[style]
        task = tiny.a_task()
        run = Builder(CPU).reranker(f"{folder}:max_length=64").rerank(task, tiny.first_stage(task), 3)
        hit = run.row(0)[0]
        document = task.documents.get(hit.doc_id)
        assert document is not None
        assert hit.score == pytest.approx(plain(model, tokenizer, task.queries[0].text, document.text, logit), abs=1e-5)
    tiny.save_classifier(tmp_path, "bert", labels=3)
    tiny.save_tokenizer(tmp_path, "bert")
    with pytest.raises(UsageError, match="3 classes"):
        Builder(CPU).reranker(str(tmp_path))
    assert Builder(CPU).reranker(f"{tmp_path}:logit=2").describe()["logit"] == 2


def test_folders_that_are_no_classifier(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="no weights"):
        TorchCrossEncoder(tiny.card("bert"), tmp_path, CPU)
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="pickled"):
        TorchCrossEncoder(tiny.card("bert"), tmp_path, CPU)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_on_a_gpu(folders: dict[str, tuple[Path, Any, Any]], dtype: str) -> None:
    folder, model, tokenizer = folders["xlm-roberta"]
    task = tiny.a_task(longest=90)
    pairs = pairs_of(task, tiny.first_stage(task))
    scorer = TorchCrossEncoder(tiny.card("xlm-roberta"), folder, Options(device="cuda"), dtype=dtype)
    expected = np.array([plain(model, tokenizer, q, d) for q, d in pairs.texts(np.arange(len(pairs)))])
    tolerance = 1e-4 if dtype == "float32" else 0.05 * np.abs(expected).max()
    np.testing.assert_allclose(scores(scorer, pairs), expected, atol=tolerance)
