"""Whose instructions and prompts the commands run with: those of a pack, of a clone's files, or what was fetched."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from ...core import DataError
from ...core.options import content_at
from ...core.spec import Content
from ...expand import Expander
from ...models.prompts import OWN, PAPER, pack_of
from ...pipeline.protocol_pack import fetch_pack
from ...results.protocols import get_protocol
from .tree import Tree

PROMPTS: Final = "prompts"
"""Key of a line that says whose prompts it was made with; the repository's own files have none."""
FILE: Final = "src/instrcution.py"
"""What tells a clone of the repository from any other folder with a dataset in it."""


def find_prompts(tree: Tree, given: str | None) -> Content | None:
    """The pack that was named; otherwise a clone's own files are read into R2MED_HOME, where the protocol finds them.

    Files of a clone that are not those of the published commit are named on standard error, and not used.
    """
    if given:
        return content_at(given, "prompts")
    protocol = get_protocol(PAPER)
    here = pack_of(PAPER)
    if (tree.root / FILE).is_file() and (here is None or here.whole != protocol.prompts):
        try:
            fetch_pack(protocol, tree.root)
        except DataError as why:
            print(f"r2med: {why}", file=sys.stderr)
    return None


def whose_prompts(expander: Expander) -> str:
    """Whose prompts texts are generated with; empty where they are the repository's own."""
    pack = expander.spec.get("prompts")
    if not isinstance(pack, Content):
        return OWN
    return "" if pack.whole == get_protocol(PAPER).prompts else f"{pack.label}~{pack.whole}"


def prompts_of(path: Path) -> str:
    """Whose prompts a file of generated texts was made with; empty: the repository's, or not stated."""
    try:
        with path.open("rb") as stream:
            first = json.loads(stream.readline() or b"{}")
    except (OSError, ValueError, RecursionError):
        return ""
    return str(first.get(PROMPTS, "")) if isinstance(first, dict) else ""
