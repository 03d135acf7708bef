"""Tasks: what there is, and reading, writing and checking it."""

from ..core.trec import read_run, write_qrels, write_run
from .catalogue import Collection, TaskEntry, collections, entries, find_tasks
from .convert import convert, write_task
from .judgments import read_qrels
from .load import TaskRef, load, load_all, resolve
from .stats import Stats, stats

__all__ = [
    "Collection",
    "Stats",
    "TaskEntry",
    "TaskRef",
    "collections",
    "convert",
    "entries",
    "find_tasks",
    "load",
    "load_all",
    "read_qrels",
    "read_run",
    "resolve",
    "stats",
    "write_qrels",
    "write_run",
    "write_task",
]
