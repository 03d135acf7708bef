"""Protocols: named, hashed bundles of the choices that move a score."""

from .bundle import Protocol, get_protocol, protocol_names, protocols, read_protocol
from .checking import Expected, Part, differences, parts, unstated

__all__ = [
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
