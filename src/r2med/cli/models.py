"""`r2med models`: what there is, what is ready here, and getting the rest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .common import json_option
from .output import emit, note, print_table, say

if TYPE_CHECKING:
    from ..models import Fetched, Row

KINDS = ("lexical", "dense", "late-interaction", "sparse", "cross-encoder", "chat", "retriever", "reranker", "expander")
FIRST_EDITION = {"llm": "chat"}
"""Kinds that had another name."""
ORIGINS = {"hub": "the Hugging Face hub", "carrier": "the package index", "folder": "a folder of your own"}


def _names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of models that the shell may complete."""
    from ..models import card_names, chat_names

    return [name for name in (*card_names(), *chat_names()) if name.startswith(incomplete)]


class _Models(click.Group):
    """A group whose subcommand may be the name of a model, which is then shown."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand of that name; `show` for anything else."""
        return super().resolve_command(ctx, args if args[0] in self.commands else ["show", *args])


@click.group("models", cls=_Models, invoke_without_command=True)
@click.option("--kind", type=click.Choice([*KINDS, *FIRST_EDITION]), help="Only models of this kind.")
@json_option
@click.pass_context
def command(context: click.Context, kind: str | None, as_json: bool) -> None:
    """List the models, whether they are ready here, and the command that gets them; `r2med models NAME` shows one."""
    if context.invoked_subcommand is not None:
        return
    from ..api.machine import list_models

    rows = list_models(FIRST_EDITION.get(kind or "", kind))
    if as_json:
        emit(rows)
        return
    print_table(["Model", "Kind", "Get it with", "Size", "Ready"], [_line(row) for row in rows], left=3)
    note("Any Hugging Face id or model folder works wherever a model's name does.")


@command.command("fetch")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=_names)
@click.option("--force", is_flag=True, help="Download again, replacing what is there.")
@click.option("--allow-pickle", is_flag=True, help="Take pickled weights where there are no others.")
@json_option
def fetch_command(names: Sequence[str], force: bool, allow_pickle: bool, as_json: bool) -> None:
    """Download models from the Hugging Face hub, or from the package index where the hub cannot be reached."""
    from ..api.machine import fetch_model

    done = []
    for name in names:
        done.append(fetch_model(name, force=force, allow_pickle=allow_pickle, progress=sys.stderr.isatty()))
        if not as_json:
            say(_sentence(done[-1]))
    if as_json:
        emit(done)


@command.command("show")
@click.argument("name", shell_complete=_names)
@json_option
def show_command(name: str, as_json: bool) -> None:
    """Show one model: where it comes from, how it is run, and how that was proven.

    The command's own name may be left out: r2med models nv
    """
    from ..api.machine import describe_model

    shown = describe_model(name)
    if as_json:
        emit(shown)
        return
    for key in ("name", "summary", "kind", "source", "revision", "licence", "proven", "path", "get"):
        if shown[key]:
            say(f"{key:<9} {shown[key]}")


@command.command("where")
@click.argument("name", shell_complete=_names)
@json_option
def where_command(name: str, as_json: bool) -> None:
    """Print the folder of a model that is on this machine."""
    from ..api.machine import model_folder

    path = model_folder(name)
    if as_json:
        emit({"name": name, "path": str(path)})
    else:
        say(path)


def _line(row: Row) -> list[str]:
    return [row.name, row.kind, row.get, _parameters(row.parameters), "yes" if row.ready else "no"]


def _parameters(count: int | None) -> str:
    if count is None:
        return ""
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


def _sentence(result: Fetched) -> str:
    from ..core.parameters import show_size

    size = show_size(result.bytes)
    checked = ", hashes agree" if result.verified else ", not compared with any hash"
    if result.fetched:
        return f"{result.name}: downloaded from {ORIGINS[result.origin]} into {result.path}, {size}{checked}"
    return f"{result.name}: already in {result.path}, {size}{checked}"
