"""Tokens a second of every architecture among the named retrievers, on one GPU: the figures behind docs/scale.md.

The weights are random: speed does not depend on them, only on their shapes, which are those of the published models.
Passages have the length of R2MED's (about 256 tokens). Needs CUDA and 40 GB of disk for the largest model.

`nv` is measured at 512 tokens against the card's own rate of bfloat16 matrix products, with weights made on the card;
its target is 45 % of that rate. Needs torch, transformers and r2med's own dependencies (msgspec, numpy); neither the
network nor the compiled parts of r2med.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import gpu
import numpy as np
import torch
from common import english_like, report

LENGTH, WORDS, TEXTS = 256, 330, 4_096
MISTRAL: dict[str, Any] = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8,
}  # fmt: skip
GEMMA: dict[str, Any] = {
    "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18, "num_attention_heads": 8,
    "num_key_value_heads": 1, "head_dim": 256,
}  # fmt: skip
LARGE: dict[str, Any] = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
}  # fmt: skip
SHAPES: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    # card, class, shape, retrievers of that shape
    "contriever": ("BertModel", "BertConfig", {}, ("contriever", "medcpt")),
    "bge": ("BertModel", "BertConfig", LARGE, ("bge",)),
    "inst-l": (
        "T5EncoderModel", "T5Config", {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16}, ("inst-l",),
    ),
    "inst-xl": (
        "T5EncoderModel", "T5Config", {"d_model": 1024, "d_ff": 16384, "d_kv": 128, "num_layers": 24, "num_heads": 32},
        ("inst-xl",),
    ),
    "bmr-410m": ("GPTNeoXModel", "GPTNeoXConfig", LARGE, ("bmr-410m",)),
    "bmr-2b": ("GemmaModel", "GemmaConfig", GEMMA, ("bmr-2b",)),
    "e5": ("MistralModel", "MistralConfig", MISTRAL, ("bmr-7b", "e5", "grit", "sfr")),
}  # fmt: skip
NV_LENGTH, NV_TEXTS, NV_TARGET = 512, 1_024, 0.45
LATENTS, LATENT_HEADS, LATENT_SIZE, WIDTH = 512, 8, 4096, 4096


def main() -> None:
    chosen = sys.argv[1:] or ["nv", *SHAPES]
    print(f"{gpu.check()}, bfloat16")
    with tempfile.TemporaryDirectory() as root:
        if "nv" in chosen:
            chosen.remove("nv")
            print(json.dumps(nv_embed(Path(root) / "nv")), flush=True)
        if not chosen:
            return
        texts = english_like(np.random.default_rng(0), TEXTS, WORDS)
        trained = gpu.word_pieces(Path(root), texts, LENGTH)
        for card in chosen:
            folder = Path(root) / card
            parameters = build(folder, card, trained)
            rate = measure(folder, card, texts)
            row = {
                "shape": card,
                "retrievers": SHAPES[card][3],
                "parameters": parameters,
                "tokens_per_second": round(rate),
            }
            print(json.dumps(row), flush=True)
            shutil.rmtree(folder)
            torch.cuda.empty_cache()


def nv_state(vocabulary: int) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """A configuration and random weights of the published shape, made on the card."""
    import transformers

    text = {**MISTRAL, "vocab_size": vocabulary, "rms_norm_eps": 1e-5}
    latent = {"num_cross_heads": LATENT_HEADS, "cross_dim_head": LATENT_SIZE}
    config = {"text_config": text, "latent_attention_config": latent}
    with torch.device("meta"):
        model = transformers.MistralModel(transformers.MistralConfig(**text))
    shapes = {f"embedding_model.{name}": tuple(weight.shape) for name, weight in model.state_dict().items()}
    inner, block = LATENT_HEADS * LATENT_SIZE, "latent_attention_model.cross_attend_blocks"
    shapes |= {
        "latent_attention_model.latents": (LATENTS, WIDTH),
        f"{block}.0.fn.to_q.weight": (inner, WIDTH),
        f"{block}.0.fn.to_kv.weight": (2 * inner, WIDTH),
        f"{block}.0.fn.to_out.weight": (WIDTH, inner),
        f"{block}.1.fn.net.0.weight": (8 * WIDTH, WIDTH),
        f"{block}.1.fn.net.0.bias": (8 * WIDTH,),
        f"{block}.1.fn.net.2.weight": (WIDTH, 4 * WIDTH),
        f"{block}.1.fn.net.2.bias": (WIDTH,),
    }
    norms = (f"{block}.0.norm", f"{block}.0.norm_context", f"{block}.1.norm")
    shapes |= {f"{norm}.{kind}": (WIDTH,) for norm in norms for kind in ("weight", "bias")}
    made = {name: torch.randn(shape, device="cuda", dtype=torch.bfloat16).mul_(0.02) for name, shape in shapes.items()}
    for name, weight in made.items():
        if "norm" in name and name.endswith("weight"):
            weight.add_(1)
    return config, made


def nv_embed(folder: Path) -> dict[str, Any]:
    """Passages a second of the native NV-Embed, and the share of the card's matrix rate that its products reach.

    All passages are cut at the same length. `mixed_share` is the same for passages of every length up to it, where
    batches hold no padding either.
    """
    from r2med.core.options import Options
    from r2med.models import get_card
    from r2med.retrieve.encoders.nv_embed import NvEmbedEncoder, NvEmbedModel
    from r2med.retrieve.encoders.torch_encoder import Replica

    rng = np.random.default_rng(1)
    words = np.array([f"term{number}" for number in range(20_000)])
    texts = [" ".join(row) for row in words[np.minimum(rng.zipf(1.2, (NV_TEXTS, NV_LENGTH)), len(words) - 1)]]
    folder.mkdir()
    trained = gpu.word_pieces(folder, texts, NV_LENGTH)
    trained.save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")  # the weights are on the card
    rate = gpu.matrix_rate()
    config, state = nv_state(len(trained))
    model = NvEmbedModel(config, state, "cuda:0", "bfloat16")
    del state
    facts = get_card("nv").replace(query_length=NV_LENGTH, document_length=NV_LENGTH)
    encoder = NvEmbedEncoder(facts, folder, Options(device="cuda:0"), dtype="bfloat16")
    encoder._replicas[folder, 0] = Replica.of(model, "cuda:0")
    mixed = [" ".join(text.split()[: rng.integers(20, NV_LENGTH)]) for text in texts]
    found: dict[str, Any] = {"shape": "nv", "matrix_tflops": round(rate / 1e12)}
    for name, given in (("share", texts), ("mixed_share", mixed)):
        lengths = np.array([len(t.ids) for t in encoder.tokenize(given, "document", "")])
        encoder.encode(given[:256], "document")
        taken = gpu.median_seconds(lambda given=given: encoder.encode(given, "document"))  # type: ignore[misc]
        found[name] = round(operations(lengths) / taken / rate, 3)
        found[name.replace("share", "tokens_per_second")] = round(lengths.sum() / taken)
    met = report("nv: share of the matrix rate at 512 tokens", found["share"], NV_TARGET)
    return {**found, "met": met}


def operations(lengths: np.ndarray[Any, Any]) -> float:
    """Multiplications and additions of all matrix products for texts of some lengths: what is needed, no padding."""
    hidden, inner, layers = (int(MISTRAL[name]) for name in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    keys = hidden * int(MISTRAL["num_key_value_heads"]) // int(MISTRAL["num_attention_heads"])
    layer = 2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * inner
    # With keys and values multiplied into the projections: scores, what is taken from the latents, the gated layer.
    pooling = 2 * hidden * LATENT_HEADS * LATENTS + 12 * hidden * hidden
    attention = layers * 2 * hidden * float((lengths.astype(np.float64) ** 2).sum())
    return 2 * (float(lengths.sum()) * (layers * layer + pooling) + attention)


def build(folder: Path, card: str, trained: Any) -> int:
    """A folder with random weights of a published shape; returns their number."""
    import transformers

    model, config, shape, _ = SHAPES[card]
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        made = getattr(transformers, model)(getattr(transformers, config)(vocab_size=32_000, **shape))
    torch.set_default_dtype(torch.float32)
    made.save_pretrained(folder)
    trained.save_pretrained(folder)
    count = sum(p.numel() for p in made.parameters())
    del made
    torch.cuda.empty_cache()
    return int(count)


def measure(folder: Path, card: str, texts: list[str]) -> float:
    """Tokens a second, the median of three."""
    from r2med.core.options import Options
    from r2med.models import get_card
    from r2med.retrieve.encoders.torch_encoder import TorchEncoder

    facts = get_card(card).replace(query_length=LENGTH, document_length=LENGTH, projection="")
    encoder = TorchEncoder(facts, folder, Options(device="cuda"), dtype="bfloat16")
    part = texts if card != "e5" else texts[: TEXTS // 4]
    encoder.encode(part[:256], "document")
    taken = gpu.median_seconds(lambda: encoder.encode(part, "document"))
    return len(part) * LENGTH / taken


if __name__ == "__main__":
    main()
