"""Content fingerprints: a short hash that every cached or stored thing carries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt

DIGEST_BYTES = 16


class Hasher:
    """BLAKE2b over length-prefixed parts, so that ("ab", "c") and ("a", "bc") differ."""

    def __init__(self, kind: str) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.text(kind)

    def data(self, part: bytes | memoryview | npt.NDArray[np.generic]) -> None:
        """Add one binary part."""
        whole = np.ascontiguousarray(part).data if isinstance(part, np.ndarray) else part
        view = memoryview(whole)
        self._hash.update(view.nbytes.to_bytes(8, "little"))
        if view.nbytes:
            self._hash.update(view.cast("B"))

    def text(self, part: str) -> None:
        """Add one text."""
        self.data(part.encode())

    def texts(self, parts: Iterable[str]) -> None:
        """Add a list of texts as one part."""
        encoded = [p.encode() for p in parts]
        self.data(np.array([len(e) for e in encoded], dtype="<i8"))
        self.data(b"".join(encoded))

    def digest(self) -> str:
        """The fingerprint, 32 hexadecimal digits."""
        return self._hash.hexdigest()


def fingerprint(kind: str, value: object) -> str:
    """Fingerprint of plain data (numbers, texts, lists, dicts), independent of key order."""
    hasher = Hasher(kind)
    hasher.data(msgspec.json.encode(value, order="deterministic"))
    return hasher.digest()
