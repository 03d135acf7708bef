"""Names to cards: the models that come with r2med, one TOML file each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

from ..core import UnknownName, UsageError
from ..core.files import parse_toml
from ..core.places import exists, typed_path
from .card import Card, ChatCard
from .parts import Instructions
from .prompts import built_in

HUB_ID = re.compile(r"(?!.*(?:--|\.\.))(?=[^@]{1,96}(?:@|$))[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w.-]{1,100})?", re.ASCII)
"""As the hub has them: 96 characters at most, neither `--` nor `..`; so each has a folder of its own."""
CHAT_ALIASES = {"local": "smollm2"}


class _Cards(NamedTuple):
    """All cards by name, sorted."""

    models: dict[str, Card]
    """That encode or score."""
    chats: dict[str, ChatCard]


@cache
def _read_all() -> _Cards:
    found = _Cards({}, {})
    for entry in sorted(
        files(__package__).joinpath("cards").iterdir(), key=lambda entry: entry.name.removesuffix(".toml")
    ):
        if not entry.name.endswith(".toml"):
            continue
        name, data = entry.name[:-5], parse_toml(entry.read_text("utf-8"))
        if data["kind"] == "chat":
            found.chats[name] = msgspec.convert(data, ChatCard)
            continue
        if pack := data.get("prompts"):
            own = msgspec.convert(data.get("instructions", {}), Instructions)
            lines = built_in(pack)
            data["instructions"] = own.over(Instructions(lines.query, lines.document))
        found.models[name] = msgspec.convert(data, Card)
    return found


def card_names() -> tuple[str, ...]:
    """All names of models that encode or score."""
    return tuple(_read_all().models)


def cards(kind: str | None = None) -> Iterator[Card]:
    """All named models that encode or score, or those of one kind."""
    return (card for card in _read_all().models.values() if kind in (None, card.kind))


def get_card(name: str) -> Card:
    """The card of a named model."""
    if found := _read_all().models.get(_folded(name)):
        return found
    if find_chat_card(name):
        raise UsageError(f"{name} is a chat model: it expands queries (--expand hyde:{name}) and judges passages")
    hint = "(r2med models lists them; a Hugging Face id or a folder works too)"
    raise UnknownName("model", name, card_names(), hint=hint)


def find_card(spec: str) -> Card:
    """The card for whatever a user typed: a name, a folder, or a hub id with or without @revision."""
    from .generic import folder_card, generic_card

    if _folded(spec) in _read_all().models:
        return get_card(spec)
    path = typed_path(spec)
    if (exists(path) and path.is_dir()) or spec.startswith(("/", "./", "../", "~")):
        return folder_card(path)
    if HUB_ID.fullmatch(spec):
        return generic_card(spec)
    return get_card(spec)  # says what is near


def chat_cards() -> Iterator[ChatCard]:
    """All named chat models."""
    return iter(_read_all().chats.values())


def chat_names() -> tuple[str, ...]:
    """All names of chat models."""
    return tuple(_read_all().chats)


def find_chat_card(name: str) -> ChatCard | None:
    """The card of a chat model, by its name or by what servers call it; None where there is none."""
    folded = _folded(name)
    by_name = _read_all().chats.get(CHAT_ALIASES.get(folded, folded))
    return by_name or next((card for card in chat_cards() if name == card.source and card.is_api), None)


def _folded(name: str) -> str:
    """A name as files have it: case, hyphens and underscores do not count."""
    return name.casefold().replace("_", "-")
