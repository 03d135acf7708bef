"""The retrievers of 2025 and 2026 by their names: the files their authors published, in small.

Each is loaded from R2MED_HOME as a user's own copy would be, and compared with sentence-transformers or with plain
transformers, one text at a time and nothing padded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.core import ModelError, UsageError
from r2med.core.options import Options
from r2med.models import cards, get_card
from r2med.retrieve import get_retriever, retrievers
from r2med.retrieve.dense import DenseRetriever
from r2med.retrieve.encoders import Float32

from . import tiny, tiny_field
from .test_published import raw_ids

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("transformers", reason="the torch extra is not installed")

LIMIT = 60
CPU = Options(device="cpu", threads=1, allow_pickle=True, trust_remote_code=True)
"""A user who trusts any code: what is built here runs none all the same."""
TEXTS = [*tiny.texts(16, longest=30), " begins with a space", "fever\n\nand rash", "Morbus Crohn: naïve"]
TASK = "Given a case of fever, retrieve passages"


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    return tmp_path / "models"


def loaded(name: str, **parameters: object) -> DenseRetriever:
    given = ",".join(f"{key}={value}" for key, value in {"max_length": LIMIT, **parameters}.items())
    retriever = get_retriever(f"{name}:{given}", CPU)
    assert isinstance(retriever, DenseRetriever)
    return retriever


def encoded(name: str, side: Any, prefix: str, **parameters: object) -> Float32:
    return loaded(name, **parameters).encoder.encode(TEXTS, side, prefix)


def prefix_of(name: str, side: Any) -> str:
    """What stands before a text of a side for an instruction of the test's own."""
    return get_card(name).prefix(side, TASK)


def unit(vectors: Any) -> Any:
    return torch.nn.functional.normalize(torch.stack(list(vectors)), dim=-1).numpy()


def last_state(model: Any, ids: list[int]) -> Any:
    return model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]


@pytest.mark.parametrize("name", ["reason-embed-8b", "reason-embed-4b", "reason-embed-llama-8b"])
def test_reason_embed(models: Path, name: str) -> None:
    """The last token whatever it is, and a full stop behind every instruction."""
    folder = models / name
    if name.endswith("llama-8b"):
        model = tiny_field.save_model(folder, "llama", tiny_field.save_llama3_tokenizer(folder))
    else:
        model = tiny_field.save_model(folder, "qwen3", tiny_field.save_qwen_tokenizer(folder, ends=False))
    assert prefix_of(name, "query") == f"Instruct: {TASK}.\nQuery: "
    assert get_card(name).prefix("query", f"{TASK}.") == f"Instruct: {TASK}.\nQuery: "
    assert prefix_of(name, "document") == ""
    for side in ("query", "document"):
        prefix = prefix_of(name, side)
        wanted = unit(last_state(model, ids) for ids in raw_ids(folder, [prefix + text for text in TEXTS], LIMIT))
        assert np.abs(encoded(name, side, prefix) - wanted).max() < 1e-5


QWEN = ["qwen3-embed-0.6b", "qwen3-embed-4b", "qwen3-embed-8b", "diver-0.6b", "diver-1.7b", "diver-4b", "diver-4b-1020"]


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("name", QWEN)
def test_qwen3_embedding_and_diver(models: Path, name: str, ends: bool) -> None:
    """The state of <|endoftext|>, which ends every text, whether or not the tokenizer's file appends it."""
    folder = models / name
    model = tiny_field.save_model(folder, "qwen3", tiny_field.save_qwen_tokenizer(folder, ends=ends))
    assert prefix_of(name, "query") == f"Instruct: {TASK}\nQuery:"
    assert prefix_of(name, "document") == ("Represent this text:" if name.startswith("diver") else "")
    for side in ("query", "document"):
        prefix = prefix_of(name, side)
        ids = raw_ids(folder, [prefix + text for text in TEXTS], LIMIT if ends else LIMIT - 1)
        wanted = unit(last_state(model, each if ends else [*each, 0]) for each in ids)
        assert np.abs(encoded(name, side, prefix) - wanted).max() < 1e-5


def test_rader(models: Path) -> None:
    """The state of <|im_end|>, with attention to what stands before; the code beside the weights is not run."""
    folder = models / "rader"
    size = tiny_field.save_qwen_tokenizer(folder, ends=False, eos="<|endoftext|>")
    model = tiny_field.save_model(folder, "qwen2", size)
    tiny_field.add_code(folder, "modeling_qwen", {"AutoModel": "Qwen2Model"})
    for side, prefix in (("query", "query: "), ("document", "document: ")):
        assert prefix_of("rader", side) == prefix
        ids = raw_ids(folder, [prefix + text for text in TEXTS], LIMIT - 1)
        wanted = unit(last_state(model, [*each, 2]) for each in ids)
        assert np.abs(encoded("rader", side, prefix) - wanted).max() < 1e-5


