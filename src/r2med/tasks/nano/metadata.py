"""`metadata/<task>.json`: what a task is and how its candidates were made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ...core import DataError
from ..stats import Stats
from .figures import TaskFigures


class Metadata(msgspec.Struct, kw_only=True):
    """The facts of one Nano task."""

    task: str
    split: str
    source: str
    revision: str
    description: str
    family: str
    licence: str
    fingerprint: str
    stats: Stats
    figures: TaskFigures
    retrievers: dict[str, dict[str, Any]]
    safeguarded_queries: list[str]


def read_metadata(folder: Path, split: str) -> Metadata | None:
    """The metadata of a split, None where the folder has none."""
    path = folder / "metadata" / f"{split}.json"
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Metadata)
    except (ValueError, RecursionError, OSError) as error:
        raise DataError(f"not a metadata file of r2med ({error})", path=path) from None
