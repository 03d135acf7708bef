"""Stored results as plain files: changed on purpose with a valid checksum, and read without our reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from r2med.core import fingerprint


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a result file and give it the checksum of what it then holds; it appears under its name at once."""
    document = json.loads(path.read_text())
    change(document)
    document.pop("checksum")
    document["checksum"] = fingerprint("stored-result", document)
    aside = path.with_name(f".{path.name}.new")
    aside.write_text(json.dumps(document))
    aside.replace(path)


def scores_in(path: Path, measure: str) -> dict[str, float]:
    """One measure of each query, from the file beside a result."""
    lines = path.with_suffix(".queries.jsonl").read_text().splitlines()
    return {scores["query_id"]: scores["measures"][measure] for scores in map(json.loads, lines)}
