"""`r2med cache`: what the embedding cache holds, and making it smaller."""

from __future__ import annotations

import re
import time

import click

from .common import emit, json_option, note, print_table

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@click.group("cache", invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Show the embedding cache: every set of vectors, its size and when it was used last."""
    if context.invoked_subcommand is not None:
        return
    from ..cache import EmbeddingCache, list_sets

    cache = EmbeddingCache()
    sets = list_sets(cache)
    total = sum(s.bytes for s in sets)
    if as_json:
        rows = [s._asdict() | {"folder": str(s.folder)} for s in sets]
        emit({"root": str(cache.root), "bytes": total, "sets": rows})
        return
    rows_shown = [
        [s.label or str(s.about.get("model", s.about.get("name", s.folder.name))), str(s.about.get("side", "")),
         f"{s.shards}", f"{s.bytes / 1e6:,.1f} MB", time.strftime("%Y-%m-%d %H:%M", time.localtime(s.last_used))]
        for s in sets
    ]  # fmt: skip
    print_table(["Model", "Side", "Shards", "Size", "Last used"], rows_shown, left=2)
    note(f"{total / 1e6:,.1f} MB in {cache.root}")


@command.command("prune")
@click.option("--max-size", metavar="SIZE", help="Remove the sets used longest ago until it fits, e.g. 10G.")
@click.option("--unused-days", type=click.FloatRange(min=0), help="Remove sets not used for so many days.")
@json_option
def prune_command(max_size: str | None, unused_days: float | None, as_json: bool) -> None:
    """Remove damaged and abandoned files, and sets that are unused or too many."""
    from ..cache import EmbeddingCache, prune

    done = prune(EmbeddingCache(), max_bytes=parse_size(max_size) if max_size else None, unused_days=unused_days)
    if as_json:
        emit(done._asdict())
    else:
        note(f"removed {done.sets} sets, {done.damaged} damaged shards, {done.temporary} abandoned files: "
             f"{done.bytes / 1e6:,.1f} MB freed")  # fmt: skip


def parse_size(text: str) -> int:
    """Bytes of `500M`, `10G`, `1.5 GB`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*", text.upper())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size; write 500M or 10G", param_hint="--max-size")
    return int(float(match[1]) * UNITS[match[2]])
