"""Where the stages of a plan are done: in this process, in processes of this machine, on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable

from ...core import UsageError
from .protocol import Executor, Made, Recipe

EXECUTORS = ("local", "ray")

__all__ = ["EXECUTORS", "Executor", "Made", "Recipe", "get_executor"]


def get_executor(
    name: str = "local",
    *,
    workers: int | None = None,
    address: str | None = None,
    device: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Executor:
    """The executor of that name; `tell` hears what a user should know about it."""
    if name not in EXECUTORS:
        raise UsageError(f"unknown executor {name!r}; known: {', '.join(EXECUTORS)}")
    if address is not None and name != "ray":
        raise UsageError("--address is the address of a Ray cluster: add --executor ray")
    if name == "local" and (workers or 1) == 1:
        return Executor()
    from .pooled import PoolExecutor

    if name == "local":
        from .processes import Processes

        return PoolExecutor("local", Processes(workers or 1, device), tell)
    from .ray import RayWorkers

    return PoolExecutor("ray", RayWorkers(workers, address, device, tell), tell)
