"""Protocols: named, hashed bundles of the choices that move a score."""

from .bundle import Protocol, get_protocol, protocol_names, protocols, read_protocol
from .checking import Expected, differences, unstated

__all__ = [
    "Expected",
    "Protocol",
    "differences",
    "get_protocol",
    "protocol_names",
    "protocols",
    "read_protocol",
    "unstated",
]
