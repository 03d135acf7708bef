"""Runs, judgments, tasks and results in the shapes of other tools, and back.

A function imports the package that it converts for when it is called.
"""

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
