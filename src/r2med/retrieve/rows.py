"""Document vectors as something that is read in blocks, whether they lie in memory, in a cache or in 8 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ..cache import Piece

Float32 = npt.NDArray[np.float32]
Indices = npt.NDArray[np.integer]


PIECE = 65_536


@runtime_checkable
class InPieces(Protocol):
    """Rows that can also be read where they lie."""

    def pieces(self) -> Iterator[Piece]:
        """All rows, each once, in any order."""
        ...


@runtime_checkable
class Rows(Protocol):
    """A matrix of float32 that need not exist as a whole."""

    @property
    def shape(self) -> tuple[int, int]:
        """Documents and dimensions."""
        ...

    def read(self, begin: int, end: int) -> Float32:
        """The rows from `begin` to `end`, contiguous."""
        ...

    def take(self, indices: Indices) -> Float32:
        """The rows at `indices`."""
        ...


class ArrayRows:
    """A matrix in memory or memory-mapped, of any float type."""

    def __init__(self, matrix: npt.NDArray[np.floating]) -> None:
        self._matrix = matrix

    @property
    def shape(self) -> tuple[int, int]:
        """Documents and dimensions."""
        return self._matrix.shape[0], self._matrix.shape[1]

    def read(self, begin: int, end: int) -> Float32:
        """A block: no copy where the matrix is contiguous float32."""
        return np.ascontiguousarray(self._matrix[begin:end], dtype=np.float32)

    def take(self, indices: Indices) -> Float32:
        """Single rows."""
        return np.asarray(self._matrix[indices], dtype=np.float32)

    def pieces(self) -> Iterator[Piece]:
        """The matrix itself; one that is not contiguous float32 in blocks."""
        if self._matrix.dtype == np.float32 and self._matrix.flags.c_contiguous:
            yield Piece(np.asarray(self._matrix), None, None)
            return
        for begin in range(0, len(self._matrix), PIECE):
            block = self.read(begin, min(begin + PIECE, len(self._matrix)))
            yield Piece(block, None, np.arange(begin, begin + len(block)))


class UnitRows:
    """Rows scaled to length one as they are read: cosine for vectors that were stored as the model made them."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.shape = rows.shape

    def read(self, begin: int, end: int) -> Float32:
        """A block of unit rows."""
        return unit(self._rows.read(begin, end))

    def take(self, indices: Indices) -> Float32:
        """Single unit rows."""
        return unit(self._rows.take(indices))


class PrefixRows:
    """The first dimensions of each row: what a Matryoshka model is trained to be cut to."""

    def __init__(self, rows: Rows, dimension: int) -> None:
        self._rows = rows
        self.shape = (rows.shape[0], dimension)

    def read(self, begin: int, end: int) -> Float32:
        """A block of shorter rows."""
        return np.ascontiguousarray(self._rows.read(begin, end)[:, : self.shape[1]])

    def take(self, indices: Indices) -> Float32:
        """Single shorter rows."""
        return np.ascontiguousarray(self._rows.take(indices)[:, : self.shape[1]])


class TakenRows:
    """Rows of a matrix in another order, some of them more than once."""

    def __init__(self, rows: Rows, places: Indices) -> None:
        self._rows, self._places = rows, places
        self.shape = (len(places), rows.shape[1])

    def read(self, begin: int, end: int) -> Float32:
        """A block, gathered."""
        return self._rows.take(self._places[begin:end])

    def take(self, indices: Indices) -> Float32:
        """Single rows."""
        return self._rows.take(self._places[indices])


def as_rows(documents: Rows | npt.NDArray[np.floating]) -> Rows:
    """A matrix or anything that already reads like one."""
    return ArrayRows(documents) if isinstance(documents, np.ndarray) else documents


def unit(vectors: Float32) -> Float32:
    """Rows of length one; zeros stay zeros. A row's result does not depend on its neighbours."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return np.divide(vectors, np.where(lengths > 0, lengths, np.float32(1))[:, None], dtype=np.float32)
