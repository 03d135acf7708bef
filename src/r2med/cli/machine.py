"""What is here and what can be had: `r2med models`, `r2med doctor` and `r2med cache`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import Commands, Number, Whole, emit, json_option, note, print_table, say

if TYPE_CHECKING:
    from ..cache import Entry
    from ..doctor import Diagnosis, Place
    from ..llm.serving import ServerName, Start
    from ..models import Fetched, Row

MODEL_KINDS = (
    "lexical",
    "dense",
    "late-interaction",
    "sparse",
    "cross-encoder",
    "chat",
    "retriever",
    "reranker",
    "expander",
)
FIRST_EDITION = {"llm": "chat"}
"""Kinds that had another name."""
SHOWN = ("summary", "kind", "source", "revision", "licence", "released", "proven", "note", "path", "get")
"""What is said about one model, where it is known."""
ORIGINS = {"hub": "the Hugging Face hub", "carrier": "the package index", "folder": "a folder of your own"}
MARKS = {"ok": "ok", "warning": "note", "broken": "BROKEN"}
"""How the findings of `r2med doctor` are marked."""
CACHE_KINDS = ("vectors", "scores", "generations", "indexes")


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
    type=click.Choice([*MODEL_KINDS, *FIRST_EDITION]),
    metavar="KIND",
    help=f"Only models of one kind: {', '.join(MODEL_KINDS)}.",
)
@json_option
@click.pass_context
def models(context: click.Context, kind: str | None, as_json: bool) -> None:
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


@models.command("fetch")
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


@models.command("show")
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
    print_table(["Model", shown["name"]], [[key, str(shown[key])] for key in SHOWN if shown[key]], left=2)


@models.command("serve")
@click.argument("name", shell_complete=_names)
@click.option("--server", type=click.Choice(["vllm", "sglang", "llama.cpp"]), default="vllm", show_default=True,
              help="The server that is to be started.")  # fmt: skip
@click.option("--gpus", type=Whole(1, 64), default=1, show_default=True, help="GPUs that share the model.")
@click.option("--gpu-memory", metavar="SIZE", help="Memory of each GPU, as in 80GB: refuses what does not fit.")
@click.option("--context", type=Whole(256), help="Tokens of prompt and answer; fewer take less memory.")
@click.option("--wait", "url", metavar="URL", help="Wait until the server at this URL (http://host:8000/v1) is ready.")
@click.option("--timeout", type=Number(1), help="Seconds to wait for it.  [default: 600]")
@json_option
def serve_command(
    name: str,
    server: ServerName,
    gpus: int,
    gpu_memory: str | None,
    context: int | None,
    url: str | None,
    timeout: float | None,
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

    if timeout is not None and url is None:
        raise click.UsageError("--timeout is how long --wait waits: add it")
    size = None if gpu_memory is None else parse_size(gpu_memory)
    start = start_of(name, server, gpus=gpus, gpu_memory=size, context=context)
    if not as_json:
        say(start.shell, whole=True)
        for line in (_memory(start), *start.notes):
            note(line)
    served = None if url is None else wait_for_server(start.name, url, timeout or 600.0)
    use = f"OPENAI_BASE_URL={url or start.url} {use_of(start.name)}"
    if as_json:
        emit({**asdict(start), "shell": start.shell, "ready": served is not None, "use": use})
        return
    if served is not None:
        note(f"{url} serves {served}.")
    note(f"{'Use it' if served else 'Once it runs'}: {use}", whole=True)


@models.command("where")
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


@click.command("doctor")
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Their folder.")
@json_option
def doctor(results: Path, as_json: bool) -> None:
    """Look at the installation: versions, extras, devices, keys (never their values), caches, and what is ready.

    Tries a few small things, downloads nothing, changes nothing. The exit code is 0 unless something is broken.
    """
    from ..api.machine import check_installation

    found = check_installation(results)
    if as_json:
        emit(found)
    else:
        _print_findings(found)
    if not found.ok:
        sys.exit(1)


def _print_findings(found: Diagnosis) -> None:
    from ..core.options import show_size

    machine = found.machine
    memory = f", {show_size(machine.memory_bytes)} of memory" if machine.memory_bytes else ""
    _heading("Machine")
    say("  " + ", ".join(f"{name} {version}" for name, version in found.versions.items()))
    say(f"  {machine.processor}, {machine.cores} cores{memory}; GPUs: {'; '.join(machine.gpus) or 'none'}")
    for name, value in found.settings.items():
        say(f"  {name}={value}")
    _heading("Checks")
    rows = [
        [c.name, MARKS[c.status], c.detail + (f" → {c.advice}" if c.advice and c.status != "ok" else "")]
        for c in found.checks
    ]
    print_table(["Check", "", "Finding"], rows, left=3)
    _heading("Extras")
    rows = [
        [e.name, "yes" if e.installed else "no", e.get or _packages(e.packages)]
        for e in found.extras
        if e.name != "all"  # it has nothing of its own
    ]
    if rows:
        print_table(["Extra", "Here", "Packages, or how to get them"], rows, left=3)
    else:
        say("  not known: r2med runs from its sources, without having been installed")
    _heading("Keys (only whether they are there)")
    for secret in found.keys:
        say(f"  {secret.name}: {'in the ' + secret.where if secret.present else 'no'}")
    _heading("Folders")
    print_table(["Folder", "Path", "Size", "Free"], [_place(place) for place in found.places], left=2)
    if found.plugins:
        _heading("Plug-ins")
        for plugin in found.plugins:
            say(f"  {plugin}")
    _heading("Ready")
    for line in found.ready:
        say(f"  {line}")


def _heading(text: str) -> None:
    if text != "Machine":
        say()
    say(text)


def _packages(packages: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items())


def _place(place: Place) -> list[str]:
    from ..core.options import show_size

    size = f"{'' if place.complete else 'over '}{show_size(place.bytes)}" if place.exists else "not there"
    return [place.name, place.path, size, "" if place.free_bytes is None else show_size(place.free_bytes)]


@click.group("cache", cls=Commands, invoke_without_command=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(CACHE_KINDS), help="Only this kind; may be repeated.")
@json_option
@click.pass_context
def cache(context: click.Context, kinds: Sequence[str], as_json: bool) -> None:
    """Show what is kept on disk: vectors, scores of pairs, generated texts, indexes; their size and last use."""
    if context.invoked_subcommand is not None:
        return
    from ..api.machine import cache_entries
    from ..core.files import home
    from ..core.options import show_size

    kept = cache_entries(kinds=kinds or CACHE_KINDS)
    total = sum(entry.bytes for entry in kept)
    if as_json:
        sums = {kind: sum(e.bytes for e in kept if e.kind == kind) for kind in kinds or CACHE_KINDS}
        emit({"root": str(home()), "bytes": total, "kinds": sums, "entries": [_document(entry) for entry in kept]})
        return
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in kept:
        groups.setdefault((entry.kind, entry.label or entry.path.name, entry.detail), []).append(entry)
    rows = [
        [kind, label, detail, f"{sum(e.files for e in group)}", show_size(sum(e.bytes for e in group)),
         time.strftime("%Y-%m-%d %H:%M", time.localtime(max(e.last_used for e in group)))]
        for (kind, label, detail), group in sorted(groups.items(), key=lambda item: CACHE_KINDS.index(item[0][0]))
    ]  # fmt: skip
    print_table(["Kind", "Model", "What", "Files", "Size", "Last used"], rows, left=3)
    note(f"{show_size(total)} in {home()}")


def _document(entry: Entry) -> dict[str, object]:
    return entry._asdict() | {"path": str(entry.path)}


@cache.command("verify")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(CACHE_KINDS), help="Only this kind; may be repeated.")
@json_option
def verify_command(kinds: Sequence[str], as_json: bool) -> None:
    """Read every byte of what is kept and compare it with its checksums; exits with 1 where a file is damaged."""
    from ..api.machine import verify_cache
    from ..core.options import show_size

    checked = list(verify_cache(kinds=kinds or CACHE_KINDS))
    damaged = [damage for _, found in checked for damage in found]
    size = sum(entry.bytes for entry, _ in checked)
    if as_json:
        rows = [damage._asdict() | {"path": str(damage.path)} for damage in damaged]
        emit({"entries": len(checked), "bytes": size, "damaged": rows})
    else:
        for damage in damaged:
            say(f"{damage.path}: {damage.reason}")
        lost = sum(damage.lost for damage in damaged)
        advice = "; r2med cache prune removes them" if lost else ""
        note(f"{show_size(size)} in {len(checked)} entries read, {lost} damaged files{advice}")
    if any(damage.lost for damage in damaged):
        sys.exit(1)


@cache.command("prune")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(CACHE_KINDS),
    help="Only this kind; may be repeated. Generated texts are pruned only if named: they may have cost money.",
)  # fmt: skip
@click.option("--max-size", metavar="SIZE", help="Remove the entries used longest ago until the rest fits, e.g. 10GB.")
@click.option("--unused-days", type=Number(min=0), help="Remove entries not used for so many days.")
@json_option
def prune_command(kinds: Sequence[str], max_size: str | None, unused_days: float | None, as_json: bool) -> None:
    """Remove damaged and abandoned files, and entries that are unused or too many."""
    from ..api.machine import prune_cache
    from ..cache import PRUNED
    from ..core.options import parse_size, show_size

    most = parse_size(max_size, least=0) if max_size else None
    done = prune_cache(kinds=kinds or PRUNED, max_bytes=most, unused_days=unused_days)
    if as_json:
        emit(done._asdict())
    else:
        note(f"removed {done.entries} entries, {done.damaged} damaged files, {done.temporary} abandoned files: "
             f"{show_size(done.bytes)} freed")  # fmt: skip
