"""The shape of NanoR2MED's own tasks, as its pages publish it."""

from __future__ import annotations

from importlib.resources import files

import msgspec

from ...core.toml import loads


class PublishedShape(msgspec.Struct, frozen=True):
    """What the pages say about a task beside its scores."""

    positives: tuple[int, float, int]
    multiple: int
    query_chars: float
    document_chars: float
    safeguards: int


def published_shapes() -> dict[str, PublishedShape]:
    """The shape of each task, by its name in the catalogue."""
    data = loads(files(__package__).joinpath("published.toml").read_text("utf-8"))
    return msgspec.convert(data, dict[str, PublishedShape])
