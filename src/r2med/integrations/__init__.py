"""Runs, judgments, tasks and results in the shapes of other tools, and back.

Nothing here is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .mteb import to_mteb
    from .runs import (
        from_beir,
        from_ir_measures,
        from_pyterrier,
        from_ranx,
        qrels_from_dict,
        run_from_dict,
        to_beir,
        to_dict,
        to_ir_measures,
        to_pyterrier,
        to_ranx,
    )

_HOMES = {
    "from_beir": "runs",
    "from_ir_measures": "runs",
    "from_pyterrier": "runs",
    "from_ranx": "runs",
    "qrels_from_dict": "runs",
    "run_from_dict": "runs",
    "to_beir": "runs",
    "to_dict": "runs",
    "to_ir_measures": "runs",
    "to_mteb": "mteb",
    "to_pyterrier": "runs",
    "to_ranx": "runs",
}


__getattr__ = lazy(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "from_beir",
    "from_ir_measures",
    "from_pyterrier",
    "from_ranx",
    "qrels_from_dict",
    "run_from_dict",
    "to_beir",
    "to_dict",
    "to_ir_measures",
    "to_mteb",
    "to_pyterrier",
    "to_ranx",
]
