"""`r2med models`: what there is, what is ready here, and getting the rest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .common import emit, json_option, note, print_table

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


@click.group("models", invoke_without_command=True)
@click.option("--kind", type=click.Choice([*KINDS, *FIRST_EDITION]), help="Only models of this kind.")
@json_option
@click.pass_context
def command(context: click.Context, kind: str | None, as_json: bool) -> None:
    """List the models, whether they are ready here, and the command that gets them."""
    if context.invoked_subcommand is not None:
        return
    from ..models import listing
    from ..pipeline.system import REGISTRIES

    rows = listing(FIRST_EDITION.get(kind or "", kind), REGISTRIES)
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
    from ..models import fetch

    done = []
    for name in names:
        done.append(fetch(name, force=force, allow_pickle=allow_pickle, progress=sys.stderr.isatty()))
        if not as_json:
            click.echo(_sentence(done[-1]))
    if as_json:
        emit(done)


@command.command("where")
@click.argument("name", shell_complete=_names)
@json_option
def where_command(name: str, as_json: bool) -> None:
    """Print the folder of a model that is on this machine."""
    from ..core import ModelError
    from ..models import find_any_card, locate

    path = locate(find_any_card(name))
    if path is None:
        raise ModelError(f"{name} is not on this machine: r2med models fetch {name}")
    if as_json:
        emit({"name": name, "path": str(path)})
    else:
        click.echo(path)


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
