"""The ONNX backend with the real bge-small."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.core import ModelError
from r2med.core.options import Options
from r2med.models import get_card
from r2med.rerank.cross_encoder import OnnxCrossEncoder
from r2med.retrieve.encoders import native_bert
from r2med.retrieve.encoders.onnx import FileTokenizer, OnnxEncoder, OnnxTokenEncoder, pool, providers, scales_batches

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


@pytest.fixture
def in_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the C extensions are not built."""
    monkeypatch.setattr(native_bert, "native", None)


@pytest.mark.usefixtures("in_onnx_runtime")
@pytest.mark.parametrize("limit", [16, 512])
def test_vectors_are_those_of_plain_calls_whatever_the_neighbours(folder: Path, limit: int) -> None:
    card = get_card("bge-small").replace(document_length=limit)
    encoder = OnnxEncoder(card, folder)
    made = encoder.encode(TEXTS, "document")
    for text, vector in zip(TEXTS, made, strict=True):
        assert np.abs(vector - plain(folder, text, limit)[0]).max() < 1e-5
    alone = OnnxEncoder(card, folder, Options(threads=1)).encode(TEXTS[:1], "document")
    assert np.array_equal(alone[0], made[0])


def test_a_length_that_leaves_no_room_for_a_text_is_refused(folder: Path) -> None:
    """All texts would have one vector: that of the special tokens, or of the beginning of the instruction."""
    instruction = "Represent this sentence for searching relevant passages: "
    card = get_card("bge-small").replace(query_length=10, document_length=2)
    for encode in (OnnxEncoder(card, folder).encode, OnnxTokenEncoder(card, folder).stream_states):
        with pytest.raises(ModelError, match="2 tokens leaves no room for a text"):
            encode(TEXTS, "document")
        with pytest.raises(ModelError, match=r"10 tokens leaves no room for a text.* are 10"):
            encode(TEXTS, "query", instruction)
    wide = OnnxEncoder(card.replace(query_length=11), folder)
    assert not np.array_equal(*wide.encode(["fever", "rash"], "query", instruction))


def test_texts_longer_than_the_model_reads_are_one_line(folder: Path, tmp_path: Path) -> None:
    card = get_card("bge-small").replace(document_length=1024)
    with pytest.raises(ModelError, match="bge-small takes at most 512 tokens, not 1024"):
        OnnxEncoder(card, folder)
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).symlink_to(folder / name)
    with pytest.raises(ModelError, match="fails on texts of 702 tokens"):
        OnnxEncoder(card, tmp_path).encode(["fever " * 700], "document")


@pytest.mark.parametrize(
    ("device", "gpu"),
    [(None, 0), ("cuda", 0), ("cuda:1", 1), ("cuda:2,cuda:3", 2), ("cpu", None), ("mps", None)],
)
def test_a_session_runs_on_the_device_that_is_asked_for(device: str | None, gpu: int | None) -> None:
    """It ran on the first GPU, whatever was asked for."""
    everything = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    cuda = [] if gpu is None else [("CUDAExecutionProvider", {"device_id": gpu})]
    assert providers(device, everything) == [*cuda, "CPUExecutionProvider"]
    asked = bool(device and gpu is not None)
    with pytest.warns(UserWarning, match="no GPU here, so its models run on the CPU") if asked else nullcontext():
        assert providers(device, everything[2:]) == ["CPUExecutionProvider"]


def test_a_projection_that_the_file_does_not_hold_is_not_left_out(folder: Path) -> None:
    """A folder of sentence-transformers lists it behind pooling; vectors without it look like vectors."""
    encoder = OnnxEncoder(get_card("bge-small").replace(projection="2_Dense"), folder)
    with pytest.raises(ModelError, match="ends before the projection 2_Dense"):
        encoder.encode(TEXTS[:1], "document")


@pytest.mark.usefixtures("in_onnx_runtime")
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


def test_texts_are_written_in_lower_case_where_the_files_say_so(folder: Path, tmp_path: Path) -> None:
    """The same model with a tokenizer that tells capitals apart gives the same vectors only with `do_lower_case`."""
    shutil.copytree(folder, tmp_path / "cased")
    path = tmp_path / "cased" / "tokenizer.json"
    facts = json.loads(path.read_text("utf-8"))
    facts["normalizer"]["lowercase"] = False
    path.write_text(json.dumps(facts), "utf-8")
    card, texts = get_card("bge-small"), TEXTS[:1]
    wanted = OnnxEncoder(card, folder).encode(texts, "document")
    assert np.abs(OnnxEncoder(card, tmp_path / "cased").encode(texts, "document") - wanted).max() > 1e-3
    (path.parent / "sentence_bert_config.json").write_text('{"max_seq_length": 512, "do_lower_case": true}')
    lowered = OnnxEncoder(card, tmp_path / "cased")
    assert np.abs(lowered.encode(texts, "document") - wanted).max() < 1e-6
    assert lowered.describe("document")["case"] == "lower"


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


def test_a_model_that_keeps_the_ends_of_texts_is_given_them(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "left")
    (tmp_path / "left" / "tokenizer_config.json").write_text('{"truncation_side": "left"}', "utf-8")
    (whole,), (cut,) = (FileTokenizer(tmp_path / "left").tokenize([TEXTS[3]], limit) for limit in (10_000, 20))
    assert whole.total == cut.total == len(whole.ids)
    assert cut.ids == [whole.ids[0], *whole.ids[-19:]]
    far = "fever and rash " * 10_000  # beyond what is tokenized of a text that keeps its beginning
    (end,) = FileTokenizer(tmp_path / "left").tokenize([f"{far}Kayser-Fleischer rings."], 20)
    (same,) = FileTokenizer(tmp_path / "left").tokenize(["fever and rash fever and rash Kayser-Fleischer rings."], 20)
    assert end.ids[-8:] == same.ids[-8:]
    card = get_card("bge-small")
    facts = OnnxEncoder(card, tmp_path / "left").describe("document")
    assert facts.pop("cut_at") == "left"
    assert facts.keys() == OnnxEncoder(card, folder).describe("document").keys()


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
