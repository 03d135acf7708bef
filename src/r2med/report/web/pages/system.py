"""One system: its scores, and how they were made."""

from __future__ import annotations

from typing import Any

import msgspec

from ....core import UnknownName, UsageError
from ..asked import Asked, Links, Page
from ..data.columns import MEASURES
from ..data.rows import kind_of
from ..site import Site


def system(site: Site, asked: Asked, url: Links) -> Page:
    """The page."""
    if len(asked.parts) < 2:
        raise UsageError("a system has an address like /system/COLLECTION/NAME")
    holdings = site.holdings(asked.parts[0])
    name = "/".join(asked.parts[1:])
    if name not in holdings.systems:
        raise UnknownName("system", name, holdings.systems, hint=f"in {holdings.slug}")
    entries = holdings.systems[name]
    results = {t: entries[t].result for t in holdings.tasks if t in entries}
    first = next(iter(results.values()))
    shown = [
        m
        for m in MEASURES
        if m.key in ("ndcg_at_10", "map_at_10", "mrr_at_10", "recall_at_10", "recall_at_100", "hit_at_10")
    ]
    stages = list(dict.fromkeys(stage for r in results.values() for stage in r.seconds))
    context: dict[str, Any] = {
        "name": name,
        "kind": kind_of(next(iter(entries.values()))),
        "results": results,
        "measures": shown,
        "stages": stages,
        "description": pretty(first.system.description),
        "environment": pretty(first.environment),
        "notes": {t: pretty(r.notes) for t, r in results.items() if r.notes},
        "task_links": {t: url("task", holdings.slug, t) for t in results},
        "board_href": url("board", holdings.slug),
        "collection": holdings.title,
        "lacking": [t for t in holdings.whole if t not in results],
    }
    return Page("system.html", name, context, "board")


def pretty(value: object) -> str:
    """JSON for people."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
