"""Every architecture of the catalogue against plain transformers code, to 1e-5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.core.options import Options
from r2med.core.queries import Side
from r2med.retrieve.encoders.torch_encoder import TorchEncoder, TorchTokenEncoder

from . import tiny

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("transformers", reason="the torch extra is not installed")

torch.set_num_threads(1)  # tiny models: more threads only wait for each other
PREFIX = "Query patient : "
CPU = Options(device="cpu", threads=1)
CASES = [
    # architecture, tokenizer, pooling, padding side
    ("bert", "bert", "cls", "right"),
    ("bert", "bert", "mean", "right"),
    ("t5-encoder", "t5", "mean-after-instruction", "right"),
    ("gpt-neox", "neox", "last-eos", "left"),
    ("gpt-neox", "neox", "last-eos", "right"),
    ("gemma", "mistral", "last-eos", "left"),
    ("gemma", "mistral", "last-eos", "right"),
    ("gemma3", "mistral", "last", "right"),
    ("llama", "mistral", "mean", "left"),
    ("mistral", "mistral", "last-eos", "left"),
    ("mistral", "mistral", "last-eos", "right"),
    ("mistral", "mistral", "last", "left"),
    ("mistral-bidirectional", "mistral", "mean-after-instruction", "right"),
    ("mistral-bidirectional", "mistral", "mean-after-instruction", "left"),
]


def reference(
    model: Any,
    tokenizer: Any,
    text: str,
    *,
    architecture: str,
    pooling: str,
    prefix: str,
    limit: int,
    pair: bool = False,
) -> Any:
    """One text at a time, nothing padded, in the plainest code there is."""
    if pooling == "last-eos":
        ids = tokenizer(prefix + text, truncation=True, max_length=limit - 1)["input_ids"] + [tokenizer.eos_token_id]
        inputs = {"input_ids": torch.tensor([ids])}
    elif pair:
        inputs = dict(
            tokenizer(
                [["", prefix + text]],
                truncation=True,
                max_length=limit,
                return_tensors="pt",
                return_token_type_ids=True,
            )
        )
    else:
        inputs = {
            "input_ids": tokenizer(prefix + text, truncation=True, max_length=limit, return_tensors="pt").input_ids
        }
    length = inputs["input_ids"].shape[1]
    inputs["attention_mask"] = torch.ones((1, length), dtype=torch.long)
    if architecture == "mistral-bidirectional":
        inputs["attention_mask"] = torch.zeros((1, 1, length, length))  # added to the attention scores: nothing hidden
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state[0]
    if pooling == "cls":
        return hidden[0]
    if pooling.startswith("last"):
        return hidden[-1]
    if pooling == "mean":
        return hidden.mean(dim=0)
    instruction = tokenizer(prefix)["input_ids"]
    skip = len([i for i in instruction if i != tokenizer.eos_token_id])
    return hidden[skip:].mean(dim=0)


def build(folder: Path, architecture: str, style: str, side: str) -> tuple[Any, Any]:
    return tiny.save_model(folder, architecture), tiny.save_tokenizer(folder, style, padding_side=side)


@pytest.mark.parametrize(("architecture", "style", "pooling", "padding"), CASES, ids=str)
def test_the_vectors_are_those_of_plain_transformers(
    tmp_path: Path, architecture: str, style: str, pooling: str, padding: str
) -> None:
    model, tokenizer = build(tmp_path, architecture, style, padding)
    texts = [*tiny.texts(32), ""]
    limit = 24
    card = tiny.card(architecture, pooling, padding_side=padding, query_length=limit, document_length=limit)
    expected = np.stack(
        [
            reference(model, tokenizer, t, architecture=architecture, pooling=pooling, prefix=PREFIX, limit=limit)
            for t in texts[:-1]
        ]
    )
    for batch_tokens in (1, 100_000):  # one text at a time, and all of them in one batch
        encoder = TorchEncoder(card, tmp_path, Options(batch_tokens=batch_tokens, device="cpu", threads=1))
        made = encoder.encode(texts, "query", PREFIX)
        assert made.dtype == np.float32
        assert np.isfinite(made).all()
        assert np.abs(made[:-1] - expected).max() < 1e-5
    card = card.replace(normalize=True)
    made = TorchEncoder(card, tmp_path, CPU).encode(texts[:-1], "query", PREFIX)
    assert np.abs(made - expected / np.linalg.norm(expected, axis=1, keepdims=True)).max() < 1e-5
    assert any(len(tokenizer(PREFIX + t)["input_ids"]) > limit for t in texts), "nothing was cut"


def test_tokens_of_a_bidirectional_model_see_those_behind_them(tmp_path: Path) -> None:
    """Their mean is the vector of the text; `maxsim:model=grit` ran with a causal mask."""
    build(tmp_path, "mistral", "mistral", "right")
    card, texts = tiny.card("mistral-bidirectional", "mean"), tiny.texts(8)
    wanted = TorchEncoder(card, tmp_path, CPU).encode(texts, "document")
    tokens = TorchTokenEncoder(card, tmp_path, CPU)
    for batch in tokens.stream_states(texts, "document"):
        for row, states in zip(batch.rows.tolist(), batch.states, strict=True):
            assert np.abs(states.mean(axis=0) - wanted[row]).max() < 1e-5
    assert tokens.describe("document")["seen"] == "all tokens"


def test_causal_and_bidirectional_differ(tmp_path: Path) -> None:
    build(tmp_path, "mistral", "mistral", "right")
    made = [
        TorchEncoder(tiny.card(kind, "mean"), tmp_path, CPU).encode(tiny.texts(4), "document")
        for kind in ("mistral", "mistral-bidirectional")
    ]
    assert np.abs(made[0] - made[1]).max() > 1e-2


def test_two_encoders_and_pairs(tmp_path: Path) -> None:
    """MedCPT: another encoder for documents, which go in as a pair with an empty title."""
    folders = {"query": tmp_path / "medcpt", "document": tmp_path / "medcpt" / "document"}
    models = {side: tiny.save_model(folder, "bert", seed=i) for i, (side, folder) in enumerate(folders.items())}
    tokenizers = {side: tiny.save_tokenizer(folder, "bert") for side, folder in folders.items()}
    card = tiny.card("bert", "cls", document_source="tests/second", document_pair=True, document_length=20)
    encoder = TorchEncoder(card, folders["query"], CPU, document_folder=folders["document"])
    texts = tiny.texts(32)
    sides: list[Side] = ["query", "document"]
    for side in sides:
        expected = np.stack(
            [
                reference(
                    models[side],
                    tokenizers[side],
                    t,
                    architecture="bert",
                    pooling="cls",
                    prefix="",
                    limit=card.length(side),
                    pair=side == "document",
                )
                for t in texts
            ]
        )
        assert np.abs(encoder.encode(texts, side) - expected).max() < 1e-5


def test_a_projection_behind_pooling(tmp_path: Path) -> None:
    model, tokenizer = build(tmp_path, "t5-encoder", "t5", "right")
    weight = tiny.save_projection(tmp_path / "2_Dense", 12)
    card = tiny.card("t5-encoder", "mean-after-instruction", projection="2_Dense", normalize=True)
    texts = tiny.texts(8)
    expected = np.stack(
        [
            weight
            @ reference(
                model, tokenizer, t, architecture="t5", pooling="mean-after-instruction", prefix=PREFIX, limit=64
            )
            for t in texts
        ]
    )
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    made = TorchEncoder(card, tmp_path, CPU).encode(texts, "query", PREFIX)
    assert np.abs(made - expected).max() < 1e-5


def test_the_length_before_the_cut_is_counted(tmp_path: Path) -> None:
    _, tokenizer = build(tmp_path, "bert", "bert", "right")
    encoder = TorchEncoder(tiny.card("bert", "cls", document_length=8), tmp_path, CPU)
    texts = tiny.texts(20)
    for batch in encoder.stream(texts, "document"):
        for row, tokens in zip(batch.rows, batch.tokens, strict=True):
            assert tokens == len(tokenizer(texts[row])["input_ids"])


@pytest.mark.parametrize("pooling", ["cls", "last-eos"])
def test_a_model_that_keeps_the_ends_of_texts_is_given_them(tmp_path: Path, pooling: str) -> None:
    architecture, style = ("bert", "bert") if pooling == "cls" else ("mistral", "mistral")
    _, tokenizer = build(tmp_path, architecture, style, "right")
    tokenizer.truncation_side = "left"
    config = json.loads((tmp_path / "tokenizer_config.json").read_text("utf-8"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "truncation_side": "left"}), "utf-8")
    encoder = TorchEncoder(tiny.card(architecture, pooling, document_length=8), tmp_path, CPU)
    text = "fever and rash " * 10_000 + tiny.texts(1)[0]  # long enough for its beginning alone to be tokenized
    (made,) = encoder.tokenize([text], "document", "")
    whole = tokenizer(text, verbose=False)["input_ids"]
    if pooling == "cls":
        assert made.ids == tokenizer(text, truncation=True, max_length=8)["input_ids"]
        assert made.total == len(whole)
    else:
        own = whole[:-1] if whole[-1] == tokenizer.eos_token_id else whole
        assert made.ids == [*own[-7:], tokenizer.eos_token_id]
    assert encoder.describe("document")["cut_at"] == "left"


def test_bfloat16_is_near_float32(tmp_path: Path) -> None:
    build(tmp_path, "bert", "bert", "right")
    made = [
        TorchEncoder(tiny.card("bert", "mean", normalize=True), tmp_path, Options(device="cpu"), dtype=dtype)
        for dtype in ("float32", "bfloat16")
    ]
    full, half = (encoder.encode(tiny.texts(8), "document") for encoder in made)
    assert ((full * half).sum(axis=1) > 0.99).all()
    assert made[0].describe("document") != made[1].describe("document")
