"""Model cards: what every named model is, how it is fed, where it comes from and whether it is ready here."""

from .card import Card
from .fetch import Fetched, fetch
from .generic import folder_card, generic_card
from .listing import Row, listing
from .locate import locate, ready
from .parts import Carrier, CarrierFile, Instructions, Paper, Price
from .registry import card_names, cards, find_card, get_card

__all__ = [
    "Card",
    "Carrier",
    "CarrierFile",
    "Fetched",
    "Instructions",
    "Paper",
    "Price",
    "Row",
    "card_names",
    "cards",
    "fetch",
    "find_card",
    "folder_card",
    "generic_card",
    "get_card",
    "listing",
    "locate",
    "ready",
]
