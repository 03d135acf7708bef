"""Protocols: named, hashed sets of the settings that change scores."""

from .bundle import MAIN_PROTOCOL, Protocol, Source, get_protocol, parse_protocol, protocol_names, read_protocol
from .checking import Expected, Part, differences, own_words, parts, unstated

__all__ = [
    "MAIN_PROTOCOL",
    "Expected",
    "Part",
    "Protocol",
    "Source",
    "differences",
    "get_protocol",
    "own_words",
    "parse_protocol",
    "parts",
    "protocol_names",
    "read_protocol",
    "unstated",
]
