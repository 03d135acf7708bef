"""Document vectors as they are held: as made, of length one, cut to their first dimensions, in fewer bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..cache import Piece
from .vectors import DOCUMENT_BLOCK, Float32, Indices, Rows, unit

PIECE = 65_536


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


class SmallRows:
    """Vectors held in fewer bits; read back as float32."""

    def __init__(self, rows: Rows, precision: str) -> None:
        self.shape = rows.shape
        self.precision = precision
        width = -(-rows.shape[1] // 8) if precision == "binary" else rows.shape[1]
        dtype = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16, "int8": np.int8}
        self._codes = np.empty((rows.shape[0], width), dtype=dtype.get(precision, np.uint8))
        self._scales = np.ones((rows.shape[0], 1), dtype=np.float32)
        for begin in range(0, rows.shape[0], DOCUMENT_BLOCK):
            end = min(begin + DOCUMENT_BLOCK, rows.shape[0])
            self._pack(rows.read(begin, end), slice(begin, end))

    @property
    def nbytes(self) -> int:
        """Memory they take."""
        return self._codes.nbytes + (self._scales.nbytes if self.precision == "int8" else 0)

    def _pack(self, block: Float32, at: slice) -> None:
        if self.precision == "bfloat16":
            self._codes[at] = to_bfloat16(block)
        elif self.precision == "int8":
            # One scale per row, symmetric: zero stays zero and a vector's negative is its codes' negative.
            scale = np.abs(block).max(axis=1, keepdims=True) / np.float32(127)
            self._scales[at] = np.where(scale > 0, scale, 1)
            self._codes[at] = np.rint(block / self._scales[at])
        elif self.precision == "binary":
            self._codes[at] = np.packbits(block > 0, axis=1)
        else:
            self._codes[at] = block

    def _unpack(self, codes: npt.NDArray[np.generic], scales: Float32) -> Float32:
        if self.precision == "bfloat16":
            return (codes.astype(np.uint32) << 16).view(np.float32)
        if self.precision == "binary":
            bits = np.unpackbits(codes.view(np.uint8), axis=1, count=self.shape[1])
            return bits.astype(np.float32) * np.float32(2) - np.float32(1)
        values = np.ascontiguousarray(codes, dtype=np.float32)
        return values * scales if self.precision == "int8" else values

    def read(self, begin: int, end: int) -> Float32:
        """A block as float32."""
        return self._unpack(self._codes[begin:end], self._scales[begin:end])

    def take(self, indices: Indices) -> Float32:
        """Single rows as float32."""
        return self._unpack(self._codes[indices], self._scales[indices])


class SmallOnRead:
    """The same values for less memory and more work: rows are made small each time they are read."""

    def __init__(self, rows: Rows, precision: str) -> None:
        self._rows, self._precision = rows, precision
        self.shape = rows.shape

    def read(self, begin: int, end: int) -> Float32:
        """A block as float32."""
        return SmallRows(ArrayRows(self._rows.read(begin, end)), self._precision).read(0, end - begin)

    def take(self, indices: Indices) -> Float32:
        """Single rows as float32."""
        return SmallRows(ArrayRows(self._rows.take(indices)), self._precision).read(0, len(indices))


def make_small(rows: Rows, precision: str, memory: int | None) -> Rows:
    """Small vectors in memory, unless they would take more than half of what there is."""
    bits = {"float16": 16, "bfloat16": 16, "int8": 8, "binary": 1}[precision]
    if memory is not None and rows.shape[0] * rows.shape[1] * bits // 8 > memory // 2:
        return SmallOnRead(rows, precision)
    return SmallRows(rows, precision)


def to_bfloat16(values: Float32) -> npt.NDArray[np.uint16]:
    """Upper halves of float32, rounded to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
