"""What commands print: tables, notes, JSON, a progress bar. Nothing else writes a text from data to a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.progress import Progress, Task, TaskID

    from ..core.table import Table

NARROWEST, USUAL = 20, 80
"""Columns of a terminal: fewer are not tried, and these are taken where it does not say."""
DAY = 86_400.0
"""Seconds of finished steps that the time left is estimated from: steps may take minutes."""


_bars: list[Progress] = []
"""Bars that are being drawn."""


def emit(data: object) -> None:
    """Print a JSON document."""
    import msgspec

    from ..core.untrusted import printable_json

    text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    sys.stdout.buffer.write(printable_json(text).encode() + b"\n")
    sys.stdout.buffer.flush()


def say(text: str | Path = "", *, lines: bool = False, whole: bool = False) -> None:
    """Print a line of the result; with `lines`, a text of several; with `whole`, one to be copied, such as a command.

    A terminal gets it broken between words, unless it is of several lines or whole.
    """
    _say(str(text), lines=lines, whole=whole or isinstance(text, Path))


def note(text: str, *, lines: bool = False, whole: bool = False) -> None:
    """Say something that is not the result, or what went wrong."""
    _say(text, lines=lines, whole=whole, err=True)


def _say(text: str, *, lines: bool, whole: bool, err: bool = False) -> None:
    text = harmless(text, keep="\n\t" if lines else "")
    width = None if lines or whole or " " not in text else columns(err=err)
    if width is not None and len(text) > width // 2:  # a character may be two columns wide
        from .layout import wrapped

        text = "\n".join(wrapped(text, width, indent=len(text) - len(text.lstrip(" ")), cut=False))
    if err and _bars:
        from rich.text import Text

        _bars[-1].console.print(Text(text), soft_wrap=True)  # above the bar, not behind it
    else:
        click.echo(text, err=err)


def say_styled(pieces: Iterable[tuple[str, str]], *, indent: int = 0) -> None:
    """Print a text of the result whose pieces have styles of their own, where the terminal has any."""
    from rich.console import Console
    from rich.text import Text

    width = columns()
    text = Text.assemble(*((harmless(piece, keep="\n"), style) for piece, style in pieces))
    console = Console(highlight=False, width=width, height=None if width is None else USUAL)  # both, or rich asks TERM
    for line in text.split("\n") if width is None else text.wrap(console, width - indent):
        indented = Text(" " * indent) + line
        indented.rstrip()
        console.print(indented, soft_wrap=True)


def harmless(text: str, *, keep: str = "") -> str:
    """A text that cannot drive the terminal; plain words need nothing but this module, also at an interrupt."""
    if text.isprintable():
        return text
    from ..core.untrusted import printable

    return printable(text, keep=keep)


def show(table: Table) -> None:
    """Print a table: laid out in a terminal's width, rows of any length in a pipe."""
    from .layout import table_lines, wrapped

    titles, *rows = [[harmless(cell) for cell in row] for row in (table.titles, *table.rows)]
    width = columns()
    styled = width is not None and os.environ.get("TERM") != "dumb"
    if table.heading:
        heading = harmless(table.heading)
        click.echo(heading if width is None else "\n".join(wrapped(heading, width)))
    for text, head in table_lines(titles, rows, table.left, width):
        click.echo(click.style(text, bold=True) if head and styled else text)
    if table.caption:
        caption = harmless(table.caption)
        click.echo(caption if width is None else "\n".join(wrapped(caption, width)))


def columns(*, err: bool = False) -> int | None:
    """The width of the terminal that is written to; None where it is none."""
    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        return None
    asked = os.environ.get("COLUMNS", "")
    try:
        width = int(asked) if asked.isdecimal() else os.get_terminal_size(stream.fileno()).columns
    except OSError:
        width = 0
    return max(width or USUAL, NARROWEST)


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
        parts = (f"{done:,} of {count:,}{more}", self._text)
        self._drawn.update(self._handle, description=" · ".join(filter(None, parts)))


def spending(bar: Bar) -> Callable[[int, int, Any], None]:
    """Shows how far generation is, its rate and what it has cost."""
    begin = time.perf_counter()

    def tell(done: int, total: int, usage: Any) -> None:
        calls = usage.calls if usage is not None else done
        spent = f" · {dollars(usage.cost, usage.unpriced)}" if usage is not None else ""
        bar.within(done, total, f" · {calls / max(time.perf_counter() - begin, 1e-9):.1f} calls/s{spent}")

    return tell


def dollars(cost: float, unpriced: int) -> str:
    """What calls cost, as far as their prices are known."""
    from ..core.table import counted

    if unpriced and not cost:
        return "price unknown"
    more = f" and {counted(unpriced, 'call')} of unknown price" if unpriced else ""
    return f"${cost:.4f}{more}"


def calls_made(usage: Mapping[str, Any]) -> str:
    """What a command asked of chat models: calls, dollars, and what had to be sent again."""
    from ..core.table import counted

    parts = [counted(usage["calls"], "call"), dollars(usage["cost"], usage["unpriced"])]
    if usage["retries"]:
        parts.append(counted(usage["retries"], "retry", "retries"))
    if usage["rate_limited"]:
        parts.append(f"rate limited {counted(usage['rate_limited'], 'time')}")
    if usage["waited"] >= 0.1:
        parts.append(f"{usage['waited']:.1f} s waited in between")
    if usage["failures"]:
        parts.append(f"{usage['failures']:,} failed")
    return ", ".join(parts)


def lost_calls(count: int) -> str:
    """That calls were sent whose answer a process did not live to get."""
    from ..core.table import counted

    return f"{counted(count, 'call')} sent and lost when a process ended, which may have been charged"


@contextmanager
def progress(total: int | None = None) -> Iterator[Bar]:
    """A bar for the length of a block."""
    if not sys.stderr.isatty():
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Time(ProgressColumn):
        """The time that is left, or that has passed while no step is finished from which it could be estimated."""

        def render(self, task: Task) -> Text:
            left = task.time_remaining
            passed = f"{timedelta(seconds=int(task.elapsed or 0))}"
            return Text(passed if left is None else f"{timedelta(seconds=int(left))} left")

    whole = Column(no_wrap=True, min_width=7)  # of the counter and the time, which the description makes room for
    shown = (
        BarColumn(max(4, min(40, (columns(err=True) or USUAL) // 6))),
        MofNCompleteColumn(table_column=whole.copy()),
        Time(table_column=whole.copy()),
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
    )
    console = Console(stderr=True)
    with Progress(*shown, console=console, transient=True, expand=True, speed_estimate_period=DAY) as drawn:
        _bars.append(drawn)
        try:
            yield TerminalBar(drawn, drawn.add_task("", total=total))
        finally:
            _bars.remove(drawn)
