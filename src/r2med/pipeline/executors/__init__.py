"""Where the stages of a plan are done: in this process, in processes of this machine, on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ...core import UsageError

if TYPE_CHECKING:
    from ...rerank import Reranker
    from ...retrieve import Retriever

EXECUTORS = ("local", "ray")


class Executor:
    """Does all stages in this process, one after the other."""

    name = "local"

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the workers."""

    def adopt(self, components: Iterable[Retriever | Reranker]) -> None:
        """Let the models of these components run on workers."""

    def provenance(self) -> Mapping[str, object]:
        """What a result says about where it was made."""
        return {}


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
    from .models import PoolExecutor

    if name == "local":
        from .pool import Processes

        return PoolExecutor("local", Processes(workers or 1, device), tell)
    from .ray import RayWorkers

    return PoolExecutor("ray", RayWorkers(workers, address, device, tell), tell)
