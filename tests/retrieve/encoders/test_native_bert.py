"""BERT in bytes in our own C: the same bits in every way, near ONNX Runtime, and nothing that it does not know."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.core import ModelError
from r2med.core.options import Options
from r2med.models import get_card
from r2med.retrieve.encoders import native_bert
from r2med.retrieve.encoders.native_bert import BACKEND, SLOW, Bert, Linear, NativeBert, Table, parts, recognized
from r2med.retrieve.encoders.onnx import OnnxEncoder, OnnxTokenEncoder
from r2med.retrieve.encoders.onnx_file import Unreadable, read_graph

from .tiny_onnx import tiny, write_bert
from .weights import real_model

_bert = pytest.importorskip("r2med._bert", reason="the C extensions are not built")
fast = pytest.mark.skipif(_bert.ways()[0] == SLOW, reason="this processor leaves BERT in bytes to ONNX Runtime")

TEXTS = [
    "Kayser-Fleischer rings and low ceruloplasmin suggest Wilson disease.",
    "β-blockers lower the heart rate.",
    "",
    "A 7-year-old boy is brought in with a fever and a rash. " * 60,
]


def quantized(values: Any) -> tuple[Any, Any, float]:
    """ONNX's DynamicQuantizeLinear."""
    low, high = np.float32(min(0, values.min())), np.float32(max(0, values.max()))
    scale = np.float32((high - low) / np.float32(255)) if high > low else np.float32(1)
    zero = np.rint(np.clip(-low / scale, 0, 255))
    return np.clip(np.rint(values / scale) + zero, 0, 255), scale, zero


