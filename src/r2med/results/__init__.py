"""What is on disk after a run, and the one reader of it."""

from .index import ResultIndex, StoredResult
from .schema import SCHEMA, QueryScores, SystemInfo, TaskInfo, TaskResult
from .store import ResultStore, macro_average, query_weighted

__all__ = [
    "SCHEMA",
    "QueryScores",
    "ResultIndex",
    "ResultStore",
    "StoredResult",
    "SystemInfo",
    "TaskInfo",
    "TaskResult",
    "macro_average",
    "query_weighted",
]
