"""Tokens a second of every architecture among the named retrievers, on one GPU: the figures behind docs/scale.md.

The weights are random: speed does not depend on them, only on their shapes, which are those of the published models.
Passages have the length of R2MED's (about 256 tokens). Needs CUDA and 40 GB of disk for the largest model.
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
from common import english_like

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
    "e5": ("MistralModel", "MistralConfig", MISTRAL, ("bmr-7b", "e5", "grit", "sfr", "nv")),
}  # fmt: skip


def main() -> None:
    texts = english_like(np.random.default_rng(0), TEXTS, WORDS)
    chosen = sys.argv[1:] or list(SHAPES)
    print(f"{gpu.check()}, bfloat16, {TEXTS:,} passages of {LENGTH} tokens")
    with tempfile.TemporaryDirectory() as root:
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
