"""ranx: its `Run` and `Qrels`."""

from __future__ import annotations

from typing import Any

from ..core import MissingExtra, Qrels, Run
from .dictionaries import qrels_from_dict, run_from_dict, to_dict


def to_ranx(values: Run | Qrels) -> Any:
    """A `ranx.Run` or a `ranx.Qrels`; queries without documents are left out, as ranx has no empty rows."""
    ranx = _ranx()
    if isinstance(values, Run):
        return ranx.Run({q: hits for q, hits in to_dict(values).items() if hits}, name=values.name)
    return ranx.Qrels({q: grades for q, grades in to_dict(values).items() if grades})


def from_ranx(values: Any) -> Run | Qrels:
    """Our run from a `ranx.Run`, our judgments from a `ranx.Qrels`."""
    if isinstance(values, _ranx().Qrels):
        return qrels_from_dict(values.to_dict())
    return run_from_dict(values.to_dict(), name=values.name or "run")


def _ranx() -> Any:
    try:
        import ranx
    except ImportError:
        raise MissingExtra("speaking to ranx", "interop") from None
    return ranx
