"""`r2med protocol`: what the protocols set, and fetching the instructions that one of them needs."""

from __future__ import annotations

from pathlib import Path

import click

from .common import Commands, json_option
from .output import emit, note, print_table


@click.group("protocol", cls=Commands, invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the protocols: named sets of the settings that change scores."""
    if context.invoked_subcommand is not None:
        return
    from ..api.machine import list_protocols

    rows = list_protocols()
    if as_json:
        emit(rows)
        return
    lines = [[row["name"], row["fingerprint"][:8], row["pack"] or "–", row["summary"]] for row in rows]
    print_table(["Protocol", "Settings", "Prompt pack", "What it is"], lines, left=4)


@command.command("show")
@click.argument("name", metavar="NAME|FILE")
@json_option
def show_command(name: str, as_json: bool) -> None:
    """Print all that a protocol sets, and whether its instructions are on this machine."""
    from ..api.machine import describe_protocol

    found = describe_protocol(name)
    if as_json:
        emit(found)
        return
    rows = [[key, value] for key, value in _flat("", found)]
    print_table(["Setting", "Value"], rows, left=2)


@command.command("fetch")
@click.argument("name", metavar="NAME|FILE")
@click.option(
    "--from",
    "folder",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A clone of the repository, or a folder with its files, instead of the network.",
)
@json_option
def fetch_command(name: str, folder: Path | None, as_json: bool) -> None:
    """Read a protocol's instructions and prompts from their repository into R2MED_HOME.

    The files are those of one commit, compared with known hashes, and read as data: nothing of them is run.
    """
    from ..api.machine import fetch_protocol

    done = fetch_protocol(name, folder)
    if as_json:
        emit(done)
        return
    if not done.tasks:  # a prompt for whatever task
        method = next(iter(done.methods))
        note(f"{done.protocol}: the prompt of {method}, commit {done.commit[:7]}, in {done.path}")
        note(f"use it as --rerank {method}:LLM,prompt={done.path}")
        return
    rows = [
        [task, str(len(held["query"])), str(len(held["document"])), ", ".join(held["prompts"]) or "–"]
        for task, held in done.tasks.items()
    ]
    print_table(["Task", "Query instructions", "Document instructions", "Prompts"], rows, left=1)
    note(
        f"{done.protocol}: {len(done.models)} models, {len(done.tasks)} tasks, commit {done.commit[:7]}, in {done.path}"
    )


def _flat(prefix: str, table: dict[str, object]) -> list[tuple[str, str]]:
    """Nested settings as `a.b.c` and a value."""
    found: list[tuple[str, str]] = []
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found += _flat(f"{name}.", value)
        else:
            found.append((name, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)))
    return found
