"""The chat server of the llm tests, and rerankers that ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from r2med.core import Run, Task
from r2med.core.options import Options
from r2med.pipeline import Builder
from r2med.rerank import Reranker
from tests.llm.conftest import server
from tests.llm.server import ChatServer

from . import tiny

__all__ = ["server"]
MakeReranker = Callable[..., Reranker]


@pytest.fixture
def make_reranker(server: ChatServer) -> Iterator[MakeReranker]:
    """Rerankers by name, each with a connection of its own; closed when the test ends."""
    del server  # the environment points to it
    builders: list[Builder] = []

    def make(spec: str, **options: object) -> Reranker:
        settings = {"timeout": 5.0, "attempts": 3} | options
        builders.append(Builder(Options(**settings)))  # type: ignore[arg-type]
        return builders[-1].reranker(spec)

    yield make
    for builder in builders:
        builder.__exit__()


@pytest.fixture
def task() -> Task:
    """A task that is small enough to ask a chat model about."""
    return tiny.a_task(queries=3, documents=40, longest=60)


@pytest.fixture
def first(task: Task) -> Run:
    """Its candidates."""
    return tiny.first_stage(task, 30)
