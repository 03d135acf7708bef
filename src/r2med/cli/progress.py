"""A progress bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Step = Callable[[str], None]


@contextmanager
def progress(total: int) -> Iterator[tuple[Step, Step]]:
    """Yields (describe, advance); both take the text to show."""
    if not sys.stderr.isatty():
        yield (lambda text: None), (lambda text: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        handle = bar.add_task("", total=total)

        def describe(text: str) -> None:
            bar.update(handle, description=text)

        def advance(text: str) -> None:
            bar.update(handle, description=text, advance=1)

        yield describe, advance
