"""Model cards: what every named model is, how it is fed, where it comes from and whether it is ready here."""

from .card import Card, Carrier, CarrierFile, ChatCard, Interaction, ModelCard, Paper, Price
from .fetch import Fetched, fetch, find_any_card
from .generic import folder_card, generic_card, stated
from .locate import locate, ready, verified
from .prompts import Instructions
from .registry import (
    Row,
    card_names,
    cards,
    chat_cards,
    chat_names,
    find_card,
    find_chat_card,
    get_card,
    listing,
    missing_extra,
    named_card,
)

__all__ = [
    "Card",
    "Carrier",
    "CarrierFile",
    "ChatCard",
    "Fetched",
    "Instructions",
    "Interaction",
    "ModelCard",
    "Paper",
    "Price",
    "Row",
    "card_names",
    "cards",
    "chat_cards",
    "chat_names",
    "fetch",
    "find_any_card",
    "find_card",
    "find_chat_card",
    "folder_card",
    "generic_card",
    "get_card",
    "listing",
    "locate",
    "missing_extra",
    "named_card",
    "ready",
    "stated",
    "verified",
]
