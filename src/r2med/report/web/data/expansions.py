"""What a query was rewritten to: `<task>.expansions.jsonl` beside a result, one line a query, where the run kept it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from .shelf import Entry, inside

LARGEST = 256 << 20


class Expanded(msgspec.Struct, frozen=True, kw_only=True):
    """The texts made from one query."""

    query_id: str
    texts: list[str] = []
    statuses: list[str] = []
    reasoning: list[str] = []
    searches: list[str] = []


def read_expansion(entry: Entry, query_id: str, roots: Sequence[Path]) -> Expanded | None:
    """The expansion of one query; None where none was kept. Only the wanted line is decoded in full."""
    path = entry.path.with_suffix(".expansions.jsonl")
    try:
        if not path.is_file() or not inside(path, roots) or path.stat().st_size > LARGEST:
            return None
        wanted = msgspec.json.encode(query_id)
        with path.open("rb") as lines:
            for line in lines:
                if wanted in line:
                    found = msgspec.json.decode(line, type=Expanded)
                    if found.query_id == query_id:
                        return found
    except (OSError, ValueError, RecursionError):
        return None
    return None
