"""Every retriever of the paper that runs here, by its name: the files its authors published, in small.

Each is loaded from R2MED_HOME as a user's own copy would be, and compared with sentence-transformers or with what the
R2MED repository's script does in plain transformers. NV-Embed has a file of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.core import ModelError
from r2med.core.options import Options
from r2med.core.queries import Side
from r2med.models import get_card
from r2med.retrieve import get_retriever
from r2med.retrieve.dense import DenseRetriever
from r2med.retrieve.encoders import Float32, model_folder, token_encoder

from . import tiny

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("transformers", reason="the torch extra is not installed")

LIMIT = 40
INSTRUCTION = "Represent the patient with fever: "
CPU = Options(device="cpu", threads=1, allow_pickle=True)
TEXTS = [*tiny.texts(20, longest=40), "", " begins with a space", "fever\n\nand rash"]


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    return tmp_path / "models"


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def encoded(name: str, side: Any, prefix: str = "", **parameters: object) -> Float32:
    """Vectors of a named model under the paper's protocol."""
    given = "".join(f",{key}={value}" for key, value in {"max_length": LIMIT, **parameters}.items())
    retriever = get_retriever(f"{name}:protocol=r2med-paper{given}", CPU)
    assert isinstance(retriever, DenseRetriever)
    return retriever.encoder.encode(TEXTS, side, prefix)


def normalized(vectors: Any) -> Any:
    return torch.nn.functional.normalize(vectors, dim=-1)


def batch_of(ids: list[list[int]], side: str = "right") -> dict[str, Any]:
    """Token ids as a padded batch; what fills it is masked."""
    width = max(map(len, ids))
    fill = [[0] * (width - len(each)) for each in ids]
    rows = [f + each if side == "left" else each + f for each, f in zip(ids, fill, strict=True)]
    mask = [
        [0] * len(f) + [1] * len(each) if side == "left" else [1] * len(each) + [0] * len(f)
        for each, f in zip(ids, fill, strict=True)
    ]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}


def raw_ids(folder: Path, texts: list[str], limit: int) -> list[list[int]]:
    """Tokens by the published file, which transformers 4 read as it is."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(limit)
    return [made.ids for made in tokenizer.encode_batch(texts)]


def test_contriever(models: Path) -> None:
    """A pickle, class `Contriever`, the mean of a BERT's states."""
    import transformers as tf

    folder = models / "contriever"
    model = tiny.save_model(folder, "bert")
    tokenizer = tiny.save_tokenizer(folder, "bert")
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["Contriever"]}))
    with pytest.raises(ModelError, match="--allow-pickle"):
        get_retriever("contriever:max_length=24", Options(device="cpu"))
    inputs = tokenizer(TEXTS, padding=True, truncation=True, max_length=LIMIT, return_tensors="pt")
    hidden = tf.BertModel(model.config).eval()
    hidden.load_state_dict(model.state_dict())
    states = hidden(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1)
    wanted = (states * mask).sum(1) / mask.sum(1)
    for side in ("query", "document"):
        assert np.abs(encoded("contriever", side) - wanted.numpy()).max() < 1e-5


def test_medcpt(models: Path) -> None:
    """Two encoders; the paper's script gave queries to the articles' one, as single texts."""
    encoders = {
        name: tiny.save_model(models / "medcpt" / name, "bert", seed=i) for i, name in enumerate(("", "document"))
    }
    tokenizer = [tiny.save_tokenizer(models / "medcpt" / name, "bert") for name in ("", "document")][1]
    how = {"padding": True, "truncation": True, "max_length": LIMIT, "return_tensors": "pt"}
    single, pair = tokenizer(TEXTS, **how), tokenizer([""] * len(TEXTS), TEXTS, return_token_type_ids=True, **how)
    article = encoders["document"]
    assert np.abs(encoded("medcpt", "document") - article(**pair).last_hidden_state[:, 0].numpy()).max() < 1e-5
    assert np.abs(encoded("medcpt", "query") - article(**single).last_hidden_state[:, 0].numpy()).max() < 1e-5
    own = get_retriever(f"medcpt:max_length={LIMIT}", CPU)
    assert isinstance(own, DenseRetriever)
    wanted = encoders[""](**single).last_hidden_state[:, 0].numpy()
    assert np.abs(own.encoder.encode(TEXTS, "query") - wanted).max() < 1e-5
    # `maxsim:model=medcpt` read the documents with the encoder of the queries.
    assert own.card is not None
    tokens = token_encoder(own.card, model_folder(own.card), CPU)
    sides: tuple[tuple[Side, Float32], ...] = (("query", wanted), ("document", own.encoder.encode(TEXTS, "document")))
    for side, first in sides:
        for batch in tokens.stream_states(TEXTS, side):
            assert np.abs(np.stack([states[0] for states in batch.states]) - first[batch.rows]).max() < 1e-5


