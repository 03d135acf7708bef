"""NV-Embed against a reference in plain torch, written from the paper: arXiv 2405.17428, section 3.

Runs with torch, transformers, safetensors, numpy and pytest alone: `pytest --noconftest` on this file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.core import ModelError
from r2med.core.options import Options
from r2med.models import Card, folder_card, get_card

from . import tiny

torch = pytest.importorskip("torch", reason="the torch extra is not installed")
pytest.importorskip("transformers", reason="the torch extra is not installed")

from r2med.retrieve.encoders.load import load_encoder  # noqa: E402
from r2med.retrieve.encoders.nv_embed import NvEmbedEncoder, spans  # noqa: E402

WIDTH, INNER, LAYERS, HEADS, KEY_HEADS = 32, 64, 2, 4, 2
LATENTS, LATENT_HEADS, LATENT_SIZE = 12, 2, 24
THETA, EPSILON = 10000.0, 1e-5
INSTRUCTION = "Instruct: Represent the patient with fever\nQuery: "
CPU = Options(device="cpu", threads=1)
State = dict[str, Any]


def random_state(vocabulary: int) -> State:
    """Weights of the published names, large enough that mistakes show."""
    torch.manual_seed(0)
    size = WIDTH // HEADS
    shapes = {"embedding_model.embed_tokens.weight": (vocabulary, WIDTH), "embedding_model.norm.weight": (WIDTH,)}
    for number in range(LAYERS):
        layer = f"embedding_model.layers.{number}"
        shapes |= {
            f"{layer}.input_layernorm.weight": (WIDTH,),
            f"{layer}.post_attention_layernorm.weight": (WIDTH,),
            f"{layer}.self_attn.q_proj.weight": (WIDTH, WIDTH),
            f"{layer}.self_attn.k_proj.weight": (KEY_HEADS * size, WIDTH),
            f"{layer}.self_attn.v_proj.weight": (KEY_HEADS * size, WIDTH),
            f"{layer}.self_attn.o_proj.weight": (WIDTH, WIDTH),
            f"{layer}.mlp.gate_proj.weight": (INNER, WIDTH),
            f"{layer}.mlp.up_proj.weight": (INNER, WIDTH),
            f"{layer}.mlp.down_proj.weight": (WIDTH, INNER),
        }
    inner, block = LATENT_HEADS * LATENT_SIZE, "latent_attention_model.cross_attend_blocks"
    shapes |= {
        "latent_attention_model.latents": (LATENTS, WIDTH),
        f"{block}.0.norm.weight": (WIDTH,),
        f"{block}.0.norm.bias": (WIDTH,),
        f"{block}.0.norm_context.weight": (WIDTH,),
        f"{block}.0.norm_context.bias": (WIDTH,),
        f"{block}.0.fn.to_q.weight": (inner, WIDTH),
        f"{block}.0.fn.to_kv.weight": (2 * inner, WIDTH),
        f"{block}.0.fn.to_out.weight": (WIDTH, inner),
        f"{block}.1.norm.weight": (WIDTH,),
        f"{block}.1.norm.bias": (WIDTH,),
        f"{block}.1.fn.net.0.weight": (8 * WIDTH, WIDTH),
        f"{block}.1.fn.net.0.bias": (8 * WIDTH,),
        f"{block}.1.fn.net.2.weight": (WIDTH, 4 * WIDTH),
        f"{block}.1.fn.net.2.bias": (WIDTH,),
    }
    return {
        name: torch.randn(shape) * (0.3 if len(shape) > 1 else 0.2) + ("norm" in name and name.endswith("weight"))
        for name, shape in shapes.items()
    }


def save(folder: Path, **changes: object) -> State:
    """A folder as the hub holds it: two shards with their index, configuration, tokenizer, no code that is needed."""
    from safetensors.torch import save_file

    tokenizer = tiny.save_llama_tokenizer(folder)
    state = random_state(tokenizer.get_vocab_size())
    shards: list[State] = [{}, {}]
    for number, (name, value) in enumerate(state.items()):
        shards[number * 2 // len(state)][name] = value
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(shard, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    config: dict[str, Any] = {
        "add_eos": True,
        "add_pad_token": True,
        "architectures": ["NVEmbedModel"],
        "auto_map": {"AutoModel": "modeling_nvembed.NVEmbedModel", "AutoConfig": "configuration_nvembed.NVEmbedConfig"},
        "hidden_size": WIDTH,
        "is_mask_instruction": True,
        "latent_attention_config": {
            "model_type": "latent_attention",
            "num_cross_heads": LATENT_HEADS,
            "cross_dim_head": LATENT_SIZE,
        },
        "mask_type": "b",
        "model_type": "nvembed",
        "padding_side": "right",
        "text_config": {
            "_name_or_path": "nvidia/NV-Embed-v2",
            "architectures": ["MistralModel"],
            "hidden_size": WIDTH,
            "intermediate_size": INNER,
            "max_position_embeddings": 32768,
            "model_type": "bidir_mistral",
            "num_attention_heads": HEADS,
            "num_hidden_layers": LAYERS,
            "num_key_value_heads": KEY_HEADS,
            "rms_norm_eps": EPSILON,
            "rope_theta": THETA,
            "sliding_window": 4,  # without a causal mask there is none
            "vocab_size": tokenizer.get_vocab_size(),
        },
        "torch_dtype": "float32",
        "transformers_version": "4.42.4",
    }
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    (folder / "modeling_nvembed.py").write_text("raise SystemExit('this code must not run')\n")
    return state


def card(**changes: Any) -> Card:
    return get_card("nv").replace(**{"query_length": 48, "document_length": 48, **changes})


def root_mean_square(x: Any, weight: Any) -> Any:
    return x / (x.pow(2).mean(-1, keepdim=True) + EPSILON).sqrt() * weight


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    x = x - x.mean(-1, keepdim=True)
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def rotated(x: Any) -> Any:
    """Rotary positions: the pairs are the two halves of a head."""
    length, half = x.shape[-2], x.shape[-1] // 2
    angles = torch.arange(length)[:, None] * THETA ** (-torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    turned = first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()
    return torch.cat(turned, dim=-1)


def attended(query: Any, key: Any, value: Any, size: int) -> Any:
    return torch.softmax(query @ key.transpose(-1, -2) / size**0.5, dim=-1) @ value


def reference(state: State, ids: list[int], skip: int) -> Any:
    """One text: no batch, no padding, no mask."""
    size = WIDTH // HEADS
    x = state["embedding_model.embed_tokens.weight"][ids]
    for number in range(LAYERS):
        own = {k.removeprefix(f"embedding_model.layers.{number}."): v for k, v in state.items()}
        seen = root_mean_square(x, own["input_layernorm.weight"])
        q, k, v = (
            (seen @ own[f"self_attn.{name}_proj.weight"].T).view(len(ids), -1, size).transpose(0, 1) for name in "qkv"
        )
        k, v = (each.repeat_interleave(HEADS // KEY_HEADS, dim=0) for each in (k, v))
        found = attended(rotated(q), rotated(k), v, size).transpose(0, 1).reshape(len(ids), WIDTH)
        x = x + found @ own["self_attn.o_proj.weight"].T
        seen = root_mean_square(x, own["post_attention_layernorm.weight"])
        gate, up = seen @ own["mlp.gate_proj.weight"].T, seen @ own["mlp.up_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ own["mlp.down_proj.weight"].T
    x = root_mean_square(x, state["embedding_model.norm.weight"])

    pool = {k.removeprefix("latent_attention_model.cross_attend_blocks."): v for k, v in state.items()}
    latents = layer_norm(
        state["latent_attention_model.latents"], pool["0.norm_context.weight"], pool["0.norm_context.bias"]
    )
    query = layer_norm(x, pool["0.norm.weight"], pool["0.norm.bias"]) @ pool["0.fn.to_q.weight"].T
    key, value = (latents @ pool["0.fn.to_kv.weight"].T).chunk(2, dim=-1)
    q, k, v = (each.view(len(each), LATENT_HEADS, LATENT_SIZE).transpose(0, 1) for each in (query, key, value))
    found = attended(q, k, v, LATENT_SIZE).transpose(0, 1).reshape(len(ids), -1)
    x = x + found @ pool["0.fn.to_out.weight"].T
    seen = layer_norm(x, pool["1.norm.weight"], pool["1.norm.bias"])
    kept, gate = (seen @ pool["1.fn.net.0.weight"].T + pool["1.fn.net.0.bias"]).chunk(2, dim=-1)
    gated = kept * gate * 0.5 * (1 + torch.erf(gate / 2**0.5))
    x = x + gated @ pool["1.fn.net.2.weight"].T + pool["1.fn.net.2.bias"]
    vector = x[skip:].mean(dim=0)
    return vector / vector.norm()


def expected(folder: Path, state: State, texts: list[str], instruction: str, limit: int = 48) -> Any:
    """What the published `encode` gives: EOS before the cut, as many tokens left out as the instruction has alone."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    skip = len(tokenizer.encode(instruction, add_special_tokens=False).ids) if instruction else 0
    ids = [tokenizer.encode(f"{instruction}{text}</s>").ids[:limit] for text in texts]
    return torch.stack([reference(state, each, skip) for each in ids]).numpy(), ids


