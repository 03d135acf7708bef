"""Reasoning-driven medical retrieval: run, score, explain and publish experiments.

Five lines from import to table:

    import r2med
    task = r2med.load("mini/MedQA-Diag")
    run = r2med.BM25().retrieve(task)
    print(r2med.evaluate(run, task).means)
    r2med.run("bm25", "bm25-lucene", tasks="mini")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy
from ._version import __version__

if TYPE_CHECKING:
    from .api import evaluate
    from .core import Document, Documents, Qrels, Query, R2MedError, Run, Task
    from .notebook import Scores, compare, run
    from .retrieve import BM25
    from .scoring import Measure
    from .tasks import read_qrels, read_run, write_run
    from .tasks.load import load, load_all

_HOMES = {
    "BM25": "retrieve",
    "Document": "core",
    "Documents": "core",
    "Measure": "scoring",
    "Qrels": "core",
    "Query": "core",
    "R2MedError": "core",
    "Run": "core",
    "Scores": "notebook",
    "Task": "core",
    "compare": "notebook",
    "evaluate": "api",
    "load": "tasks",
    "load_all": "tasks",
    "read_qrels": "tasks",
    "read_run": "tasks",
    "run": "notebook",
    "write_run": "tasks",
}


__getattr__ = lazy(__name__, _HOMES, globals())


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "BM25",
    "Document",
    "Documents",
    "Measure",
    "Qrels",
    "Query",
    "R2MedError",
    "Run",
    "Scores",
    "Task",
    "__version__",
    "compare",
    "evaluate",
    "load",
    "load_all",
    "read_qrels",
    "read_run",
    "run",
    "write_run",
]
