"""Shared by the benchmarks that need CUDA: the card's own speed, seconds on it, tokenizers for random models."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

VOCABULARY = 30_522


def check() -> str:
    """The name of the card; ends the script where there is none."""
    if not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device here")
    return str(torch.cuda.get_device_name())


def median_seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """The median of several times until the card has finished."""
    times = []
    for _ in range(repeat):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def matrix_rate(size: int = 8192, products: int = 20) -> float:
    """Measured operations a second of large bfloat16 products on random data."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def work() -> None:
        for _ in range(products):
            a @ b

    work()
    return products * 2 * size**3 / median_seconds(work)


def word_pieces(folder: Path, texts: list[str], length: int) -> Any:
    """A WordPiece tokenizer trained on some texts; speed depends on its vocabulary's size alone."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizerFast

    trained = BertWordPieceTokenizer()
    trained.train_from_iterator(texts[:500], vocab_size=VOCABULARY)
    trained.save(str(folder / "trained.json"))
    return BertTokenizerFast(tokenizer_file=str(folder / "trained.json"), model_max_length=length, eos_token="[SEP]")
