"""What commands print: tables, notes, JSON. Nothing else writes a text from data to a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.untrusted import printable

if TYPE_CHECKING:
    from rich.table import Table as Drawn

    from ..core.table import Table


def emit(data: object) -> None:
    """Print a JSON document."""
    import msgspec

    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n")
    sys.stdout.buffer.flush()


def say(text: str | Path = "", *, lines: bool = False) -> None:
    """Print a line of the result; with `lines`, a text of several."""
    click.echo(printable(str(text), keep="\n" if lines else ""))


def note(text: str) -> None:
    """Say something that is not the result."""
    click.echo(printable(text), err=True)


def show(table: Table) -> None:
    """Print a table: drawn on a terminal, aligned columns in a pipe."""
    from rich.console import Console
    from rich.text import Text

    cells = [[printable(cell) for cell in row] for row in (table.titles, *table.rows)]
    console = Console(highlight=False)
    if not console.is_terminal:
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        console = Console(highlight=False, width=max(80, sum(widths) + 3 * len(widths)))
    console.print(_drawn(cells, table.left))
    if table.caption:
        console.print(Text(printable(table.caption)), soft_wrap=True)


def _drawn(cells: list[list[str]], left: int) -> Drawn:
    """The table as rich draws it, in one piece. How it fits a narrow terminal is decided here."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Drawn
    from rich.text import Text

    titles, *rows = cells
    drawn = Drawn(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, title in enumerate(titles):
        drawn.add_column(Text(title), justify="left" if i < left else "right", no_wrap=i >= left)
    for row in rows:
        drawn.add_row(*map(Text, row))
    return drawn


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", left: int = 1) -> None:
    """Print titles and rows as a table."""
    from ..core.table import Table

    show(Table(titles, list(rows), caption, left))
