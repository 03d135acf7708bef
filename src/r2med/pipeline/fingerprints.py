"""What a stored result depends on."""

from __future__ import annotations

from .._version import __version__
from ..core import Task, fingerprint
from ..results import SCHEMA, TaskResult
from .system import System


def result_fingerprint(system: System, task: Task, depth: int) -> str:
    """Hash of all that a result depends on."""
    parts = {"version": __version__, "schema": SCHEMA, "depth": depth, "task": task.fingerprint}
    return fingerprint("result", parts | {"system": system.describe()})


def why_stale(stored: TaskResult, system: System, task: Task, depth: int) -> str:
    """Which of its inputs changed since a result was stored."""
    if stored.task.fingerprint != task.fingerprint:
        return "the data changed"
    if stored.system.description != system.describe():
        return "the system's parameters changed"
    if stored.depth != depth:
        return f"it was made at depth {stored.depth}"
    return "it was made by another version of r2med"