def test_bge(models: Path) -> None:
    """The layout of sentence-transformers: the first token, then unit length."""
    library = pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")
    from sentence_transformers.sentence_transformer import modules

    plain = models.parent / "plain"
    tiny.save_model(plain, "bert")
    tiny.save_tokenizer(plain, "bert")
    base = modules.Transformer(str(plain), max_seq_length=LIMIT)
    peer = library.SentenceTransformer(modules=[base, modules.Pooling(32, "cls"), modules.Normalize()], device="cpu")
    peer.save(str(models / "bge"))
    prefix = get_card("bge").prefix("query", get_card("bge").instruction("query"))
    assert np.abs(encoded("bge", "query", prefix) - peer.encode(TEXTS, prompt=prefix)).max() < 1e-5
    assert np.abs(encoded("bge", "document") - peer.encode(TEXTS)).max() < 1e-5


def save_t5_tokenizer(folder: Path) -> int:
    """Unigram pieces with T5's layout; returns their number."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    special = ["<pad>", "</s>", "<unk>"]
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    )
    trainer = trainers.UnigramTrainer(vocab_size=150, special_tokens=special, unk_token="<unk>", show_progress=False)
    made.train_from_iterator([*tiny.texts(200, seed=9), INSTRUCTION], trainer)
    made.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    settings = {
        "eos_token": "</s>",
        "extra_ids": 0,
        "pad_token": "<pad>",
        "tokenizer_class": "T5Tokenizer",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 512}))
    return made.get_vocab_size()


@pytest.mark.parametrize("name", ["inst-l", "inst-xl"])
def test_instructor(models: Path, name: str) -> None:
    """T5's encoder, the mean without the instruction, a dense layer, unit length, as sentence-transformers runs it."""
    library = pytest.importorskip("sentence_transformers", reason="the torch extra is not installed")
    from sentence_transformers.sentence_transformer import modules

    plain = models.parent / "plain"
    tiny.save_model(plain, "t5-encoder", vocabulary=save_t5_tokenizer(plain) + 8)
    base = modules.Transformer(str(plain), max_seq_length=LIMIT)
    layer = modules.Dense(32, 16, bias=False, activation_function=torch.nn.Identity())
    pooling = modules.Pooling(32, "mean")
    peer = library.SentenceTransformer(modules=[base, pooling, layer, modules.Normalize()], device="cpu")
    peer.save(str(models / name))
    dense = models / name / "2_Dense"
    if (dense / "model.safetensors").is_file():  # the hub has a pickle there
        from safetensors.torch import load_file

        torch.save(load_file(dense / "model.safetensors"), dense / "pytorch_model.bin")
        (dense / "model.safetensors").unlink()
    peer.set_pooling_include_prompt(False)
    for side in ("query", "document"):
        wanted = peer.encode(TEXTS, prompt=INSTRUCTION, normalize_embeddings=True)
        assert np.abs(encoded(name, side, INSTRUCTION) - wanted).max() < 1e-5


