"""Smaller vectors: half precision, 8 bits, one bit, fewer dimensions.

    bge:variant=int8            bge:dimension=256            bge:variant=binary,oversample=10

A cut to the first dimensions (of a Matryoshka model) is scaled to length one again if the vectors had it. The best
`oversample × depth` candidates of the small vectors are ranked by the full ones; `oversample=0` leaves the ranking as
the small vectors gave it. Queries are never made smaller than float32.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from ..core import UsageError
from ..core.columns import Int32
from .rows import ArrayRows, Float32, Indices, PrefixRows, Rows, UnitRows, unit
from .sparse import TopK
from .vectors import DOCUMENT_BLOCK, FirstStage, MemoryPlan, order_exactly, search

Precision = Literal["float32", "float16", "bfloat16", "int8", "binary"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
OVERSAMPLE = 4


class Variant(NamedTuple):
    """How documents are held for the first look, and whether a second one follows."""

    precision: Precision = "float32"
    dimension: int | None = None
    oversample: int = OVERSAMPLE
    """Candidates per wanted document that are rescored; 0: none are."""

    def __str__(self) -> str:
        cut = f"@{self.dimension}" if self.dimension else ""
        rescoring = "" if self.exact or self.oversample == OVERSAMPLE else f":x{self.oversample}"
        return self.precision + cut + rescoring

    @property
    def exact(self) -> bool:
        """Whether it is plain float32 search."""
        return self.precision == "float32" and self.dimension is None


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


def search_variant(
    queries: Float32,
    rows: Rows,
    variant: Variant,
    tie_rank: Int32,
    depth: int,
    *,
    scaled: bool,
    first_stage: FirstStage | None = None,
    memory: int | None = None,
) -> TopK:
    """Search the small vectors, then rank what they found by the full ones; `scaled`: vectors have length one."""
    small_queries, small = queries, rows
    if variant.dimension is not None:
        if variant.dimension > rows.shape[1]:
            raise UsageError(f"vectors of {rows.shape[1]} dimensions cannot be cut to {variant.dimension}")
        small_queries, small = (
            np.ascontiguousarray(queries[:, : variant.dimension]),
            PrefixRows(rows, variant.dimension),
        )
        if scaled:
            small_queries, small = unit(small_queries), UnitRows(small)
    if variant.precision != "float32":
        small = make_small(small, variant.precision, memory)
    wanted = max(variant.oversample, 1) * depth
    rest = memory if memory is None or not isinstance(small, SmallRows) else memory - small.nbytes
    found = search(small_queries, small, tie_rank, wanted, first_stage=first_stage, memory=rest)
    if not variant.oversample:
        return found
    plan = MemoryPlan.within(memory, len(queries), rows.shape[1], found.docs.shape[1])
    return order_exactly(queries, rows, found, tie_rank, min(depth, found.docs.shape[1]), plan)[0]
