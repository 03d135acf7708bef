"""The native MaxSim in numpy: same arguments, same bits, for machines where the extension could not be built."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..core.columns import Int64

Int16 = npt.NDArray[np.int16]
Float32 = npt.NDArray[np.float32]
ROWS_AT_ONCE = 2048


def ways() -> list[str]:
    """The one way there is."""
    return ["numpy"]


def scores(
    queries: Int16, ends: Int64, rows: Int16, starts: Int64, sizes: Int64, out: Float32,
    dimension: int, width: int, begin: int, end: int, offset: int, way: int,
) -> None:  # fmt: skip
    """MaxSim of queries with the documents from `begin` to `end`; float64 holds all of these whole numbers exactly."""
    del dimension, width, way
    tokens = queries.astype(np.float64)
    first = np.concatenate(([0], ends[:-1]))
    while begin < end:
        most = int(np.searchsorted(np.cumsum(sizes[begin:end]), ROWS_AT_ONCE, side="right"))
        stop = begin + max(most, 1)
        some = [rows[a : a + n] for a, n in zip(starts[begin:stop].tolist(), sizes[begin:stop].tolist(), strict=True)]
        with np.errstate(all="ignore"):  # BLAS may raise flags over finite numbers
            products = np.concatenate(some).astype(np.float64) @ tokens.T
        bounds = np.cumsum(sizes[begin:stop]) - sizes[begin:stop]
        best = np.maximum.reduceat(products, bounds, axis=0)
        column = slice(offset, offset + stop - begin)
        out[:, column] = (np.add.reduceat(best, first, axis=1) * 2.0**-30).T
        offset, begin = offset + stop - begin, stop