TEXTS = [*tiny.texts(24, longest=60), "", " begins with a space", "fever", "ends </s> early", "naïve β-cell\n\ntwo"]


@pytest.mark.parametrize("instruction", ["", INSTRUCTION])
@pytest.mark.parametrize("batch_tokens", [1, 100, 100_000])
def test_the_vectors_are_those_of_the_paper(tmp_path: Path, instruction: str, batch_tokens: int) -> None:
    state = save(tmp_path)
    wanted, ids = expected(tmp_path, state, TEXTS, instruction)
    assert len({len(each) for each in ids}) > 5, "the lengths must differ"
    assert any(len(each) == 48 and each[-1] != 2 for each in ids), "some must be cut"
    encoder = NvEmbedEncoder(card(), tmp_path, Options(device="cpu", threads=1, batch_tokens=batch_tokens))
    made = encoder.encode(TEXTS, "query", instruction)
    assert np.abs(made - wanted).max() < 1e-5
    order = np.random.default_rng(0).permutation(len(TEXTS))
    again = encoder.encode([TEXTS[i] for i in order], "query", instruction)
    assert np.abs(again - wanted[order]).max() < 1e-5


def test_the_instruction_changes_a_vector_by_what_it_says_alone(tmp_path: Path) -> None:
    """Its tokens are read and not averaged; with `is_mask_instruction` off they are averaged."""
    state = save(tmp_path / "on")
    save(tmp_path / "off", is_mask_instruction=False)
    on, off = (NvEmbedEncoder(card(), tmp_path / name, CPU).encode(["fever"], "query", INSTRUCTION)
               for name in ("on", "off"))  # fmt: skip
    plain, ids = expected(tmp_path / "on", state, [INSTRUCTION + "fever"], "")
    assert np.abs(off - plain).max() < 1e-5
    assert np.abs(on - off).max() > 1e-3
    with pytest.raises(ModelError, match="leaves no room for a text"):
        limit = len(ids[0]) - 4
        NvEmbedEncoder(card(query_length=limit), tmp_path / "on", CPU).encode(["fever"], "query", INSTRUCTION)


