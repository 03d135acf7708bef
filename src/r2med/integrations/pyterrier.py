"""PyTerrier: data frames with its column names. Needs pandas only, neither PyTerrier nor Java."""

from __future__ import annotations

from typing import Any

from ..core import MissingExtra, Qrels, Run, Task, UsageError
from .dictionaries import qrels_from_rows, run_from_rows


def to_pyterrier(values: Run | Qrels | Task) -> Any:
    """A frame: `qid, docno, rank, score` of a run, `qid, docno, label` of judgments, `qid, query` of a task's queries.

    Ranks begin at 0, as PyTerrier counts.
    """
    pandas = _pandas()
    if isinstance(values, Run):
        ranked = [(q, h.doc_id, rank, h.score) for q, hits in values for rank, h in enumerate(hits)]
        return pandas.DataFrame(ranked, columns=["qid", "docno", "rank", "score"])
    if isinstance(values, Qrels):
        return pandas.DataFrame([tuple(j) for j in values], columns=["qid", "docno", "label"])
    return pandas.DataFrame([(q.id, q.text) for q in values.queries], columns=["qid", "query"])


def from_pyterrier(frame: Any, *, name: str = "run") -> Run | Qrels:
    """Our judgments from a frame with `label`, our run from one with `score`.

    Order follows the scores; a `rank` column is not looked at.
    """
    columns = set(getattr(frame, "columns", ()))
    value = "label" if "label" in columns else "score"
    if missing := [c for c in ("qid", "docno", value) if c not in columns]:
        raise UsageError(f"a PyTerrier frame needs the columns qid, docno and score or label; missing: {missing[0]}")
    rows = zip(frame["qid"], frame["docno"], frame[value], strict=True)
    return qrels_from_rows(rows) if value == "label" else run_from_rows(rows, name=name)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise MissingExtra("making data frames", "interop") from None
    return pandas
