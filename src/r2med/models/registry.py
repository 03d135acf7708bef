"""Names to cards: the models that come with r2med, one TOML file each, read when asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import msgspec

from ..core import UnknownName
from ..core.places import exists, typed_path
from ..core.toml import loads
from .card import Card
from .parts import Instructions
from .prompts import built_in

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w.-]+)?")


@cache
def card_names() -> tuple[str, ...]:
    """All names, sorted."""
    folder = files(__package__).joinpath("cards")
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml")))


def get_card(name: str) -> Card:
    """The card of a named model."""
    folded = name.casefold().replace("_", "-")
    if folded not in card_names():
        hint = "(r2med models lists them; a Hugging Face id or a folder works too)"
        raise UnknownName("model", name, card_names(), hint=hint)
    return _read(folded)


@cache
def _read(name: str) -> Card:
    data = loads(files(__package__).joinpath(f"cards/{name}.toml").read_text("utf-8"))
    if pack := data.get("prompts"):
        own = msgspec.convert(data.get("instructions", {}), Instructions)
        data["instructions"] = own.over(built_in(pack).instructions(name, Instructions()))
    return msgspec.convert(data, Card)


def cards(kind: str | None = None) -> Iterator[Card]:
    """All named models, or those of one kind."""
    for name in card_names():
        card = get_card(name)
        if kind in (None, card.kind):
            yield card


def find_card(spec: str) -> Card:
    """The card for whatever a user typed: a name, a folder, or a hub id with or without @revision."""
    from .generic import folder_card, generic_card

    if spec.casefold().replace("_", "-") in card_names():
        return get_card(spec)
    path = typed_path(spec)
    if (exists(path) and path.is_dir()) or spec.startswith(("/", "./", "../", "~")):
        return folder_card(path)
    if HUB_ID.fullmatch(spec):
        return generic_card(spec)
    return get_card(spec)  # says what is near
