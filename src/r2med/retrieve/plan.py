"""What is left to encode, counted without encoding anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..cache import EmbeddingCache, known_speed, text_keys
from .embed import identity
from .encoders.batching import estimated_tokens
from .encoders.protocol import Encoder, Side


class SidePlan(NamedTuple):
    """One side of a task."""

    texts: int
    missing: int
    """Distinct texts without a vector in the cache."""
    tokens: int
    """About how many tokens those have, cut at the model's limit."""
    distinct: int = 0
    """Texts that differ."""
    seconds: float | None = None
    """What they will take at the speed measured last; None where nothing was measured."""


def plan_side(
    encoder: Encoder, texts: Sequence[str], side: Side, instruction: str, cache: EmbeddingCache | None
) -> SidePlan:
    """Count the texts of a side that would go through the model."""
    keys = text_keys(texts)
    _, first = np.unique(keys, axis=0, return_index=True)
    distinct, speed = len(first), None
    if cache is not None:
        shards = cache.look(identity(encoder, side, instruction), encoder.max_length(side))
        first = first[shards.find(keys[first]).row < 0]
        speed = known_speed(shards.folder.parent)
    tokens = int(estimated_tokens(texts, first, instruction, encoder.max_length(side)).sum())
    seconds = 0.0 if not tokens else tokens / speed if speed else None
    return SidePlan(len(texts), len(first), tokens, distinct, seconds)
