"""How fast a model was here the last time: what makes seconds out of a plan's tokens."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from ..core import ResultError
from ..core.atomic import write_bytes

FILE = "speed.json"
TELLING_SECONDS = 0.5
"""Shorter spells are mostly loading."""


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