def test_a_tokenizer_without_the_token_that_ends_texts(models: Path) -> None:
    folder = models / "rader"
    size = tiny_field.save_byte_tokenizer(
        folder, special=["<|endoftext|>"], tokenizer_class="Qwen2Tokenizer", eos_token="<|endoftext|>"
    )
    tiny_field.save_model(folder, "qwen2", size)
    with pytest.raises(ModelError, match=r"^the tokenizer of rader has no token <\|im_end\|>$"):
        encoded("rader", "query", "")


def both_ways(model: Any) -> Any:
    """The same model without a causal mask, by transformers' own switch."""
    model.config.is_causal = False
    model.set_attn_implementation("eager")
    return model


def test_gte_qwen2(models: Path) -> None:
    """Attention in both directions and the state of <|endoftext|>; the code beside the weights is not run."""
    folder = models / "gte-qwen2"
    size = tiny_field.save_qwen_tokenizer(folder, ends=False, eos="<|endoftext|>", add_eos_token=True)
    model = tiny_field.save_model(folder, "qwen2", size)
    tiny_field.add_code(folder, "modeling_qwen", {"AutoModel": "Qwen2Model"}, tokenizer="tokenization_qwen")
    model = both_ways(model)
    assert prefix_of("gte-qwen2", "query") == f"Instruct: {TASK}\nQuery: "
    for side in ("query", "document"):
        prefix = prefix_of("gte-qwen2", side)
        ids = raw_ids(folder, [prefix + text for text in TEXTS], LIMIT - 1)
        wanted = unit(last_state(model, [*each, 0]) for each in ids)
        assert np.abs(encoded("gte-qwen2", side, prefix) - wanted).max() < 1e-5


def test_reasonir(models: Path) -> None:
    """Attention in both directions, and the mean of the text without what stands before it, as without its code."""
    folder = models / "reasonir"
    model = both_ways(tiny_field.save_model(folder, "llama", tiny_field.save_llama3_tokenizer(folder)))
    tiny_field.add_code(folder, "modeling_reasonir_8b", {"AutoModel": "ReasonIRModel"})
    assert get_card("reasonir").prefix("query", "") == ""
    prefixes = {"query": f"<|user|>\n{TASK}\n<|embed|>\n", "document": "<|embed|>\n"}
    for side, prefix in prefixes.items():
        assert prefix_of("reasonir", side) == prefix
        skip = len(raw_ids(folder, [prefix], 1000)[0])
        ids = raw_ids(folder, [prefix + text for text in TEXTS], 90)
        assert min(map(len, ids)) > skip
        wanted = unit(model(input_ids=torch.tensor([each])).last_hidden_state[0, skip:].mean(dim=0) for each in ids)
        assert np.abs(encoded("reasonir", side, prefix, max_length=90) - wanted).max() < 1e-5
    whole = unit(
        model(input_ids=torch.tensor([each])).last_hidden_state[0].mean(dim=0) for each in raw_ids(folder, TEXTS, LIMIT)
    )
    assert np.abs(encoded("reasonir", "query", "") - whole).max() < 1e-5


def save_peer(folder: Path, plain: Path, *after: Any, length: int = LIMIT, **how: Any) -> Any:
    """A model as sentence-transformers saves it, from a plain one."""
    library = pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")
    from sentence_transformers.sentence_transformer import modules

    base = modules.Transformer(str(plain), max_seq_length=length)
    peer = library.SentenceTransformer(modules=[base, *after], device="cpu", **how)
    peer.save(str(folder))
    return peer


def dense(into: int, out: int) -> Any:
    from sentence_transformers.sentence_transformer import modules

    return modules.Dense(into, out, bias=False, activation_function=torch.nn.Identity())


def pooling(mode: str) -> Any:
    from sentence_transformers.sentence_transformer import modules

    return modules.Pooling(32, mode)


def normalize() -> Any:
    from sentence_transformers.sentence_transformer import modules

    return modules.Normalize()


def test_embeddinggemma(models: Path) -> None:
    """Gemma 3 that reads both ways within its window, the mean of all tokens, two dense layers, unit length."""
    pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")
    plain = models.parent / "plain"
    size = tiny_field.save_gemma_tokenizer(plain)
    tiny_field.save_model(plain, "gemma3", size, use_bidirectional_attention=True)
    prompts = {"query": "task: search result | query: ", "document": "title: none | text: "}
    steps = [pooling("mean"), dense(32, 64), dense(64, 32), normalize()]
    peer = save_peer(models / "embeddinggemma", plain, *steps, prompts=prompts)
    assert prefix_of("embeddinggemma", "query") == prompts["query"]
    assert prefix_of("embeddinggemma", "document") == prompts["document"]
    made = encoded("embeddinggemma", "query", prompts["query"])
    assert np.abs(made - peer.encode_query(TEXTS)).max() < 1e-5
    made = encoded("embeddinggemma", "document", prompts["document"])
    assert np.abs(made - peer.encode_document(TEXTS)).max() < 1e-5


