"""Models whose files lack weights are refused, unless nobody reads those weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.core import ModelError
from r2med.core.options import Options
from r2med.retrieve.encoders.torch_encoder import TorchEncoder, TorchTokenEncoder
from r2med.retrieve.splade import SpladeEncoder

from . import tiny

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("transformers", reason="the torch extra is not installed")

torch.set_num_threads(1)
CPU = Options(device="cpu", threads=1)
TEXTS = tiny.texts(4)


def encoded(folder: Path, architecture: str, pooling: str = "mean") -> Any:
    return TorchEncoder(tiny.card(architecture, pooling), folder, CPU).encode(TEXTS)


@pytest.mark.parametrize(
    ("architecture", "style", "name"),
    [
        ("bert", "bert", "encoder.layer.1.output.dense.bias"),
        ("t5-encoder", "t5", "encoder.block.1.layer.0.SelfAttention.q.weight"),
        ("gpt-neox", "neox", "layers.1.mlp.dense_h_to_4h.weight"),
        ("gemma", "mistral", "norm.weight"),
        ("mistral-bidirectional", "mistral", "embed_tokens.weight"),
    ],
)
def test_an_encoder_without_one_weight_is_refused(tmp_path: Path, architecture: str, style: str, name: str) -> None:
    tiny.save_model(tmp_path, architecture)
    tiny.save_tokenizer(tmp_path, style)
    encoded(tmp_path, architecture)
    tiny.change_weights(tmp_path, name)
    with pytest.raises(ModelError, match=rf"{tmp_path}: the weights lack {name}: this is not the whole model"):
        encoded(tmp_path, architecture)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    """What is wrapped in another module has other names, so that nothing of it would be read."""
    from safetensors.torch import load_file, save_file

    tiny.save_model(tmp_path, "bert")
    tiny.save_tokenizer(tmp_path, "bert")
    path = tmp_path / "model.safetensors"
    save_file({f"encoder.{k}": v for k, v in load_file(path).items()}, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack embeddings\.LayerNorm\.bias and \d+ more"):
        encoded(tmp_path, "bert")


def test_vectors_of_tokens_need_all_weights(tmp_path: Path) -> None:
    tiny.save_model(tmp_path, "bert")
    tiny.save_tokenizer(tmp_path, "bert")
    tiny.change_weights(tmp_path, "encoder.layer.0.attention.self.key.weight")
    encoder = TorchTokenEncoder(tiny.card("bert", "tokens", kind="late-interaction"), tmp_path, CPU)
    with pytest.raises(ModelError, match=r"lack encoder\.layer\.0\.attention\.self\.key\.weight"):
        list(encoder.stream_states(TEXTS, "document"))


def test_a_pooler_that_nobody_reads_may_be_absent(tmp_path: Path) -> None:
    tiny.save_model(tmp_path, "bert")
    tiny.save_tokenizer(tmp_path, "bert")
    whole = encoded(tmp_path, "bert", "cls")
    tiny.change_weights(tmp_path, "pooler.dense.weight", "pooler.dense.bias")
    assert np.array_equal(encoded(tmp_path, "bert", "cls"), whole)


def test_numbers_of_positions_may_be_there_or_not(tmp_path: Path) -> None:
    """Older releases of transformers wrote them into the weights."""
    tiny.save_model(tmp_path, "bert")
    tiny.save_tokenizer(tmp_path, "bert")
    whole = encoded(tmp_path, "bert")
    tiny.change_weights(tmp_path, **{"embeddings.position_ids": torch.arange(128)[None]})
    assert np.array_equal(encoded(tmp_path, "bert"), whole)


@pytest.mark.parametrize("name", ["shared.weight", "encoder.embed_tokens.weight"])
def test_tied_embeddings_may_stand_under_either_name(tmp_path: Path, name: str) -> None:
    model = tiny.save_model(tmp_path, "t5-encoder")
    tiny.save_tokenizer(tmp_path, "t5")
    whole = encoded(tmp_path, "t5-encoder")
    tiny.change_weights(tmp_path, "shared.weight", **{name: model.shared.weight.detach().clone()})
    assert np.array_equal(encoded(tmp_path, "t5-encoder"), whole)


def weighed(folder: Path) -> Any:
    return SpladeEncoder(tiny.card("bert", "none", kind="sparse"), folder, CPU).encode(TEXTS)


def test_terms_come_from_a_trained_head(tmp_path: Path) -> None:
    """A language head is tied to the embeddings, but for the layer before it."""
    tiny.save_masked_lm(tmp_path)
    whole = weighed(tmp_path)
    bias = torch.zeros(len(tiny.SPECIAL) + len(tiny.WORDS) + 4)
    tiny.change_weights(tmp_path, **{"cls.predictions.decoder.bias": bias})
    assert np.array_equal(weighed(tmp_path), whole)
    tiny.change_weights(tmp_path, "cls.predictions.transform.dense.weight")
    with pytest.raises(ModelError, match=r"lack cls\.predictions\.transform\.dense\.weight"):
        weighed(tmp_path)


def test_an_encoder_is_no_model_of_terms(tmp_path: Path) -> None:
    tiny.save_model(tmp_path, "bert")
    tiny.save_tokenizer(tmp_path, "bert")
    with pytest.raises(ModelError, match=r"lack cls\.predictions"):
        weighed(tmp_path)


@pytest.mark.parametrize("part", ["2_Dense", "head"])
def test_layers_behind_the_model_need_all_weights(tmp_path: Path, part: str) -> None:
    from safetensors.torch import save_file

    tiny.save_model(tmp_path, "bert")
    tiny.save_tokenizer(tmp_path, "bert")
    tiny.save_projection(tmp_path / "2_Dense", 12)
    save_file({"bias": torch.zeros(12)}, tmp_path / "head.safetensors")
    save_file({"linear.bias": torch.zeros(12)}, tmp_path / "2_Dense" / "model.safetensors")
    card = tiny.card("bert", "cls", **({"head": part} if part == "head" else {"projection": part}))
    with pytest.raises(ModelError, match=rf"{part}.*: the weights lack weight: this is not"):
        TorchEncoder(card, tmp_path, CPU).encode(TEXTS)


def test_an_adapter_beside_the_weights_is_refused(tmp_path: Path) -> None:
    """transformers would apply it, and report what the adapter lacks in place of what the model lacks."""
    tiny.save_model(tmp_path, "bert")
    tiny.save_tokenizer(tmp_path, "bert")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="an adapter lies beside the weights"):
        encoded(tmp_path, "bert")
