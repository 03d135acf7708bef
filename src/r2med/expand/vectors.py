"""Searching with the mean of several vectors: the dense side of HyDE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core import Run, Task, UsageError
from .policy import Piece

if TYPE_CHECKING:
    from ..retrieve.dense import DenseRetriever
    from ..retrieve.sparse import Float32


def group_vectors(retriever: DenseRetriever, groups: Sequence[Sequence[Piece]], family: str = "") -> Float32:
    """One vector per group: the mean of its texts' vectors, of length one each where the model compares by cosine."""
    from ..retrieve.embed import embed
    from ..retrieve.rows import unit

    pieces = [piece for group in groups for piece in group]
    owners = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    sums: np.ndarray | None = None
    for side, with_instruction in sorted({(piece.side, piece.instruction) for piece in pieces}):
        chosen = [i for i, p in enumerate(pieces) if (p.side, p.instruction) == (side, with_instruction)]
        # Documents carry what their side always carries; only the query's instruction is ours to leave out.
        prefix = retriever.instruction(side, family) if with_instruction or side == "document" else ""
        texts = [pieces[i].text for i in chosen]
        made = embed(retriever.encoder, texts, side, prefix, cache=retriever.cache, on_progress=retriever.on_progress)
        vectors = made.rows.read(0, len(texts))
        if retriever.similarity == "cosine":
            vectors = unit(vectors)
        if sums is None:
            sums = np.zeros((len(groups), vectors.shape[1]), dtype=np.float64)
        np.add.at(sums, owners[chosen], vectors)
    if sums is None:
        raise UsageError("there are no texts to average")
    counts = np.bincount(owners, minlength=len(groups))[:, None]
    return np.asarray(sums / np.maximum(counts, 1), dtype=np.float32)


def retrieve_groups(
    retriever: DenseRetriever, task: Task, groups: Sequence[Sequence[Piece]], *, depth: int = 1000
) -> Run:
    """The best documents for the mean vector of each query's group."""
    from ..retrieve.rows import UnitRows, unit

    if len(groups) != len(task.queries):
        raise UsageError(f"{len(groups)} groups do not fit the {len(task.queries)} queries of {task.full_name}")
    if depth < 1:
        raise UsageError(f"depth must be 1 or more, not {depth}")
    rows = retriever.embed(task.documents.contents, "document", task.family).rows
    vectors = group_vectors(retriever, groups, task.family)
    if retriever.similarity == "cosine":
        vectors, rows = unit(vectors), UnitRows(rows)
    top = retriever._search(vectors, rows, task, depth)
    notes: dict[str, object] = {"averaged_texts": sum(map(len, groups))}
    return Run(task.query_ids, task.documents.ids, *top, name=retriever.name, notes=notes)
