"""What the commands share: the options that several take, and printing: tables, notes, JSON, a progress bar.

Nothing else writes a text from data to a terminal.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click

if TYPE_CHECKING:
    from rich.progress import Progress, Task, TaskID

    from ..core.options import Options
    from ..core.table import Table

F = TypeVar("F", bound=Callable[..., Any])
NARROWEST, USUAL = 20, 80
"""Columns of a terminal: fewer are not tried, and these are taken where it does not say."""
DAY = 86_400.0
"""Seconds of finished steps that the time left is estimated from: steps may take minutes."""


class Commands(click.Group):
    """A group that lists its commands with whole sentences, and suggests one where a name is misspelt."""

    moved: ClassVar[Mapping[str, str]] = {}  # commands that have another name now

    def summaries(self, ctx: click.Context) -> dict[str, str]:
        """Its commands, with what each of them does."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        return {name: made.get_short_help_str(1_000) for name, made in found.items() if made is not None}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries(ctx).items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx):
            from ..core.errors import nearest

            near = [self.moved[name]] if name in self.moved else nearest(name, self.list_commands(ctx))
            raise click.UsageError(f"no such command {name!r}" + (f"; did you mean {near[0]}?" if near else ""), ctx)
        return super().resolve_command(ctx, args)


class Whole(click.IntRange):
    """A whole number in a range, in plain digits: Python would also read 1_0 and digits of other scripts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(_plain(self, value, param, ctx), param, ctx)


class Number(click.FloatRange):
    """A finite number in a range, in plain digits; nan would pass any bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(_plain(self, value, param, ctx), param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return found


def _plain(kind: click.ParamType[Any], value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
    if isinstance(value, str) and (not value.isascii() or "_" in value):
        kind.fail(f"{value!r} is not a number in plain digits.", param, ctx)
    return value


def json_option(function: F) -> F:
    """`--json`: one JSON document on stdout, everything else on stderr."""
    return click.option("as_json", "--json", is_flag=True, help="Print one JSON document.")(function)


latex_option = click.option("--latex", is_flag=True, help="Print the tables in LaTeX, for a paper.")


def one_form(**flags: bool) -> None:
    """Refuse to print a table in two forms at once."""
    asked = [f"--{name.removeprefix('as_')}" for name, given in flags.items() if given]
    if len(asked) > 1:
        raise click.UsageError(f"{' and '.join(asked)} exclude each other")


def tasks_option(*, default: tuple[str, ...] = ("mini",)) -> Callable[[F], F]:
    """`--tasks`, repeatable and comma-separated."""
    return click.option(
        "--tasks", "-t", "specs", multiple=True, default=default, show_default=True, metavar="NAME|FOLDER",
        help="A collection (mini, nano, r2med, one of yours), a task (mini/MedQA-Diag), a folder or FOLDER@SPLIT; "
             "repeat or separate by commas.",
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


pickle_option = click.option(
    "--allow-pickle", is_flag=True, help="Load weights that are published as pickles only, which can run code."
)


retry_option = click.option(
    "--retry", default="", metavar="STATUS,…",
    help="Ask chat models again for answers that are empty, failed, refused, truncated or unparsed, and for no others.",
)  # fmt: skip


def options_from(given: Mapping[str, Any], bar: Bar | None = None) -> Options:
    """How models are run, from what was typed; one budget for all that the command spends."""
    from ..core.budget import Budget
    from ..core.options import Options, parse_size

    memory, cost = given.get("memory"), given.get("max_cost")
    return Options(
        device=given.get("device"),
        memory=parse_size(memory) if memory else None,
        verify=given.get("verify") or 0,
        trust_remote_code=bool(given.get("trust_remote_code")),
        allow_pickle=bool(given.get("allow_pickle")),
        concurrency=given.get("concurrency"),
        requests_per_minute=given.get("rpm"),
        tokens_per_minute=given.get("tpm"),
        keep_prompts=bool(given.get("keep_prompts")),
        retry=statuses(given.get("retry") or ""),
        budget=None if cost is None else Budget(cost),
        on_progress=bar.within if bar is not None else None,
    )


def statuses(text: str) -> frozenset[str]:
    """What `--retry` names."""
    if not text:
        return frozenset()
    from ..llm import Retry

    return Retry(part.strip() for part in text.split(","))


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
    width = columns()
    if width is None:
        click.echo(table.text())
        return
    from .layout import table_lines, wrapped

    titles, *rows = [[harmless(cell) for cell in row] for row in (table.titles, *table.rows)]
    styled = os.environ.get("TERM") != "dumb"
    if table.heading:
        click.echo("\n".join(wrapped(harmless(table.heading), width)))
    for text, head in table_lines(titles, rows, table.left, width):
        click.echo(click.style(text, bold=True) if head and styled else text)
    if table.caption:
        click.echo("\n".join(wrapped(harmless(table.caption), width)))


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
