"""Sizes as people write them: a kilobyte is 1,024 bytes, a gigabyte 2³⁰, here as everywhere in r2med."""

from __future__ import annotations

import math
import re

from .errors import UsageError

_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(text: str, *, least: int = 1) -> int:
    """Bytes in `500MB`, `2GB`, `10G`, `1.5GiB`; a unit is 1,024 of the one below."""
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match["number"]) * _UNITS[match["unit"].lower()]) if match else -1
    if size < least:
        raise UsageError(f"cannot read {text!r} as a size: write 500MB or 2GB")
    return size


def show_size(count: int) -> str:
    """The same for people, rounded up: whoever types it gets no less."""
    if count >= 1 << 30:
        return f"{math.ceil(10 * count / (1 << 30)) / 10:.1f}GB"
    return f"{-(-count // (1 << 20))}MB" if count >= 1 << 20 else f"{-(-count // (1 << 10))}KB"
