"""What the sub-commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .output import emit, note, print_table

if TYPE_CHECKING:
    from ..core import Task
    from ..tasks import TaskRef

__all__ = ["emit", "json_option", "note", "print_table", "published_in", "resolve_all", "tasks_option"]
F = TypeVar("F", bound=Callable[..., Any])


def json_option(function: F) -> F:
    """`--json`: one JSON document on stdout, everything else on stderr."""
    return click.option("as_json", "--json", is_flag=True, help="Print one JSON document.")(function)


def tasks_option(*, default: tuple[str, ...] = ("mini",)) -> Callable[[F], F]:
    """`--tasks`, repeatable and comma-separated."""
    return click.option(
        "--tasks", "-t", "specs", multiple=True, default=default, show_default=True, metavar="NAME|FOLDER",
        help="A collection (mini, nano, r2med), a task (mini/MedQA-Diag) or a folder; repeat or separate by commas.",
    )  # fmt: skip


def resolve_all(specs: Iterable[str]) -> list[TaskRef]:
    """The tasks that a list of names stands for, each once; two folders of one name would share their results."""
    from ..core import UsageError
    from ..core.places import exists, typed_path
    from ..tasks import resolve

    found: dict[str, TaskRef] = {}
    for spec in specs:
        for part in [spec] if exists(typed_path(spec)) else spec.split(","):
            for ref in resolve(part.strip()):
                first = found.setdefault(ref.full_name, ref)
                if first.path != ref.path and first.present().resolve() != ref.present().resolve():
                    raise UsageError(f"{first.path} and {ref.path} are both called {ref.full_name!r}: rename one")
    return list(found.values())


def published_in(refs: Sequence[TaskRef]) -> Callable[[Task, str, str], Mapping[str, Sequence[str]]]:
    """Looks up the expansions that come with the tasks."""

    def look_up(task: Task, method: str, llm: str) -> Mapping[str, Sequence[str]]:
        from ..core import UsageError

        ref = next(r for r in refs if r.full_name == task.full_name)
        there = list(ref.expansions())
        for expansion in there:
            if (expansion.method, expansion.llm) == (method, llm):
                return expansion.texts
        named = ", ".join(f"{e.method}:{e.llm}" for e in there) or "none"
        raise UsageError(f"{task.full_name} comes without {method} of {llm} (it has {named})")

    return look_up