@pytest.mark.parametrize("mode", ["cls", "mean"])
@pytest.mark.parametrize("name", ["gte-modernbert", "medembed", "medembed-large"])
def test_pooling_is_read_from_the_files_of_models_whose_card_leaves_it_open(models: Path, name: str, mode: str) -> None:
    pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")
    plain = models.parent / "plain"
    if name == "gte-modernbert":
        tiny_field.save_model(plain, "modernbert", tiny_field.save_modernbert_tokenizer(plain))
    else:
        tiny.save_model(plain, "bert")
        tiny.save_tokenizer(plain, "bert")
    steps = [pooling(mode), normalize()] if mode == "cls" else [pooling(mode)]
    peer = save_peer(models / name, plain, *steps)
    for side in ("query", "document"):
        assert np.abs(encoded(name, side, "") - peer.encode(TEXTS)).max() < 1e-5
    retriever = loaded(name)
    assert retriever.card is not None
    assert (retriever.card.pooling, retriever.card.normalize) == (mode, mode == "cls")
    (models / name / "modules.json").unlink()
    with pytest.raises(ModelError, match=r"has no modules\.json, so it does not say how it pools$"):
        loaded(name)


def test_bge_m3(models: Path) -> None:
    """The first token of an XLM-RoBERTa, from a pickle; positions are counted from two."""
    pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")
    plain, folder = models.parent / "plain", models / "bge-m3"
    model = tiny_field.save_model(plain, "xlm-roberta", tiny_field.save_xlm_roberta_tokenizer(plain))
    peer = save_peer(folder, plain, pooling("cls"), normalize())
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    for side in ("query", "document"):
        assert np.abs(encoded("bge-m3", side, "") - peer.encode(TEXTS)).max() < 1e-5


@pytest.mark.parametrize("mode", ["cls", "mean", "lasttoken"])
@pytest.mark.parametrize("layers", [0, 1, 2])
def test_any_folder_of_sentence_transformers(tmp_path: Path, mode: str, layers: int) -> None:
    """Its prompts, pooling, dense layers and normalisation, as that library runs them."""
    pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")
    from sentence_transformers.sentence_transformer import modules

    plain = tmp_path / "plain"
    tiny_field.save_model(plain, "qwen3", tiny_field.save_qwen_tokenizer(plain, ends=True))
    steps = [modules.Dense(32, 20), modules.Dense(20, 12, activation_function=torch.nn.GELU())][:layers]
    end = [normalize()] if layers != 1 else []
    prompts = {"query": "Instruct: find fever\nQuery:", "document": "text: "}
    peer = save_peer(tmp_path / "model", plain, pooling(mode), *steps, *end, prompts=prompts)
    retriever = get_retriever(str(tmp_path / "model"), CPU)
    assert isinstance(retriever, DenseRetriever)
    assert retriever.card is not None
    assert retriever.card.dimension == peer.get_embedding_dimension() == (32, 20, 12)[layers]
    for side, encode in (("query", peer.encode_query), ("document", peer.encode_document)):
        made = retriever.encoder.encode(TEXTS, side, retriever.instruction(side))  # type: ignore[arg-type]
        assert np.abs(made - encode(TEXTS)).max() < 1e-5


@pytest.mark.parametrize("architecture", ["modernbert", "qwen3"])
def test_a_mean_without_the_prompt_leaves_out_no_token_of_the_text(tmp_path: Path, architecture: str) -> None:
    """What its tokenizer puts behind every text, [SEP] or another mark, is no part of the prompt."""
    pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")
    plain = tmp_path / "plain"
    if architecture == "qwen3":
        tiny_field.save_model(plain, "qwen3", tiny_field.save_qwen_tokenizer(plain, ends=True))
    else:
        tiny_field.save_model(plain, "modernbert", tiny_field.save_modernbert_tokenizer(plain))
    peer = save_peer(tmp_path / "model", plain, pooling("mean"), normalize(), prompts={"query": "find fever: "})
    peer.set_pooling_include_prompt(False)
    peer.save(str(tmp_path / "model"))
    retriever = get_retriever(str(tmp_path / "model"), CPU)
    assert isinstance(retriever, DenseRetriever)
    made = retriever.encoder.encode(TEXTS, "query", retriever.instruction("query"))
    assert np.abs(made - peer.encode_query(TEXTS)).max() < 1e-5


