"""Tasks: what there is, and reading, writing and checking it."""

from ..core.run import read_run, write_qrels, write_run
from .catalogue import TaskEntry, collections, entries, find_tasks
from .formats import write_task
from .load import TaskRef, convert, load, load_all, resolve, resolve_all
from .own import list_tasks
from .records import read_qrels
from .stats import Stats, Tendencies, stats, tendencies

__all__ = [
    "Stats",
    "TaskEntry",
    "TaskRef",
    "Tendencies",
    "collections",
    "convert",
    "entries",
    "find_tasks",
    "list_tasks",
    "load",
    "load_all",
    "read_qrels",
    "read_run",
    "resolve",
    "resolve_all",
    "stats",
    "tendencies",
    "write_qrels",
    "write_run",
    "write_task",
]
