"""The small pages: one system, one document, a run that is under way, and the submissions of a public board."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....core import Task, UnknownName, UsageError
from ....results import TaskResult
from ....results.store import indented_json
from ....scoring import MAIN, USUAL
from ....text.duplicates import find_copies
from ...collection import CollectionResults
from ...costs import AXES, cost_of
from ...leaderboard import family_of
from ...submissions import Submission
from ..render import Links, Page, PageRequest, marked, terms_of
from ..site import Site
from . import find_task

LONGEST = 400_000
USUAL_DEPTH = 1000  # What `r2med run` takes unless told otherwise.


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


def submissions(site: Site, asked: PageRequest, url: Links) -> Page:
    """All submissions, newest first."""
    rows = []
    for made in reversed(all_submissions(site)):
        shown = [label for label, entry in site.submitted.items() if entry.submission is made]
        where = [results.title for results in site.held.values() if any(label in results.systems for label in shown)]
        rows.append({"made": made, "systems": len(shown), "where": where, "href": url("submission", made.slug)})
    return Page("submissions.html", "Submissions", {"rows": rows, "trouble": site.problems()}, "submissions")


def all_submissions(site: Site) -> list[Submission]:
    """Each submission that has something on the board, oldest first."""
    found = {entry.submission.id: entry.submission for entry in site.submitted.values()}
    return sorted(found.values(), key=lambda made: (made.manifest.date, made.id))


def submission(site: Site, asked: PageRequest, url: Links) -> Page:
    """One submission: who, when, under which protocol, what it scored, whether that was verified, and how it is run."""
    known = {made.slug: made for made in all_submissions(site)}
    slug = "/".join(asked.parts)
    if slug not in known:
        raise UnknownName("submission", slug, known)
    made = known[slug]
    systems = []
    for label, entry in site.submitted.items():
        if entry.submission is made:
            parts = [_on(site, results, label, url) for results in site.held.values() if label in results.systems]
            systems.append({"label": label, "entry": entry, "collections": parts})
    context = {
        "made": made,
        "systems": systems,
        "axes": AXES,
        "measure": MAIN,
        "verdicts": [v for v in made.verdicts if v.status != "verified"],
        "list_href": url("submissions"),
    }
    return Page("submission.html", made.name, context, "submissions")


def _on(site: Site, results: CollectionResults, label: str, url: Links) -> dict[str, Any]:
    """One system on one collection."""
    found = results.results(label)
    said = site.standing(results, MAIN)
    scores = said.scores.get(label) if said else None
    return {
        "title": results.title,
        "href": url("system", results.slug, label),
        "board_href": url("board", results.slug),
        "kind": family_of(found[0].system),
        "complete": set(results.whole) <= set(results.systems[label]),
        "scores": scores,
        "place": said.places.get(label) if said else None,
        "results": [(result, url("task", results.slug, result.task.name)) for result in found],
        "costs": {name: cost_of(found, name, site.model_facts) for name in AXES},
        "command": command(results, found),
        "environment": _environment(found[0]),
    }


def command(results: CollectionResults, found: Sequence[TaskResult]) -> str:
    """What to type to run a system again on the same tasks."""
    whole = {result.task.name for result in found} >= set(results.whole)
    if not results.collection:
        tasks = ",".join(f"./{result.task.name}" for result in found)
    else:
        tasks = results.collection if whole else ",".join(result.task.full_name for result in found)
    depth = [] if found[0].depth == USUAL_DEPTH else ["--depth", str(found[0].depth)]
    return shlex.join(["r2med", "run", "--tasks", tasks, "--system", found[0].system.name, *depth])


def _environment(result: TaskResult) -> list[tuple[str, str]]:
    """Software and machine, as far as a result says."""
    versions = result.environment.get("versions")
    said = versions if isinstance(versions, dict) else {}
    facts = [(str(name), str(version)) for name, version in said.items()]
    told = (name for name in ("processor", "platform", "commit") if result.environment.get(name))
    return [*facts, *((name, str(result.environment[name])) for name in told)]
