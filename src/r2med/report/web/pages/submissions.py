"""Pages of a public board: all submissions, and one of them with its command and its costs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from ....core import UnknownName
from ....results import TaskResult
from ....scoring import MAIN
from ...collection import CollectionResults
from ...costs import AXES, cost_of
from ...leaderboard import family_of
from ...submissions import Submission
from ..render import Links, Page, PageRequest
from ..site import Site

USUAL_DEPTH = 1000  # What `r2med run` takes unless told otherwise.


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
