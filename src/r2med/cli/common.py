"""What the sub-commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click

if TYPE_CHECKING:
    from ..core.options import Options
    from .output import Bar

F = TypeVar("F", bound=Callable[..., Any])


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
