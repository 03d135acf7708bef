"""Changing a stored result on purpose, so that its checksum is valid again: what a test needs of a forger."""

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
