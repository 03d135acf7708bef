"""The small pages: one system, one document, a run that is under way."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ....core import Task, UnknownName, UsageError
from ....results.store import indented_json
from ....scoring import USUAL
from ....text.duplicates import find_copies
from ...leaderboard import family_of
from ..render import Links, Page, PageRequest, marked, terms_of
from ..site import Site
from . import find_task

LONGEST = 400_000


def system(site: Site, asked: PageRequest, url: Links) -> Page:
    """One system: its scores, and how they were made."""
    if len(asked.parts) < 2:
        raise UsageError("a system has an address like /system/COLLECTION/NAME")
    results = site.results(asked.parts[0])
    name = "/".join(asked.parts[1:])
    if name not in results.systems:
        raise UnknownName("system", name, results.systems, hint=f"in {results.slug}")
    found = {r.task.name: r for r in results.results(name)}
    first = next(iter(found.values()))
    context: dict[str, Any] = {
        "name": name,
        "kind": family_of(first.system),
        "results": found,
        "measures": USUAL,
        "stages": list(dict.fromkeys(stage for r in found.values() for stage in r.seconds)),
        "times": {
            "Where nothing is stored:": {task: r.cold_seconds for task, r in found.items()},
            "In this run, with what was stored before it:": {task: r.seconds for task, r in found.items()},
        },
        "spec": _json(first.system.spec) if first.system.spec else "",
        "description": _json(first.system.description),
        "environment": _json(first.environment),
        "notes": {t: _json(r.notes) for t, r in found.items() if r.notes},
        "task_links": {t: url("task", results.slug, t) for t in found},
        "board_href": url("board", results.slug),
        "collection": results.title,
        "lacking": [t for t in results.whole if t not in found],
    }
    return Page("system.html", name, context, "board")


def _json(value: object) -> str:
    return indented_json(value).decode().rstrip()


def document(site: Site, asked: PageRequest, url: Links) -> Page:
    """One document in full; `query` names a query whose words are marked."""
    results, name = find_task(site, asked)
    info = results.infos[name]
    task = site.texts.of(info).task
    if len(asked.parts) < 3:
        raise UsageError("a document has an address like /document/COLLECTION/TASK/ID")
    found = task.documents.get(asked.parts[2]) if task else None
    if task is None or found is None:
        raise UnknownName("document", asked.parts[2], (), hint=f"in {info.full_name}, or its texts are not here")
    query = task.query(asked.get("query"))
    copies = site.background.get(
        ("copies", task.fingerprint), None, lambda: find_copies(task.documents), wait=site.wait
    )
    own = (copies or {}).get(found.id)
    same = [d for d, first in (copies or {}).items() if first == own and d != found.id] if own else []
    context = {
        "info": info,
        "document": found,
        "text": marked(found.text, terms_of(query.text) if query else (), most=LONGEST),
        "cut": len(found.text) > LONGEST,
        "query": query,
        "judged": [(q, grade, url("query", results.slug, name, q)) for q, grade in _judged(task, found.id)],
        "copies": [(d, url("document", results.slug, name, d)) for d in same],
        "copies_known": copies is not None,
        "task_href": url("task", results.slug, name),
        "words": len(found.text.split()),
    }
    return Page("document.html", found.id, context, "task")


def _judged(task: Task, doc_id: str) -> list[tuple[str, int]]:
    """The queries that a document was judged for, with its grades."""
    qrels = task.qrels
    position = qrels.doc_ids.position(doc_id)
    places = np.flatnonzero((qrels.docs == position) & (position >= 0))
    rows = np.searchsorted(qrels.indptr, places, side="right") - 1
    return [(qrels.query_ids[row], int(qrels.grades[place])) for row, place in zip(rows, places, strict=True)]


def progress(site: Site, asked: PageRequest, url: Links) -> Page:
    """What a run is doing right now."""
    return Page("progress.html", "Progress", {"state": progress_state(site)}, "progress")


def progress_state(site: Site) -> dict[str, Any] | None:
    """The latest run as plain data: for the page, and for the script that keeps it fresh."""
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
        "version": site.index.version,
    }
