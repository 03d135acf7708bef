"""What a run is doing right now."""

from __future__ import annotations

import time
from typing import Any

from ..asked import Asked, Links, Page
from ..site import Site


def progress(site: Site, asked: Asked, url: Links) -> Page:
    """The page."""
    return Page("progress.html", "Progress", {"state": state(site), "poll": url("api", "progress")}, "progress")


def state(site: Site) -> dict[str, Any] | None:
    """The run as plain data: for the page, and for the script that keeps it fresh."""
    found = site.progress()
    if found is None:
        return None
    elapsed = max((found.ended or time.time() if found.running or found.ended else found.updated) - found.started, 0.0)
    rate = found.done / elapsed if elapsed else 0.0
    return {
        "running": found.running,
        "ended": found.ended is not None,
        "done": found.done,
        "total": found.total,
        "share": round(100 * found.done / found.total) if found.total else 0,
        "current": None if found.current is None else {"system": found.current.system, "task": found.current.task},
        "finished": [{"system": s.system, "task": s.task} for s in reversed(found.finished)],
        "elapsed": round(elapsed),
        "left": round((found.total - found.done) / rate) if rate and found.running else None,
        "version": site.shelf.version,
    }
