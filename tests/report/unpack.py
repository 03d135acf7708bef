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
    texts, blocks = (
        [parts(block) for block in re.findall(rf'<template class="{kind}">([^<]*)</template>', html)]
        for kind in ("texts", "block")
    )
    shared = [text for block in texts for text in block]
    entries = json.loads(_text(index))
    return Unpacked(
        re.sub(r"<template.*?</template>", "", html),
        {anchor: whole(blocks[block][place], shared) for anchor, _, _, block, place in entries},
        {anchor: title for anchor, title, _, _, _ in entries},
    )


def whole(html: str, shared: list[str]) -> str:
    """A page with the texts that it refers to."""

    def text(match: re.Match[str]) -> str:
        units, at, out = shared[int(match[1])].encode("utf-16-le"), 0, b""
        units = units[: 2 * int(match[2])]
        for gap, length in re.findall(r"(\d+),(\d+)", match[3]):
            start, end = at + 2 * int(gap), at + 2 * int(gap) + 2 * int(length)
            out += units[at:start] + b"<\0m\0a\0r\0k\0>\0" + units[start:end] + b"<\0/\0m\0a\0r\0k\0>\0"
            at = end
        return (out + units[at:]).decode("utf-16-le")

    return re.sub(r"\x01(\d+) (\d+)((?: \d+,\d+)*)\x01", text, html)


def parts(packed: str) -> list[str]:
    """The pages or texts of a block."""
    return _text(packed).split("\0")


def _text(packed: str) -> str:
    return gzip.decompress(base64.b64decode(packed)).decode()
