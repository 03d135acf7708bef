"""Encoders for tests: real ones, but of arithmetic instead of a network."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from r2med.core.queries import Side
from r2med.retrieve.encoders import BaseEncoder, Batch, TokenBatch


def hashed(text: str, dimension: int) -> Any:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)


class HashEncoder(BaseEncoder):
    """A vector from the hash of the text; counts what it is asked, in batches of ten."""

    def __init__(self, *, dimension: int = 8, limit: int | None = 16, revision: str = "1") -> None:
        super().__init__()
        self.name, self.dimension, self.limit, self.revision = "hash", dimension, limit, revision
        self.asked: list[str] = []
        self.fail_after: int | None = None

    def describe(self, side: Side) -> dict[str, object]:
        return {"backend": "test", "revision": self.revision, "dtype": "float32", "max_length": self.limit, "for": side}

    def max_length(self, side: Side) -> int | None:
        return self.limit

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        pause = float(os.environ.get("PAUSE", "0"))
        for begin in range(0, len(texts), 10):
            chunk = list(texts[begin : begin + 10])
            if self.fail_after is not None and len(self.asked) >= self.fail_after:
                raise RuntimeError("the model broke")
            self.asked += chunk
            time.sleep(pause)
            vectors = np.stack([hashed(instruction + " ".join(t.split()[: self.limit]), self.dimension) for t in chunk])
            tokens = np.array([len(t.split()) for t in chunk], dtype=np.int32)
            yield Batch(np.arange(begin, begin + len(chunk)), vectors, tokens)

    def stream_states(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[TokenBatch]:
        """A vector for each word, and one for the end."""
        for rows, _, tokens in self.stream(texts, side, instruction):
            words = self.token_names([texts[row] for row in rows.tolist()], side, instruction)
            yield TokenBatch(rows, [np.stack([hashed(w, self.dimension) for w in some]) for some in words], tokens)

    def token_names(self, texts: Sequence[str], side: Side, instruction: str = "") -> list[list[str]]:
        """The words that have a vector."""
        del side, instruction
        return [[*text.split()[: self.limit], "."] for text in texts]
