"""Protocols: named, hashed sets of the settings that change scores."""

from .bundle import MAIN_PROTOCOL, Protocol, get_protocol, parse_protocol, protocol_names
from .checking import Expected, Part, differences, parts, unstated

__all__ = [
    "MAIN_PROTOCOL",
    "Expected",
    "Part",
    "Protocol",
    "differences",
    "get_protocol",
    "parse_protocol",
    "parts",
    "protocol_names",
    "unstated",
]
