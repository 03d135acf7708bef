"""ir_measures: lists of its `ScoredDoc` and `Qrel`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import MissingExtra, Qrels, Run, UsageError
from .dictionaries import qrels_from_rows, run_from_rows


def to_ir_measures(values: Run | Qrels) -> list[Any]:
    """`ScoredDoc`s of a run in rank order, `Qrel`s of judgments."""
    package = _ir_measures()
    if isinstance(values, Run):
        return [package.ScoredDoc(query_id, hit.doc_id, hit.score) for query_id, hits in values for hit in hits]
    return [package.Qrel(j.query_id, j.doc_id, j.grade) for j in values]


def from_ir_measures(values: Iterable[Any], *, name: str = "run") -> Run | Qrels:
    """Our run from `ScoredDoc`s, our judgments from `Qrel`s; any records with the same fields will do."""
    rows = list(values)
    if not rows:
        raise UsageError("there is nothing to read: neither ScoredDoc nor Qrel")
    if hasattr(rows[0], "relevance"):
        return qrels_from_rows((r.query_id, r.doc_id, r.relevance) for r in rows)
    if not hasattr(rows[0], "score"):
        raise UsageError(f"expected ScoredDoc or Qrel of ir_measures, got {type(rows[0]).__name__}")
    return run_from_rows(((r.query_id, r.doc_id, r.score) for r in rows), name=name)


def _ir_measures() -> Any:
    try:
        import ir_measures
    except ImportError:
        raise MissingExtra("speaking to ir_measures", "interop") from None
    return ir_measures
