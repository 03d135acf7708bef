"""How fast a model was here the last time: what makes seconds out of a plan's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np

from ..core import ResultError
from ..core.atomic import write_bytes
from ..core.columns import Int64
from .encoders.batching import text_lengths

BYTES_PER_TOKEN = 4
FILE = "speed.json"
TELLING_SECONDS = 0.5
"""Shorter spells are mostly loading."""


def estimated_tokens(texts: Sequence[str], positions: Int64, instruction: str, limit: int | None) -> Int64:
    """About how many tokens some texts have, cut at the model's limit."""
    tokens = (text_lengths(texts)[positions] + len(instruction)) // BYTES_PER_TOKEN + 1
    return np.minimum(tokens, limit) if limit else tokens


def remember_speed(folder: Path, tokens: int, seconds: float) -> None:
    """Keep what was measured beside the vectors; a few texts measure nothing."""
    if seconds < TELLING_SECONDS:
        return
    facts = {"tokens": tokens, "seconds": round(seconds, 3), "tokens_per_second": round(tokens / seconds, 1)}
    with suppress(ResultError):  # a plan without seconds is still a plan
        write_bytes(folder / FILE, msgspec.json.encode(facts) + b"\n")


def known_speed(folder: Path) -> float | None:
    """Estimated tokens a second at which this set grew last; None where nobody measured."""
    try:
        facts = msgspec.json.decode((folder / FILE).read_bytes(), type=dict[str, float])
        return facts["tokens_per_second"] or None
    except (OSError, msgspec.MsgspecError, KeyError):
        return None
