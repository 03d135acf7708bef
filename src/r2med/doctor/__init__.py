"""What is installed on this machine, what works, and what is ready to run; changes nothing."""

from __future__ import annotations

from pathlib import Path

from ..core.plugins import plugins
from ..models import listing
from ..pipeline.experiment import default_systems
from ..pipeline.system import REGISTRIES
from ..tasks import list_tasks
from . import here
from .checks import run_checks
from .here import SCHEMA, Check, Counted, Diagnosis, Extra, Place, Status

__all__ = ["Check", "Diagnosis", "Extra", "Place", "Status", "diagnose"]

NEEDED = {"bm25", "native code", "write to results"}
"""Checks without which nothing runs; BM25 alone writes nothing to the home."""


def diagnose(results: Path = Path("results")) -> Diagnosis:
    """Look at everything."""
    machine = here.look_at_machine()
    checks = run_checks(results, machine)
    tasks: dict[str, Counted] = {}
    for task in list_tasks():
        known = tasks.get(task.collection, Counted(ready=[], total=0))
        ready = [*known.ready, *([task.name] if task.available else [])]
        tasks[task.collection] = Counted(ready=ready, total=known.total + 1)
    models: dict[str, Counted] = {}
    for row in listing(registries=REGISTRIES):
        before = models.get(row.kind, Counted(ready=[], total=0))
        models[row.kind] = Counted(ready=[*before.ready, *([row.name] if row.ready else [])], total=before.total + 1)
    return Diagnosis(
        schema=SCHEMA,
        ok=all(check.status != "broken" for check in checks),
        versions=here.versions(),
        native=here.native_extensions(),
        extras=here.extras(),
        machine=machine,
        keys=here.keys(),
        settings=here.settings_in_force(),
        places=here.places(results),
        tasks=tasks,
        models=models,
        plugins=[f"{p.name} ({p.kind} of {p.distribution} {p.version})" for p in plugins()],
        checks=checks,
        ready=_ready(tasks, models, checks),
    )


def _ready(tasks: dict[str, Counted], models: dict[str, Counted], checks: list[Check]) -> list[str]:
    """What can be run now, in sentences; a part that is broken is not promised."""
    broken = {check.name for check in checks if check.status == "broken"}
    if stops := [check.name for check in checks if check.name in broken & NEEDED]:
        return [f"`r2med run` cannot run: {', '.join(stops)} (see the checks)"]
    retrievers, fusion, best, missing = default_systems()
    names = [*retrievers, *(["their fusion"] if fusion else []), *([best] if best else [])]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    said = [f"`r2med run` will run {listed} on Mini" + (f"; {missing}" if missing else "")]
    if "embedded model" in broken and fusion:
        said = ["`r2med run -r bm25` will run on Mini; the embedded model is broken (see the checks)"]
    present = [f"{name} ({len(c.ready)} of {c.total})" for name, c in tasks.items() if c.ready]
    said.append(f"Tasks on this machine: {', '.join(present)}")
    kinds = {
        "Dense models ready": ("dense",),
        "Rerankers ready": ("late-interaction", "cross-encoder"),
        "Chat models ready": ("chat",),
    }
    for title, wanted in kinds.items():
        if ready := [name for kind in wanted for name in models[kind].ready]:
            said.append(f"{title}: {', '.join(ready)}")
    return said
