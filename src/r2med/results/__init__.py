"""What is on disk after a run."""

from .schema import SCHEMA, QueryScores, SystemInfo, TaskInfo, TaskResult
from .store import ResultStore, macro_average, query_weighted

__all__ = [
    "SCHEMA",
    "QueryScores",
    "ResultStore",
    "SystemInfo",
    "TaskInfo",
    "TaskResult",
    "macro_average",
    "query_weighted",
]
