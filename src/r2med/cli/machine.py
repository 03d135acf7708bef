"""`r2med doctor` and `r2med cache`: what is installed and ready here, and what is kept on disk."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import Commands, json_option
from .output import emit, note, print_table, say

if TYPE_CHECKING:
    from ..cache import Entry
    from ..doctor import Diagnosis, Place


MARKS = {"ok": "ok", "warning": "note", "broken": "BROKEN"}


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
        _print(found)
    if not found.ok:
        sys.exit(1)


def _print(found: Diagnosis) -> None:
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


KINDS = ("vectors", "scores", "generations", "indexes")


@click.group("cache", cls=Commands, invoke_without_command=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only this kind; may be repeated.")
@json_option
@click.pass_context
def cache(context: click.Context, kinds: Sequence[str], as_json: bool) -> None:
    """Show what is kept on disk: vectors, scores of pairs, generated texts, indexes; their size and last use."""
    if context.invoked_subcommand is not None:
        return
    from ..api.machine import cache_entries
    from ..core.files import home
    from ..core.options import show_size

    kept = cache_entries(kinds=kinds or KINDS)
    total = sum(entry.bytes for entry in kept)
    if as_json:
        sums = {kind: sum(e.bytes for e in kept if e.kind == kind) for kind in kinds or KINDS}
        emit({"root": str(home()), "bytes": total, "kinds": sums, "entries": [_document(entry) for entry in kept]})
        return
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in kept:
        groups.setdefault((entry.kind, entry.label or entry.path.name, entry.detail), []).append(entry)
    rows = [
        [kind, label, detail, f"{sum(e.files for e in group)}", show_size(sum(e.bytes for e in group)),
         time.strftime("%Y-%m-%d %H:%M", time.localtime(max(e.last_used for e in group)))]
        for (kind, label, detail), group in sorted(groups.items(), key=lambda item: KINDS.index(item[0][0]))
    ]  # fmt: skip
    print_table(["Kind", "Model", "What", "Files", "Size", "Last used"], rows, left=3)
    note(f"{show_size(total)} in {home()}")


def _document(entry: Entry) -> dict[str, object]:
    return entry._asdict() | {"path": str(entry.path)}


@cache.command("verify")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only this kind; may be repeated.")
@json_option
def verify_command(kinds: Sequence[str], as_json: bool) -> None:
    """Read every byte of what is kept and compare it with its checksums; exits with 1 where a file is damaged."""
    from ..api.machine import verify_cache
    from ..core.options import show_size

    checked = list(verify_cache(kinds=kinds or KINDS))
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
    "--kind", "kinds", multiple=True, type=click.Choice(KINDS),
    help="Only this kind; may be repeated. Generated texts are pruned only if named: they may have cost money.",
)  # fmt: skip
@click.option("--max-size", metavar="SIZE", help="Remove the entries used longest ago until the rest fits, e.g. 10GB.")
@click.option("--unused-days", type=click.FloatRange(min=0), help="Remove entries not used for so many days.")
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
