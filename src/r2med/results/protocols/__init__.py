"""Protocols: named, hashed sets of the settings that change scores."""

from .bundle import MAIN_PROTOCOL, Protocol, get_protocol, protocol_names, protocols, read_protocol
from .checking import Expected, Part, differences, parts, unstated

__all__ = [
    "MAIN_PROTOCOL",
    "Expected",
    "Part",
    "Protocol",
    "differences",
    "get_protocol",
    "parts",
    "protocol_names",
    "protocols",
    "read_protocol",
    "unstated",
]
