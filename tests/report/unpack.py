"""The pages of a single file, read back out of it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import NamedTuple


class Unpacked(NamedTuple):
    """What stands in the file as it is, and the pages that were compressed, by anchor."""

    bare: str
    pages: dict[str, str]
    titles: dict[str, str]

    @property
    def html(self) -> str:
        return "\n".join([self.bare, *self.pages.values()])


def unpack(path: Path) -> Unpacked:
    html = path.read_text("utf-8")
    (index,) = re.findall(r'<template id="index">([^<]*)</template>', html)
    blocks = [_text(block).split("\0") for block in re.findall(r'<template class="block">([^<]*)</template>', html)]
    entries = json.loads(_text(index))
    return Unpacked(
        re.sub(r"<template.*?</template>", "", html),
        {anchor: blocks[block][place] for anchor, _, _, block, place in entries},
        {anchor: title for anchor, title, _, _, _ in entries},
    )


def _text(packed: str) -> str:
    return gzip.decompress(base64.b64decode(packed)).decode()
