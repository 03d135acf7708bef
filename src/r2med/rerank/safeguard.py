"""The safeguard of Nano candidates: one positive appended where a list held none.

It gives a reranker something to find, and so flatters whoever finds it: no first stage retrieved it. Results are
therefore reported with it and without it.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from ..core import NO_DOCUMENT, Run
from ..core.columns import Int32

RANK = 101


def safeguards(candidates: Run, queries: Collection[str] | None = None) -> Int32:
    """The appended document of each query, -1 where there is none.

    With `queries` it is the last document of those queries' lists; without, the one that stands alone at rank 101.
    """
    lengths = candidates.lengths()
    found = np.full(len(candidates), NO_DOCUMENT, dtype=np.int32)
    for row, query_id in enumerate(candidates.query_ids):
        length = int(lengths[row])
        if length and (length == RANK if queries is None else query_id in queries):
            found[row] = candidates.docs[row, length - 1]
    return found


def without(run: Run, documents: Int32) -> Run:
    """A run with one document of each query taken out; the others close up.

    For a reranker that scores each document by itself this is what it would have done without the safeguard; one that
    compares documents saw it, and is only cleared of the credit.
    """
    gone = (run.docs == documents[:, None]) & (documents[:, None] >= 0)
    order = np.argsort(gone, axis=1, kind="stable")
    last = np.take_along_axis(gone, order, axis=1)
    docs = np.where(last, np.int32(NO_DOCUMENT), np.take_along_axis(run.docs, order, axis=1))
    scores = np.where(last, np.float32(-np.inf), np.take_along_axis(run.scores, order, axis=1))
    # A removed document before shorter rows' empty places has been moved behind them: nothing is there either way.
    return Run(run.query_ids, run.doc_ids, docs, scores, name=run.name, notes=run.notes)
