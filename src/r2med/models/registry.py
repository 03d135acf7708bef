"""Names to cards: the models that come with r2med, one TOML file each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

from ..core import UnknownName, UsageError
from ..core.files import exists, parse_toml, typed_path
from .card import Card, ChatCard
from .parts import Instructions
from .prompts import built_in

if TYPE_CHECKING:
    from importlib.abc import Traversable

HUB_ID = re.compile(r"(?!.*(?:--|\.\.))(?=[^@]{1,96}(?:@|$))[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w.-]{1,100})?", re.ASCII)
"""As the hub has them: 96 characters at most, neither `--` nor `..`; so each has a folder of its own."""
CHAT_ALIASES = {"local": "smollm2"}


@cache
def _files() -> dict[str, Traversable]:
    """All names of cards, sorted, with their files."""
    found = {entry.name: entry for entry in files(__package__).joinpath("cards").iterdir()}
    names = sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))
    return {name: found[f"{name}.toml"] for name in names}


@cache
def _read(name: str) -> Card | ChatCard | None:
    """The card of a name as files have it, read when somebody asks for it; None where there is none."""
    if name not in _files():
        return None
    data = parse_toml(_files()[name].read_text("utf-8"))
    if data["kind"] == "chat":
        return msgspec.convert(data, ChatCard)
    if pack := data.get("prompts"):
        own = msgspec.convert(data.get("instructions", {}), Instructions)
        lines = built_in(pack)
        data["instructions"] = own.over(Instructions(lines.query, lines.document))
    return msgspec.convert(data, Card)


def card_names() -> tuple[str, ...]:
    """All names of models that encode or score."""
    return tuple(name for name in _files() if isinstance(_read(name), Card))


def cards(kind: str | None = None) -> Iterator[Card]:
    """All named models that encode or score, or those of one kind."""
    return (card for name in _files() if isinstance(card := _read(name), Card) and kind in (None, card.kind))


def named_card(name: str) -> Card | None:
    """The card of a named model that encodes or scores; None where there is none."""
    found = _read(_folded(name))
    return found if isinstance(found, Card) else None


def get_card(name: str) -> Card:
    """The card of a named model."""
    if found := named_card(name):
        return found
    if find_chat_card(name):
        raise UsageError(f"{name} is a chat model: it expands queries (--expand hyde:{name}) and judges passages")
    hint = "(r2med models lists them; a Hugging Face id or a folder works too)"
    raise UnknownName("model", name, card_names(), hint=hint)


def find_card(spec: str) -> Card:
    """The card for whatever a user typed: a name, a folder, or a hub id with or without @revision."""
    from .generic import folder_card, generic_card

    if found := named_card(spec):
        return found
    path = typed_path(spec)
    if (exists(path) and path.is_dir()) or spec.startswith(("/", "./", "../", "~")):
        return folder_card(path)
    if HUB_ID.fullmatch(spec):
        return generic_card(spec)
    return get_card(spec)  # says what is near


def chat_cards() -> Iterator[ChatCard]:
    """All named chat models."""
    return (card for name in _files() if isinstance(card := _read(name), ChatCard))


def chat_names() -> tuple[str, ...]:
    """All names of chat models."""
    return tuple(card.name for card in chat_cards())


def find_chat_card(name: str) -> ChatCard | None:
    """The card of a chat model, by its name or by what servers call it; None where there is none."""
    folded = _folded(name)
    by_name = _read(CHAT_ALIASES.get(folded, folded))
    if isinstance(by_name, ChatCard):
        return by_name
    return next((card for card in chat_cards() if name == card.source and card.is_api), None)


def _folded(name: str) -> str:
    """A name as files have it: case, hyphens and underscores do not count."""
    return name.casefold().replace("_", "-")
