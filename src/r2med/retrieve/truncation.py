"""What a model never saw: texts and tokens beyond its limit, and whether a relevant passage was among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import Task
from ..core.columns import Int32


def truncation_note(tokens: Int32, limit: int | None) -> dict[str, object]:
    """Counts for one side of a task; `unknown` texts are those whose backend does not tell their length."""
    known = tokens >= 0
    over = np.maximum(tokens.astype(np.int64) - limit, 0) if limit is not None else np.zeros(len(tokens), np.int64)
    return {
        "limit": limit,
        "texts": len(tokens),
        "tokens": int(tokens[known].sum(dtype=np.int64)),
        "texts_cut": int((over > 0).sum()),
        "tokens_cut": int(over.sum()),
        "longest": int(tokens.max(initial=0)),
        **({"unknown": int((~known).sum())} if not known.all() else {}),
    }


def positives_cut(task: Task, tokens: Int32, limit: int | None) -> dict[str, int]:
    """How many relevant documents, and how many judgments that name one, lost their end."""
    if limit is None:
        return {"positives_cut": 0, "positive_judgments_cut": 0}
    positive = task.qrels.docs[task.qrels.grades > 0]
    place: Sequence[int] = task.documents.ids.positions(task.qrels.doc_ids).tolist()
    cut = np.array([p >= 0 and tokens[p] > limit for p in place], dtype=bool)
    return {
        "positives_cut": int(cut[np.unique(positive)].sum()) if len(cut) else 0,
        "positive_judgments_cut": int(cut[positive].sum()) if len(cut) else 0,
    }
