"""A progress bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .output import harmless

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """Where a command says how far it is; this one keeps it to itself."""

    def total(self, count: int) -> None:
        """How many steps there are."""

    def show(self, text: str, *, advance: bool = False) -> None:
        """What is being done; `advance` when a step is finished."""

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
