"""What is left to encode, counted without encoding anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .cache import EmbeddingCache, text_keys
from .embed import identity
from .encoders.batching import text_lengths
from .encoders.protocol import Encoder, Side

BYTES_PER_TOKEN = 4


class SidePlan(NamedTuple):
    """One side of a task."""

    texts: int
    missing: int
    """Distinct texts without a vector in the cache."""
    tokens: int
    """About how many tokens those have, cut at the model's limit."""


def plan_side(
    encoder: Encoder, texts: Sequence[str], side: Side, instruction: str, cache: EmbeddingCache | None
) -> SidePlan:
    """Count the texts of a side that would go through the model."""
    keys = text_keys(texts)
    _, first = np.unique(keys, axis=0, return_index=True)
    if cache is not None:
        shards = cache.look(identity(encoder, side, instruction), encoder.max_length(side))
        first = first[shards.find(keys[first]).row < 0]
    tokens = (text_lengths(texts)[first] + len(instruction)) // BYTES_PER_TOKEN + 1
    limit = encoder.max_length(side)
    return SidePlan(len(texts), len(first), int((np.minimum(tokens, limit) if limit else tokens).sum()))
