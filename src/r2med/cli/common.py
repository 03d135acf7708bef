"""What the sub-commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ..core.options import Options
    from .progress import Bar

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


def completing(kind: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completion of the names of one kind of component."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        from ..expand import expanders
        from ..fuse import fusions
        from ..llm import chats
        from ..rerank import rerankers
        from ..retrieve import retrievers

        del context, parameter
        registries: dict[str, Any] = {
            "retriever": retrievers, "reranker": rerankers, "expander": expanders, "fusion": fusions, "chat": chats
        }  # fmt: skip
        return [name for name in registries[kind].names() if name.startswith(incomplete)]

    return complete


def options_from(given: Mapping[str, Any], bar: Bar | None = None) -> Options:
    """How models are run, from what was typed; one budget for all that the command spends."""
    from ..core.budget import Budget
    from ..core.options import Options
    from ..retrieve.memory import parse_size

    memory, cost = given.get("memory"), given.get("max_cost")
    return Options(
        device=given.get("device"),
        memory=parse_size(memory) if memory else None,
        verify=given.get("verify") or 0,
        trust_remote_code=bool(given.get("trust_remote_code")),
        concurrency=given.get("concurrency"),
        requests_per_minute=given.get("rpm"),
        tokens_per_minute=given.get("tpm"),
        keep_prompts=bool(given.get("keep_prompts")),
        dry_run=bool(given.get("dry_run")),
        budget=None if cost is None else Budget(cost),
        on_progress=bar.within if bar is not None else None,
    )


def emit(data: object) -> None:
    """Print a JSON document."""
    import msgspec

    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n")
    sys.stdout.buffer.flush()


def note(text: str) -> None:
    """Say something that is not the result."""
    click.echo(text, err=True)


def print_table(titles: list[str], rows: Iterable[list[str]], *, caption: str = "", left: int = 1) -> None:
    """A table on stdout: drawn on a terminal, aligned columns in a pipe."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, title in enumerate(titles):
        table.add_column(Text(title), justify="left" if i < left else "right", no_wrap=i >= left)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    if not console.is_terminal:
        widths = [max(len(cell) for cell in column) for column in zip(titles, *rows, strict=True)]
        console = Console(highlight=False, width=max(80, sum(widths) + 3 * len(widths)))
    console.print(table)
    if caption:
        console.print(Text(caption), soft_wrap=True)
