"""Encoding and exact search on a GPU: a BERT-large-shaped encoder at 512 tokens, against SentenceTransformer.encode.

The weights are random: speed does not depend on them. Both sides run the same folder on the same texts in bfloat16, and
SentenceTransformer gets the batch size that suits it best; its default precision is shown beside. Needs CUDA.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import gpu
import numpy as np
import torch
from common import english_like, report
from gpu import median_seconds

TEXTS, WORDS, LENGTH = 16_384, 620, 512
BATCH_SIZES = (32, 64, 128, 256, 512)


def build(folder: Path, texts: list[str]) -> None:
    """A model folder that sentence-transformers and r2med both read."""
    from transformers import BertConfig, BertModel

    gpu.word_pieces(folder, texts, LENGTH).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    BertModel(config).save_pretrained(folder)


def sentence_transformer(folder: Path, dtype: Any) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    words = Transformer(str(folder), max_seq_length=LENGTH, model_args={"dtype": dtype})
    return SentenceTransformer(modules=[words, Pooling(1024, "cls")], device="cuda")


def encoding(folder: Path, texts: list[str], peak: float) -> bool:
    from r2med.core.options import Options
    from r2med.models import folder_card
    from r2med.retrieve.encoders import load_encoder

    card = folder_card(folder).replace(pooling="cls", normalize=False, query_length=LENGTH, document_length=LENGTH)
    encoder = load_encoder(card, Options(device="cuda"))
    ours = encoder.encode(texts[:512], "document")
    mine = median_seconds(lambda: encoder.encode(texts, "document"))
    tokens = TEXTS * LENGTH
    # Multiply-adds of the weights (302 M in the layers) and of attention (4 · length · hidden a layer and token).
    flops = tokens * (2 * 302e6 + 24 * 4 * LENGTH * 1024)
    rate = flops / mine / 1e12
    print(f"r2med bf16: {tokens / mine:,.0f} tokens/s, {rate:.0f} TFLOP/s, {rate / peak:.0%} of {peak:.0f}")
    peer = sentence_transformer(folder, torch.bfloat16)
    theirs = peer.encode(texts[:512], batch_size=128, convert_to_numpy=True).astype(np.float32)
    cosine = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    print(f"agreement of the vectors: smallest cosine {cosine.min():.5f}")
    best = min((median_seconds(partial(peer.encode, texts, batch_size=b), 1), b) for b in BATCH_SIZES)
    again = median_seconds(lambda: peer.encode(texts, batch_size=best[1]))
    print(f"SentenceTransformer bf16, batch {best[1]}: {tokens / again:,.0f} tokens/s")
    part = texts[: TEXTS // 8]
    default = median_seconds(lambda: sentence_transformer(folder, torch.float32).encode(part, batch_size=32), 1) * 8
    print(f"SentenceTransformer with its defaults (float32, batch 32): {tokens / default:,.0f} tokens/s")
    met = report("tokens/s r2med / SentenceTransformer in bf16", again / mine, 1.5)
    return report("tokens/s r2med / SentenceTransformer with its defaults", default / mine, 1.5) and met


def searching() -> bool:
    from r2med.core import IdTable
    from r2med.retrieve.rows import ArrayRows
    from r2med.retrieve.vectors import gpu_first_stage, search

    rng = np.random.default_rng(0)
    documents = rng.standard_normal((61_379, 1_024)).astype(np.float32)
    documents[1000:2000] = documents[:1000]  # copies make ties
    queries = rng.standard_normal((120, 1_024)).astype(np.float32)
    ids = IdTable(f"d{i}" for i in range(len(documents)))
    ties = ids.tie_rank
    cpu = search(queries, ArrayRows(documents), ties, 1000)
    stage = gpu_first_stage("cuda")
    gpu = search(queries, ArrayRows(documents), ties, 1000, first_stage=stage)
    same = np.array_equal(cpu.docs, gpu.docs)
    taken = median_seconds(lambda: search(queries, ArrayRows(documents), ties, 1000, first_stage=stage))
    print(f"search 120 × 61,379 × 1,024 top-1,000 on the GPU: {taken:.3f} s; same ranking as on the CPU: {same}")
    return same


def main() -> None:
    name, peak = gpu.check(), gpu.matrix_rate() / 1e12
    print(f"{name}: {peak:.0f} TFLOP/s in a bf16 matrix product")
    met = searching()
    texts = english_like(np.random.default_rng(0), TEXTS, WORDS)
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), texts)
        met &= encoding(Path(folder), texts, peak)
    sys.exit(not met)


if __name__ == "__main__":
    main()