def test_a_folder_whose_texts_are_written_in_lower_case(tmp_path: Path) -> None:
    """`do_lower_case` of sentence-transformers, over a tokenizer that tells capitals apart."""
    pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")
    from sentence_transformers import SentenceTransformer

    plain, folder = tmp_path / "plain", tmp_path / "model"
    tiny_field.save_model(plain, "qwen3", tiny_field.save_qwen_tokenizer(plain, ends=True))
    save_peer(folder, plain, pooling("mean"), prompts={"query": "Find FEVER: "})
    retriever = get_retriever(str(folder), CPU)
    assert isinstance(retriever, DenseRetriever)
    as_written = retriever.encoder.encode(TEXTS, "query", "Find FEVER: ")
    settings = folder / "sentence_bert_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "do_lower_case": True}))
    lowered = get_retriever(str(folder), CPU)
    assert isinstance(lowered, DenseRetriever)
    made = lowered.encoder.encode(TEXTS, "query", lowered.instruction("query"))
    assert np.abs(made - SentenceTransformer(str(folder), device="cpu").encode_query(TEXTS)).max() < 1e-5
    assert np.abs(made - as_written).max() > 1e-3
    assert lowered.encoder.describe("query")["case"] == "lower"  # vectors of before are not used again


def test_a_folder_that_reads_both_ways_by_its_configuration(tmp_path: Path) -> None:
    size = tiny_field.save_qwen_tokenizer(tmp_path, ends=True)
    model = tiny_field.save_model(tmp_path, "qwen3", size, is_causal=False)
    model.set_attn_implementation("eager")
    retriever = get_retriever(str(tmp_path), CPU)
    assert isinstance(retriever, DenseRetriever)
    wanted = torch.stack([last_state(model, ids) for ids in raw_ids(tmp_path, TEXTS, 1000)]).numpy()
    assert np.abs(retriever.encoder.encode(TEXTS, "document") - wanted).max() < 1e-5


def test_harrier(models: Path) -> None:
    """Gemma 3 with its causal mask, the state of the last token."""
    folder = models / "harrier"
    model = tiny_field.save_model(folder, "gemma3", tiny_field.save_gemma_tokenizer(folder))
    prefix = prefix_of("harrier", "query")
    wanted = unit(last_state(model, ids) for ids in raw_ids(folder, [prefix + text for text in TEXTS], LIMIT))
    assert np.abs(encoded("harrier", "query", prefix) - wanted).max() < 1e-5


@pytest.fixture
def qwen(models: Path) -> str:
    folder = models / "qwen3-embed-0.6b"
    tiny_field.save_model(folder, "qwen3", tiny_field.save_qwen_tokenizer(folder, ends=True))
    return "qwen3-embed-0.6b"


def test_a_shorter_vector_is_cut_and_scaled_again(qwen: str) -> None:
    """The tiny model's vectors have 32 dimensions; what they are cut to is in the name and in the key of the cache."""
    whole, part = loaded(qwen), loaded(qwen, dim=32)
    assert part.spec != whole.spec
    assert str(part.spec) == f"{qwen}:dim=32,max_length={LIMIT}"
    assert part.encoder.describe("query") == {**whole.encoder.describe("query"), "dimensions": 32}
    same = part.encoder.encode(TEXTS, "document")
    assert np.abs(same - whole.encoder.encode(TEXTS, "document")).max() < 1e-6
    small = get_card(qwen).replace(shortest=None)
    from r2med.retrieve.encoders import shortened

    cut = shortened(same, small.cut(5))
    assert np.abs(cut - same[:, :5] / np.linalg.norm(same[:, :5], axis=1, keepdims=True)).max() < 1e-6
    with pytest.raises(ModelError, match=r"vectors of qwen3-embed-0\.6b have 32 dimensions, not 64"):
        loaded(qwen, dim=64).encoder.encode(TEXTS, "document")


def test_a_length_of_the_card_is_no_other_model() -> None:
    assert str(retrievers.parse("qwen3-embed-0.6b:dim=1024")) == "qwen3-embed-0.6b"
    assert str(retrievers.parse("qwen3-embed-0.6b:dim=256")) == "qwen3-embed-0.6b:dim=256"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("qwen3-embed-0.6b:dim=16", "can be cut to 32 dimensions or more, not 16"),
        ("qwen3-embed-0.6b:dim=2048", "have 1024 dimensions, not 2048"),
        ("embeddinggemma:dim=300", "have 128, 256, 512, 768 dimensions, not 300"),
        ("voyage-3.5:dim=3", "have 256, 512, 1024, 2048 dimensions, not 3"),
    ],
)
def test_lengths_that_a_model_does_not_have(spec: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        get_retriever(spec, CPU)


def test_every_dense_model_says_how_it_was_proven() -> None:
    assert [card.name for card in cards("dense") if not card.proven] == []
