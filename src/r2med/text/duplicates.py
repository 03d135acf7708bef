"""Exact copies of passages: the same text up to white space and case."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..core import Documents
from ..core.columns import Int32


class Copies(NamedTuple):
    """For each document the position of the first one with its text; itself where it is the first or the only one."""

    documents: Documents
    first: Int32

    def groups(self) -> list[list[str]]:
        """Ids of the documents of each group of two or more, in corpus order."""
        grouped: dict[int, list[str]] = {}
        ids = self.documents.ids
        for position in np.flatnonzero(self._shared()).tolist():
            grouped.setdefault(int(self.first[position]), []).append(ids[position])
        return list(grouped.values())

    def by_id(self) -> dict[str, str]:
        """Document id to the id that stands for its group; only documents that have copies."""
        ids = self.documents.ids
        return {ids[i]: ids[int(self.first[i])] for i in np.flatnonzero(self._shared()).tolist()}

    def _shared(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        sizes = np.bincount(self.first, minlength=len(self.first))
        return sizes[self.first] > 1


def find_copies(documents: Documents) -> Copies:
    """Group documents by their contents, title included."""
    return Copies(documents, first_of_equal(documents.contents))


def first_of_equal(texts: Iterable[str]) -> Int32:
    """For each text the position of the first equal one."""
    seen: dict[bytes, int] = {}
    return np.fromiter((seen.setdefault(text_key(text), i) for i, text in enumerate(texts)), dtype=np.int32)


def text_key(text: str) -> bytes:
    """Hash of a text in which white space and case do not count."""
    return hashlib.blake2b(" ".join(text.casefold().split()).encode(), digest_size=16).digest()
