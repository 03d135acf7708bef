"""Runs, judgments, tasks and results in the shapes of other tools, and back.

Nothing here is imported before it is used, and each module needs only the package it speaks to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .beir import from_beir, to_beir
    from .dictionaries import qrels_from_dict, run_from_dict, to_dict
    from .ir_measures import from_ir_measures, to_ir_measures
    from .mteb import to_mteb
    from .pyterrier import from_pyterrier, to_pyterrier
    from .ranx import from_ranx, to_ranx

_HOMES = {
    "from_beir": "beir",
    "from_ir_measures": "ir_measures",
    "from_pyterrier": "pyterrier",
    "from_ranx": "ranx",
    "qrels_from_dict": "dictionaries",
    "run_from_dict": "dictionaries",
    "to_beir": "beir",
    "to_dict": "dictionaries",
    "to_ir_measures": "ir_measures",
    "to_mteb": "mteb",
    "to_pyterrier": "pyterrier",
    "to_ranx": "ranx",
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
