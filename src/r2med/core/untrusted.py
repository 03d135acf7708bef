"""Names and texts that come from data: as file names, as path components, as a line on a terminal.

This is the only place where a name from a file, an archive, a server or a user's folder becomes part of a path, and
the only place where such a text is made fit to be printed.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import NoReturn

LONGEST = 120  # characters of a file name; most systems take 255 bytes, and suffixes follow
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._+@=,-]*")
_HASHED = re.compile(r".*~[0-9a-f]{8}")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._+@=,~-]+")
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}
_SHOWN = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that can move a cursor, reverse a line or break it."""
_DRIVING = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_JOINERS = "\u200c\u200d\u00ad\ufeff"
"""Format characters that stand in ordinary words and emoji, and can do no harm."""


def file_name(name: str, *, known: Collection[str] = ()) -> str:
    """A name as a file name; two different names never share one, on any file system.

    A lower-case name of plain characters, or one of the `known` names, is written as it is. Any other loses what a
    file system may not keep (capitals count: some systems fold them) and carries a hash of the whole instead.
    """
    if name in known and _is_component(name):
        return name
    taken = any(name == other.casefold() for other in known)
    device = name.partition(".")[0] in _RESERVED  # of Windows, which also shortens a name that ends in a dot
    special = device or name.endswith(".") or _HASHED.fullmatch(name) is not None
    if _PLAIN.fullmatch(name) and len(name) <= LONGEST and not special and not taken:
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    readable = _NOT_PLAIN.sub("_", name).strip("._~")[: LONGEST - 9].rstrip(".")
    device = readable.partition(".")[0].lower() in _RESERVED
    return f"{'_' if device or not readable else ''}{readable}~{digest}"


def is_portable(name: str) -> bool:
    """Whether a name is a file name of ours, or one as plain: any file system keeps it as it is."""
    odd = _NOT_PLAIN.search(name) or name.startswith((".", "~")) or name.endswith(".")
    return bool(name) and len(name) <= 2 * LONGEST and not odd and name.partition(".")[0].lower() not in _RESERVED


def component(name: str, what: str, *, path: str | Path | None = None) -> str:
    """A name from data that must be one component of a path by itself; anything else is refused, not repaired."""
    if not _is_component(name):
        _refuse(f"{what} {name!r} cannot be part of a path", path)
    return name


def _is_component(name: str) -> bool:
    if name in ("", ".", "..") or any(c in name for c in "/\\\0") or name != name.strip():
        return False
    return not any(unicodedata.category(c) in ("Cc", "Cs") for c in name) and not re.match(r"[A-Za-z]:", name)


def inside(folder: Path, name: str, what: str) -> Path:
    """The place of a relative name with `/` in it below a folder; a name that leads out of it is refused."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or not pure.parts:
        _refuse(f"{what} {name!r} leads out of its folder", folder)
    return folder.joinpath(*(component(part, what, path=folder) for part in pure.parts))


def _refuse(message: str, path: str | Path | None) -> NoReturn:
    from .errors import HostileData  # which makes its own message printable

    raise HostileData(message, path=path)


def printable(text: str, *, keep: str = "") -> str:
    """A text that can be printed without driving the terminal: control and direction characters are spelled out.

    `keep` names control characters that stay, such as the line breaks of a passage.
    """
    if text.isprintable():
        return text
    return "".join(c if c in keep or c in _JOINERS else _shown(c) for c in text)


def printable_json(text: str) -> str:
    """A JSON document in which what could drive a terminal is escaped as JSON does it; it stands for the same values.

    JSON escapes most control characters by itself, but not the second set of them nor what turns the direction.
    """
    return _DRIVING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _shown(character: str) -> str:
    code = ord(character)
    if unicodedata.category(character) not in _INVISIBLE:
        return character
    if code in _SHOWN:
        return _SHOWN[code]
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