def plain(bert: Bert, ids: list[int]) -> Any:
    """The same model in numpy, as the graph has it."""
    from math import erf

    def look(table: Table, rows: Any) -> Any:
        return (table.rows[rows].astype(np.float32) - np.float32(table.zero)) * np.float32(table.scale)

    def norm(values: Any, by: Any) -> Any:
        rest = values - values.mean(axis=1, keepdims=True)
        return rest / np.sqrt((rest * rest).mean(axis=1, keepdims=True) + bert.epsilon) * by[0] + by[1]

    def times(values: Any, by: Linear) -> Any:
        made, scale, zero = quantized(values.astype(np.float32))
        return (made - zero) @ by.weights.astype(np.float64) * (scale * by.scale) + by.bias

    states = look(bert.words, ids) + look(bert.types, [0] * len(ids)) + look(bert.positions, np.arange(len(ids)))
    states = norm(states, bert.embedded)
    for layer in bert.layers:
        query, key, value = (
            times(states, part).reshape(len(ids), bert.heads, -1).swapaxes(0, 1) for part in layer.heads
        )
        weights = query @ key.swapaxes(1, 2) / bert.divisor
        weights = np.exp(weights - weights.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        joined = (weights @ value).swapaxes(0, 1).reshape(len(ids), -1)
        states = norm(times(joined, layer.out) + states, layer.attended)
        wide = times(states, layer.wide)
        wide = wide * (1 + np.vectorize(erf)(wide / np.sqrt(2))) / 2
        states = norm(times(wide, layer.narrow) + states, layer.made)
    return states


@pytest.mark.parametrize(
    ("hidden", "heads", "wide", "layers"), [(32, 2, 64, 1), (96, 2, 208, 2), (384, 12, 1536, 2), (128, 1, 16, 3)]
)
@pytest.mark.parametrize("tokens", [1, 2, 7, 16, 33, 40])
def test_every_way_gives_the_same_bits(hidden: int, heads: int, wide: int, layers: int, tokens: int) -> None:
    bert = tiny(hidden, heads, wide, layers)
    ids = np.random.default_rng(tokens).integers(0, 50, tokens).tolist()
    models = [NativeBert(Path("m"), bert, way) for way in range(len(_bert.ways()))]
    states = models[0].states(ids)
    for model in models:
        np.testing.assert_array_equal(model.states(ids).view(np.int32), states.view(np.int32))
        np.testing.assert_array_equal(model.states(ids, first=True), states[:1])
    wanted = plain(bert, ids)
    apart = np.linalg.norm(states - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
    assert apart.max() < 0.05 * layers  # one number that is rounded to the next byte changes all that follow


def test_one_layer_is_that_of_numpy() -> None:
    """Before anything is rounded twice, the difference is that of the last digits."""
    bert = tiny(64, 2, 128, 1)
    states, wanted = NativeBert(Path("m"), bert).states([3, 1, 4, 1, 5]), plain(bert, [3, 1, 4, 1, 5])
    assert np.median(np.abs(states - wanted)) < 1e-3


def test_threads_give_the_same_bits() -> None:
    model = NativeBert(Path("m"), tiny(96, 2, 208, 2))
    texts = [np.random.default_rng(i).integers(0, 50, 1 + i % 40).tolist() for i in range(120)]
    alone = [model.states(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(model.states, texts))
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("ids", [[], [50], [-1], [0] * 41, [1 << 30]])
def test_texts_that_a_model_cannot_read_are_one_line(ids: list[int]) -> None:
    with pytest.raises(ModelError, match=rf"m fails on texts of {len(ids)} tokens: .* too long for the model"):
        NativeBert(Path("m"), tiny(32, 2, 64, 1)).states(ids)


def test_memory_of_other_sizes_is_refused() -> None:
    sizes, weights, numbers, tables = parts(tiny(32, 2, 64, 1))
    model = _bert.make(0, sizes, weights, numbers, tables)
    ids, out = np.zeros(3, np.int32), np.empty((3, 32), np.float32)
    for buffers in (
        (ids[:2], ids, out), (ids, ids, out.reshape(-1)[:-1].copy()), (ids, ids, np.empty((4, 32), np.float32)),
        (ids, ids + 2, out), (ids, ids, np.empty((0, 32), np.float32)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="a text is empty or too long"):
            _bert.states(model, *buffers)
    with pytest.raises(ValueError, match="PyCapsule"):
        _bert.states(object(), ids, ids, out)
    for wrong in (weights[:-1], weights[:0]):
        with pytest.raises(ValueError, match="do not fit"):
            _bert.make(0, sizes, wrong, numbers, tables)
    for place, value in ((0, 48), (1, 3), (2, 0), (3, 65), (4, -1), (6, 1 << 40), (0, 1 << 62)):
        changed = sizes.copy()
        changed[place] = value
        with pytest.raises(ValueError, match=r"no sizes of a model|do not fit"):
            _bert.make(0, changed, weights, numbers, tables)
    for way in (-1, len(_bert.ways())):
        with pytest.raises(ValueError, match="no sizes"):
            _bert.make(way, sizes, weights, numbers, tables)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 0.0])
def test_numbers_of_a_damaged_file_do_no_harm(value: float) -> None:
    sizes, weights, numbers, tables = parts(tiny(32, 2, 64, 2))
    out = np.empty((20, 32), np.float32)
    for way in range(len(_bert.ways())):
        _bert.states(
            _bert.make(way, sizes, weights, np.full_like(numbers, value), tables),
            np.arange(20, dtype=np.int32), np.zeros(20, np.int32), out,
        )  # fmt: skip


@fast
def test_a_file_is_read_as_onnx_runtime_reads_it(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime", reason="the onnx extra is not installed")
    bert = tiny(64, 2, 128, 2)
    path = write_bert(tmp_path / "model.onnx", bert)
    found = recognized(path)
    assert found is not None
    assert all(np.array_equal(a, b) for a, b in zip(parts(found), parts(bert), strict=True))
    ids = np.array([[3, 1, 4, 1, 5, 9, 2, 6]])
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    wanted = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)[0][0]
    assert np.median(np.abs(NativeBert(path, found).states(ids[0]) - wanted)) < 0.01


@fast
@pytest.mark.parametrize(
    "old", ["Softmax", "Erf", "ReduceMean", "Transpose", "DequantizeLinear", "attention_mask", "Cast", "Pow", "axes"]
)
def test_a_graph_with_another_operation_is_left_to_onnx_runtime(tmp_path: Path, old: str) -> None:
    path = write_bert(tmp_path / "model.onnx", tiny(32, 2, 64, 1))
    data = path.read_bytes()
    assert recognized(path) is not None
    assert old.encode() in data
    path.write_bytes(data.replace(old.encode(), old[::-1].encode()))
    assert recognized(path) is None


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_model_or_none(data: st.DataObject) -> None:
    """What is still a model after a few bytes changed computes something, and nothing else happens."""
    with TemporaryDirectory() as scratch:
        path = write_bert(Path(scratch) / "model.onnx", tiny(32, 2, 64, 1))
        changed = bytearray(path.read_bytes())
        for place in data.draw(st.lists(st.integers(0, len(changed) - 1), min_size=1, max_size=6)):
            changed[place] = data.draw(st.integers(0, 255))
        path.write_bytes(changed[: data.draw(st.sampled_from([len(changed), len(changed) // 2]))])
        if (found := recognized(path)) is not None:
            NativeBert(path, found).states([1, 2, 3])


@pytest.fixture(scope="module")
def folder() -> Path:
    return real_model("bge-small", "model.onnx")


def test_a_processor_without_wide_vectors_is_left_to_onnx_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_bert(tmp_path / "model.onnx", tiny(32, 2, 64, 1))
    monkeypatch.setattr(native_bert, "native", SimpleNamespace(ways=lambda: [SLOW]))
    assert recognized(path) is None


@fast
def test_the_embedded_model_is_known_and_its_name_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of the two are never mixed: what computes them is in the key."""
    card = get_card("bge-small")
    assert OnnxEncoder(card, folder).describe("query")["backend"] == BACKEND
    assert OnnxEncoder(card, folder, Options(device="cuda")).describe("query")["backend"] == "onnx"
    monkeypatch.setattr(native_bert, "native", None)
    assert OnnxEncoder(card, folder).describe("query")["backend"] == "onnx"


@fast
def test_real_vectors_are_near_those_of_onnx_runtime(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph itself is no nearer to itself: in float32 and in float64, numpy's vectors have a cosine of 0.998."""
    pytest.importorskip("onnxruntime", reason="the onnx extra is not installed")
    card = get_card("bge-small")
    made = OnnxEncoder(card, folder, Options(threads=2)).encode(TEXTS)
    (batch,) = OnnxTokenEncoder(card, folder).stream_states(TEXTS[:1], "document")
    monkeypatch.setattr(native_bert, "native", None)
    wanted = OnnxEncoder(card, folder).encode(TEXTS)
    (theirs,) = OnnxTokenEncoder(card, folder).stream_states(TEXTS[:1], "document")
    assert (made * wanted).sum(axis=1).min() > 0.99
    assert not np.array_equal(made, wanted)
    ours, states = batch.states[0], theirs.states[0]
    assert ours.shape == states.shape
    assert np.median((ours * states).sum(axis=1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(states, axis=1)) > 0.98


@fast
def test_real_weights_give_the_same_bits_in_every_way(folder: Path) -> None:
    bert = recognized(folder / "model.onnx")
    assert bert is not None
    ids = [101, *np.random.default_rng(1).integers(1000, 30000, 75).tolist(), 102]
    states = [NativeBert(folder, bert, way).states(ids) for way in range(len(_bert.ways()))]
    assert all(np.array_equal(states[0], other) for other in states)


@pytest.mark.parametrize("old", ["Softmax", "Erf", "ReduceMean", "Transpose", "DequantizeLinear", "attention_mask"])
def test_another_graph_is_left_to_onnx_runtime(folder: Path, tmp_path: Path, old: str) -> None:
    data = (folder / "model.onnx").read_bytes()
    assert old.encode() in data
    path = tmp_path / "model.onnx"
    path.write_bytes(data.replace(old.encode(), old[::-1].encode()))
    assert recognized(path) is None


def test_a_damaged_file_is_no_model(folder: Path, tmp_path: Path) -> None:
    data, path = (folder / "model.onnx").read_bytes(), tmp_path / "model.onnx"
    for kept in (0, 1, 100, 10_000, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:kept])
        with pytest.raises(Unreadable):
            read_graph(path)
        assert recognized(path) is None
    shutil.copy(folder / "tokenizer.json", tmp_path)
    with pytest.raises(ModelError, match=r"model\.onnx cannot be loaded"):
        OnnxEncoder(get_card("bge-small"), tmp_path).encode(["a"])