def save_neox_tokenizer(folder: Path) -> int:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>", "<|padding|>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(tiny.texts(200, seed=9), trainer)
    made.post_processor, made.decoder = processors.ByteLevel(trim_offsets=True), decoders.ByteLevel()
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    settings = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    facts = {**settings, "add_prefix_space": False, "tokenizer_class": "GPTNeoXTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    return made.get_vocab_size()


@pytest.mark.parametrize(
    ("name", "architecture"), [("bmr-410m", "gpt-neox"), ("bmr-2b", "gemma"), ("bmr-7b", "mistral")]
)
def test_bmretriever(models: Path, name: str, architecture: str) -> None:
    """Cut one token early, EOS appended, filled up on the left, the last state; not of unit length."""
    folder = models / name
    if name == "bmr-410m":
        size, eos = save_neox_tokenizer(folder), 0
    else:
        size, eos = tiny.save_llama_tokenizer(folder).get_vocab_size(), 2
    model = tiny.save_model(folder, architecture, vocabulary=size)
    prefix = get_card(name).prefix("document", "")
    for side, before in (("document", prefix), ("query", f"{INSTRUCTION}\nQuery: ")):
        ids = [[*each, eos] for each in raw_ids(folder, [before + text for text in TEXTS], LIMIT - 1)]
        wanted = model(**batch_of(ids, "left")).last_hidden_state[:, -1]
        assert np.abs(encoded(name, side, before) - wanted.numpy()).max() < 1e-5
    assert get_card(name).published().dtype == "float16-autocast"


@pytest.mark.parametrize("adds_eos", [True, False])
@pytest.mark.parametrize("name", ["e5", "sfr"])
def test_e5_and_sfr(models: Path, name: str, adds_eos: bool) -> None:
    """Mistral's state of the EOS that ends a text, whether or not the tokenizer's settings append it."""
    folder = models / name
    size = tiny.save_llama_tokenizer(folder, add_eos_token=adds_eos).get_vocab_size()
    model = tiny.save_model(folder, "mistral", vocabulary=size)
    ids = [[*each, 2] for each in raw_ids(folder, [INSTRUCTION + text for text in TEXTS], LIMIT - 1)]
    wanted = model(**batch_of(ids)).last_hidden_state[torch.arange(len(ids)), torch.tensor([len(i) - 1 for i in ids])]
    assert np.abs(encoded(name, "query", INSTRUCTION) - normalized(wanted).numpy()).max() < 1e-5


def test_grit(models: Path) -> None:
    """A checkpoint of a language model whose own code is not run: attention in both directions, mean of the text."""
    import transformers as tf

    folder = models / "grit"
    size = tiny.save_llama_tokenizer(folder).get_vocab_size()
    body = tiny.save_model(folder, "mistral", vocabulary=size)
    whole: Any = tf.MistralForCausalLM(body.config)
    whole.model.load_state_dict(body.state_dict())
    whole.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    code = {
        "AutoModel": "modeling_gritlm7b.MistralModel",
        "AutoModelForCausalLM": "modeling_gritlm7b.MistralForCausalLM",
    }
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": code, "sliding_window": 4096}))
    (folder / "modeling_gritlm7b.py").write_text("raise SystemExit('this code must not run')\n")
    body.config.is_causal = False
    body.set_attn_implementation("eager")
    for side, prefix in (("query", f"<|user|>\n{INSTRUCTION}\n<|embed|>\n"), ("document", "<|embed|>\n")):
        ids = raw_ids(folder, [prefix + text for text in TEXTS], 60)
        skip = len(raw_ids(folder, [prefix], 60)[0])
        hidden = [body(input_ids=torch.tensor([each])).last_hidden_state[0, skip:].mean(dim=0) for each in ids]
        kept = [i for i, each in enumerate(ids) if len(each) > skip]
        wanted = normalized(torch.stack(hidden)).numpy()
        made = encoded("grit", side, prefix, max_length=60, dtype="float32")
        assert np.abs(made - wanted)[kept].max() < 1e-5


def test_tokenizers_split_as_their_file_says(tmp_path: Path) -> None:
    """transformers 5 alone gives a text that begins with a space fewer tokens than the file of Llama's tokenizer."""
    from r2med.retrieve.encoders.torch_models import load_tokenizer

    tiny.save_llama_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "mistral"}')
    loaded = load_tokenizer(tmp_path, CPU, "mistral")
    assert loaded(TEXTS)["input_ids"] == raw_ids(tmp_path, TEXTS, 1000)
