"""Blocks of a page that a script writes: they stand between `<!-- name -->` and `<!-- /name -->`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def read_block(page: Path, name: str) -> str:
    """What stands in a block."""
    return _find(page.read_text("utf-8"), page, name)[1].strip("\n")


def write_block(page: Path, name: str, text: str) -> None:
    """Replace what stands in a block."""
    whole = page.read_text("utf-8")
    match = _find(whole, page, name)
    page.write_text(f"{whole[: match.start(1)]}\n{text}\n\n{whole[match.end(1) :]}", "utf-8")


def _find(text: str, page: Path, name: str) -> re.Match[str]:
    found = list(re.finditer(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.DOTALL))
    if len(found) != 1:
        raise SystemExit(f"{page} has {len(found)} blocks {name!r}, not one")
    return found[0]
