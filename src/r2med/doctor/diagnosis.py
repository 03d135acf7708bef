"""All findings together, and what they mean for somebody who wants to run something."""

from __future__ import annotations

from pathlib import Path

from ..core.plugins import plugins
from ..models import listing
from ..pipeline.defaults import default_systems
from ..tasks import collections
from ..tasks.catalogue import locate
from .checks import run_checks
from .findings import SCHEMA, Check, Counted, Diagnosis
from .machine import look_at_machine
from .places import places
from .settings import keys, settings_in_force
from .software import extras, native_extensions, versions

NEEDED = {"bm25", "native code", "write to results"}
"""Checks without which nothing runs; BM25 alone writes nothing to the home."""


def diagnose(results: Path = Path("results")) -> Diagnosis:
    """Look at everything."""
    machine = look_at_machine()
    checks = run_checks(results, machine)
    tasks, models = _tasks(), _models()
    return Diagnosis(
        schema=SCHEMA,
        ok=all(check.status != "broken" for check in checks),
        versions=versions(),
        native=native_extensions(),
        extras=extras(),
        machine=machine,
        keys=keys(),
        settings=settings_in_force(),
        places=places(results),
        tasks=tasks,
        models=models,
        plugins=[f"{p.name} ({p.kind} of {p.distribution} {p.version})" for p in plugins()],
        checks=checks,
        ready=_ready(tasks, models, checks),
    )


def _tasks() -> dict[str, Counted]:
    return {
        name: Counted(ready=[e.name for e in c.tasks if locate(e) is not None], total=len(c.tasks))
        for name, c in collections().items()
    }


def _models() -> dict[str, Counted]:
    found: dict[str, Counted] = {}
    for row in listing():
        before = found.get(row.kind, Counted(ready=[], total=0))
        found[row.kind] = Counted(ready=[*before.ready, *([row.name] if row.ready else [])], total=before.total + 1)
    return found


def _ready(tasks: dict[str, Counted], models: dict[str, Counted], checks: list[Check]) -> list[str]:
    """Sentences; a part that is broken is not promised."""
    broken = {check.name for check in checks if check.status == "broken"}
    if stops := [check.name for check in checks if check.name in broken & NEEDED]:
        return [f"`r2med run` cannot run: {', '.join(stops)} (see the checks)"]
    retrievers, fusion, missing = default_systems()
    names = [*retrievers, *(["their fusion"] if fusion else [])]
    said = [f"`r2med run` will run {_listed(names)} on Mini" + (f"; {missing}" if missing else "")]
    if "embedded model" in broken and fusion:
        said = ["`r2med run -r bm25` will run on Mini; the embedded model is broken (see the checks)"]
    here = [f"{name} ({len(c.ready)} of {c.total})" for name, c in tasks.items() if c.ready]
    said.append(f"Tasks on this machine: {', '.join(here)}")
    if dense := models["dense"].ready:
        said.append(f"Dense models ready: {', '.join(dense)}")
    if rerankers := [*models["late-interaction"].ready, *models["cross-encoder"].ready]:
        said.append(f"Rerankers ready: {', '.join(rerankers)}")
    if llms := models["llm"].ready:
        said.append(f"Language models ready without a network: {', '.join(llms)}")
    return said


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