def test_the_card_loads_without_code_of_the_models_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    state = save(tmp_path / "models" / "nv")
    published = get_card("nv").published()
    assert (published.query_length, published.document_length, published.dtype) == (4096, 4096, "float16")
    encoder = load_encoder(published, CPU, dtype="float32")
    assert isinstance(encoder, NvEmbedEncoder)
    wanted, _ = expected(tmp_path / "models" / "nv", state, TEXTS, "", limit=4096)
    assert np.abs(encoder.encode(TEXTS, "document") - wanted).max() < 1e-5
    own = folder_card(tmp_path / "models" / "nv")
    assert (own.architecture, own.pooling, own.normalize, own.remote_code) == (
        "nv-embed", "latent-attention", True, False,
    )  # fmt: skip
    assert np.abs(load_encoder(own, CPU).encode(TEXTS, "document") - wanted).max() < 1e-5


def test_weights_that_are_not_those(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    state = save(tmp_path)
    second = tmp_path / "model-00002-of-00002.safetensors"
    whole = load_file(second)

    def refused(tensors: State, message: str) -> None:
        save_file(tensors, second, metadata={"format": "pt"})
        with pytest.raises(ModelError, match=message):
            NvEmbedEncoder(card(), tmp_path, CPU).encode(["fever"])

    name = "latent_attention_model.latents"
    refused({k: v for k, v in whole.items() if k != name}, f"lack {name}: this is not")
    refused({**whole, "lm_head.weight": torch.zeros(2, 2)}, r"not NV-Embed's, lm_head\.weight")
    refused({**whole, name: torch.zeros(LATENTS, WIDTH // 2)}, "no 2 heads of 24")
    layer = next(name for name in whole if name.startswith("embedding_model.layers"))
    refused({**whole, layer: torch.zeros(5)}, rf"{layer} has the shape \(5,\), not")
    refused(state, "stands in two files")


def test_neighbours_of_equal_length() -> None:
    assert spans([5, 5, 3, 5]) == [(0, 5, 2), (10, 3, 1), (13, 5, 1)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(("dtype", "apart"), [("float32", 1e-4), ("bfloat16", 0.1), ("float16", 0.015)])
def test_on_a_gpu(tmp_path: Path, dtype: str, apart: float) -> None:
    """Against the reference in float32 on the CPU; half precision may differ by its rounding."""
    state = save(tmp_path)
    texts = [*TEXTS, *tiny.texts(200, longest=30, seed=4)]
    wanted, _ = expected(tmp_path, state, texts, INSTRUCTION)
    for batch_tokens in (200, None):
        encoder = NvEmbedEncoder(card(), tmp_path, Options(device="cuda", batch_tokens=batch_tokens), dtype=dtype)
        made = encoder.encode(texts, "query", INSTRUCTION)
        assert np.abs(made - wanted).max() < apart
        assert (made * wanted).sum(axis=1).min() > 1 - apart / 10
