"""What commands print: tables, notes, JSON, a progress bar. Nothing else writes a text from data to a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.table import Table as Drawn

    from ..core.table import Table

GAP = 3
"""Characters between two columns."""
NAME, WORDS = 32, 12
"""Characters that a table's first column keeps in any case, and the other columns of words."""


def emit(data: object) -> None:
    """Print a JSON document."""
    import msgspec

    from ..core.untrusted import printable_json

    text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    sys.stdout.buffer.write(printable_json(text).encode() + b"\n")
    sys.stdout.buffer.flush()


def say(text: str | Path = "", *, lines: bool = False) -> None:
    """Print a line of the result; with `lines`, a text of several."""
    click.echo(harmless(str(text), keep="\n\t" if lines else ""))


def say_styled(pieces: Iterable[tuple[str, str]]) -> None:
    """Print a text of the result whose pieces have styles of their own, where the terminal has any."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    text = Text.assemble(*((harmless(piece, keep="\n"), style) for piece, style in pieces))
    console.print(text, soft_wrap=not console.is_terminal)


def note(text: str, *, lines: bool = False) -> None:
    """Say something that is not the result, or what went wrong."""
    click.echo(harmless(text, keep="\n\t" if lines else ""), err=True)


def harmless(text: str, *, keep: str = "") -> str:
    """A text that cannot drive the terminal; plain words need nothing but this module, also at an interrupt."""
    if text.isprintable():
        return text
    from ..core.untrusted import printable

    return printable(text, keep=keep)


def show(table: Table) -> None:
    """Print a table: fitted to a terminal's width, aligned columns of any width in a pipe."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    cells = [[harmless(cell) for cell in row] for row in (table.titles, *table.rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(80, sum(widths) + GAP * len(widths)))
    for number, block in enumerate(fitted(widths, table.left, console.width)):
        if number:
            console.print()
        console.print(_drawn(cells, block, table.left))
    if table.caption:
        console.print(Text(harmless(table.caption)), soft_wrap=not console.is_terminal)


class Block(NamedTuple):
    """Columns of a table that stand beside each other, and their widths."""

    columns: list[int]
    widths: list[int]


def fitted(widths: Sequence[int], left: int, width: int) -> list[Block]:
    """The columns of a table in blocks that fit a width: figures are never cut, words are wrapped.

    Where the figures do not fit beside the words, the rest of them follows in further blocks, beside the names again.
    """
    words, blocks = list(range(min(left, len(widths)))), list[Block]()
    figures = list(range(len(words), len(widths)))
    while figures or not blocks:
        least = sum(min(widths[i], WORDS if i else NAME) + GAP for i in words)
        beside, taken = list[int](), 0
        while figures and (not beside or least + taken + widths[figures[0]] <= width):
            beside.append(figures.pop(0))
            taken += widths[beside[-1]] + GAP
        room = width - taken - GAP * (len(words) - 1)
        wrapped = _wrapped([widths[i] for i in words], room)
        blocks.append(Block([*words, *beside], [*wrapped, *(widths[i] for i in beside)]))
        words = [i for i in words if widths[i] <= NAME]  # long texts need not be read twice
    return blocks


def _wrapped(widths: Sequence[int], room: int) -> list[int]:
    """Widths of words that fit a room: the first gives way down to `NAME`, then the widest of the others."""
    if sum(widths) <= room or not widths:
        return list(widths)
    first, *others = widths
    first = min(first, max(NAME, room - sum(others)))
    limit = max(others, default=0)
    while limit > 1 and first + sum(min(width, limit) for width in others) > room:
        limit -= 1
    return [min(first, max(room, 1)), *(min(width, limit) for width in others)]


def _drawn(cells: list[list[str]], block: Block, left: int) -> Drawn:
    """Some columns of a table as rich draws them."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Drawn
    from rich.text import Text

    titles, *rows = cells
    drawn = Drawn(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, width in zip(block.columns, block.widths, strict=True):
        drawn.add_column(Text(titles[i]), justify="left" if i < left else "right", width=width, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(row[i]) for i in block.columns))
    return drawn


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", left: int = 1) -> None:
    """Print titles and rows as a table."""
    from ..core.table import Table

    show(Table(titles, list(rows), caption, left))


class Bar:
    """Where a command says how far it is; this one keeps it to itself."""

    def total(self, count: int) -> None:
        """How many steps there are."""

    def show(self, text: str, *, advance: bool = False) -> None:
        """What is being done; `advance` when a step is finished."""

    def step(self, name: str, what: str) -> None:
        """What is being done with a task; it is finished when `what` is `done`."""
        self.show(name if what in ("begun", "done") else f"{name}: {what}", advance=what == "done")

    def within(self, done: int, count: int, more: str = "") -> None:
        """How far the current step is, and what else there is to say."""


class TerminalBar(Bar):
    """The same, drawn."""

    def __init__(self, drawn: Progress, handle: TaskID) -> None:
        self._drawn, self._handle, self._text = drawn, handle, ""

    def total(self, count: int) -> None:
        self._drawn.update(self._handle, total=count)

    def show(self, text: str, *, advance: bool = False) -> None:
        self._text = harmless(text)
        self._drawn.update(self._handle, description=self._text, advance=int(advance))

    def within(self, done: int, count: int, more: str = "") -> None:
        self._drawn.update(self._handle, description=f"{self._text} · {done:,} of {count:,}{more}")


def spending(bar: Bar) -> Callable[[int, int, Any], None]:
    """Shows how far generation is, its rate and what it has cost."""
    begin = time.perf_counter()

    def tell(done: int, total: int, usage: Any) -> None:
        calls = usage.calls if usage is not None else done
        spent = f" · ${usage.cost:.4f}" if usage is not None else ""
        bar.within(done, total, f" · {calls / max(time.perf_counter() - begin, 1e-9):.1f} calls/s{spent}")

    return tell


@contextmanager
def progress(total: int | None = None) -> Iterator[Bar]:
    """A bar for the length of a block."""
    if not sys.stderr.isatty():
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        yield TerminalBar(drawn, drawn.add_task("", total=total))
