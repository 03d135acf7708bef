"""The ONNX backend with the real bge-small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.core import ModelError
from r2med.core.options import Options
from r2med.models import get_card
from r2med.rerank.cross_encoder import OnnxCrossEncoder
from r2med.retrieve.encoders.onnx import FileTokenizer, OnnxEncoder, pool, scales_batches
from r2med.retrieve.encoders.token_states import OnnxTokenEncoder

from .weights import real_model

ort = pytest.importorskip("onnxruntime", reason="the onnx extra is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the onnx extra is not installed")

TEXTS = [
    "Kayser-Fleischer rings and low ceruloplasmin suggest Wilson disease.",
    "β-blockers lower the heart rate.",
    "",
    "A 7-year-old boy is brought in with a fever and a rash. " * 60,
]


@pytest.fixture(scope="module")
def folder() -> Path:
    return real_model("bge-small", "model.onnx")


def plain(folder: Path, text: str, limit: int) -> Any:
    """One text through the session, in the plainest code there is."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit)
    ids = np.array([tokenizer.encode(text).ids])
    session = ort.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    states = np.asarray(session.run(None, feed)[0])[0]
    return states / np.linalg.norm(states, axis=1, keepdims=True)


@pytest.mark.parametrize("limit", [16, 512])
def test_vectors_are_those_of_plain_calls_whatever_the_neighbours(folder: Path, limit: int) -> None:
    card = get_card("bge-small").replace(document_length=limit)
    encoder = OnnxEncoder(card, folder)
    made = encoder.encode(TEXTS, "document")
    for text, vector in zip(TEXTS, made, strict=True):
        assert np.abs(vector - plain(folder, text, limit)[0]).max() < 1e-5
    alone = OnnxEncoder(card, folder, Options(threads=1)).encode(TEXTS[:1], "document")
    assert np.array_equal(alone[0], made[0])


@pytest.mark.parametrize("name", ["bge-small", "colbert-small-backbone"])
def test_vectors_of_tokens_are_those_of_plain_calls(name: str) -> None:
    folder = real_model(name, "model.onnx")
    for batch in OnnxTokenEncoder(get_card(name), folder).stream_states(TEXTS, "document"):
        for row, states in zip(batch.rows.tolist(), batch.states, strict=True):
            made = states / np.linalg.norm(states, axis=1, keepdims=True)
            assert np.abs(made - plain(folder, TEXTS[row], 512)).max() < 1e-5


def test_vectors_are_cut_and_scaled_again(folder: Path) -> None:
    whole = OnnxEncoder(get_card("bge-small"), folder)
    part = OnnxEncoder(get_card("bge-small").cut(100), folder)
    expected = whole.encode(TEXTS, "document")[:, :100]
    made = part.encode(TEXTS, "document")
    assert np.abs(made - expected / np.linalg.norm(expected, axis=1, keepdims=True)).max() < 1e-6
    assert part.describe("query") == {**whole.describe("query"), "dimensions": 100}


def test_similar_texts_are_near(folder: Path) -> None:
    encoder = OnnxEncoder(get_card("bge-small"), folder)
    query = encoder.encode(["Which disease stores copper?"], "query", get_card("bge-small").prefix("query", ""))
    scores = encoder.encode(TEXTS[:2], "document") @ query[0]
    assert scores[0] > scores[1]


def test_tokens_are_cut_before_the_last_special_one_and_counted(folder: Path) -> None:
    tokenizer = FileTokenizer(folder)
    (whole,), (cut,) = tokenizer.tokenize([TEXTS[3]], 10_000), tokenizer.tokenize([TEXTS[3]], 20)
    assert whole.total == cut.total == len(whole.ids) > 512
    assert cut.ids == [*whole.ids[:19], whole.ids[-1]]
    assert [len(t.ids) for t in tokenizer.tokenize([""], 512)] == [2]


def test_a_megabyte_of_text_is_cut(folder: Path) -> None:
    encoder = OnnxEncoder(get_card("bge-small").replace(document_length=64), folder)
    (batch,) = encoder.stream(["fever and rash " * 70_000], "document")
    assert batch.tokens[0] == pytest.approx(210_002, rel=1e-3)  # only its beginning is tokenized
    assert np.isfinite(batch.vectors).all()


def test_int8_models_get_one_text_at_a_time(folder: Path) -> None:
    assert scales_batches(folder / "model.onnx")


def test_what_is_no_model_is_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no model\.onnx"):
        OnnxEncoder(get_card("bge-small"), tmp_path).encode(["a"])
    (tmp_path / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(ModelError, match=r"holds no tokenizer\.json"):
        OnnxEncoder(get_card("bge-small"), tmp_path).encode(["a"])
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    with pytest.raises(ModelError, match=r"model\.onnx cannot be loaded"):
        OnnxEncoder(get_card("bge-small"), tmp_path).encode(["a"])
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    with pytest.raises(ModelError, match="is not a tokenizer"):
        OnnxEncoder(get_card("bge-small"), tmp_path).encode(["a"])


def test_pooling() -> None:
    hidden = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
    mask = np.array([[1, 1, 1, 0]], dtype=np.float32)
    assert pool(hidden, mask, "cls").tolist() == [[0, 1, 2]]
    assert pool(hidden, mask, "mean").tolist() == [[3, 4, 5]]
    assert pool(hidden, mask, "last").tolist() == [[6, 7, 8]]
    with pytest.raises(ModelError, match="pooling 'max' is not known"):
        pool(hidden, mask, "max")


def test_weights_beside_the_graph_are_part_of_the_model(tmp_path: Path) -> None:
    """A large model keeps its weights in a file of their own: other weights are another model."""
    (tmp_path / "model.onnx").write_bytes(b"graph")
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    encoder = OnnxEncoder(get_card("bge-small"), tmp_path)
    scorer = OnnxCrossEncoder(get_card("msmarco-minilm"), tmp_path)
    seen = [(encoder.describe("query"), scorer.describe())]
    files = (("model.onnx_data", b"1"), ("model.onnx_data", b"22"), ("model.onnx.data", b"3"), ("readme", b"4"))
    for name, data in files:
        (tmp_path / name).write_bytes(data)
        seen.append((encoder.describe("query"), scorer.describe()))
    for place in range(1, 4):
        assert seen[place][0] not in [s[0] for s in seen[:place]]
        assert seen[place][1] not in [s[1] for s in seen[:place]]
    assert seen[4] == seen[3]
