"""`r2med doctor`: what is installed, what works and what is ready."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .common import emit, json_option, print_table
from .output import say

if TYPE_CHECKING:
    from ..doctor import Diagnosis, Place

MARKS = {"ok": "ok", "warning": "note", "broken": "BROKEN"}


@click.command("doctor")
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path), help="Their folder.")
@json_option
def command(results: Path, as_json: bool) -> None:
    """Look at the installation: versions, extras, devices, keys (never their values), caches, and what is ready.

    Tries a few small things, downloads nothing, changes nothing. The exit code is 0 unless something is broken.
    """
    from ..doctor import diagnose

    found = diagnose(results)
    if as_json:
        emit(found)
    else:
        _print(found)
    if not found.ok:
        sys.exit(1)


def _print(found: Diagnosis) -> None:
    from ..core.sizes import show_size

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
    say(f"\n{text}" if text != "Machine" else text, lines=True)


def _packages(packages: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items())


def _place(place: Place) -> list[str]:
    from ..core.sizes import show_size

    size = f"{'' if place.complete else 'over '}{show_size(place.bytes)}" if place.exists else "not there"
    return [place.name, place.path, size, "" if place.free_bytes is None else show_size(place.free_bytes)]
