"""Our results in MTEB's layout: `results/<model>/<revision>/<TaskName>.json` beside a `model_meta.json`.

MTEB's own loaders read the folder. `mteb_version` stays empty, for MTEB did not compute these scores; the key `r2med`,
which its loaders pass over, says who did.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from .._version import __version__
from ..core import ResultError
from ..core.atomic import write_bytes
from ..report.collection import by_system
from ..results import TaskResult
from ..scoring import MAIN
from .mteb import SPLIT, SUBSET
from .mteb_models import ModelIdentity, identity, model_meta
from .mteb_names import mteb_measure, mteb_name

LANGUAGE = "eng-Latn"


class Written(NamedTuple):
    """One exported result."""

    system: str
    task: str
    model: str
    revision: str
    path: str


def export_mteb(results: Iterable[TaskResult], out: Path, *, model: str = "", revision: str = "") -> list[Written]:
    """Write results below `out`, which may hold others already; `model` and `revision` rename a single system."""
    grouped = by_system(results)
    if (model or revision) and len(grouped) > 1:
        raise ResultError(f"one model name cannot stand for {len(grouped)} systems: choose one with --system")
    owners: dict[Path, str] = {}
    written = []
    for system, of_system in grouped.items():
        found = identity(next(iter(of_system.values())).system)
        found = found._replace(name=model or found.name, revision=revision or found.revision)
        folder = out / "results" / found.folder / found.revision
        if folder in owners:
            raise ResultError(f"{owners[folder]} and {system} would both be {found.name}: export them one by one")
        owners[folder] = system
        write_bytes(folder / "model_meta.json", _json(model_meta(found)))
        for full_name, result in of_system.items():
            path = folder / f"{mteb_name(result.task.collection, result.task.name)}.json"
            write_bytes(path, _json(task_result(result, found)))
            written.append(Written(system, full_name, found.name, found.revision, str(path)))
    return written


def task_result(result: TaskResult, model: ModelIdentity) -> dict[str, object]:
    """What MTEB's `TaskResult` holds."""
    if missing := [key for key in (MAIN.key, "recall_at_1") if key not in result.measures]:
        raise ResultError(f"{result.system.name} on {result.task.full_name} has no {missing[0]}: run it again")
    scores: dict[str, object] = {
        theirs: value for key, value in result.measures.items() if (theirs := mteb_measure(key)) is not None
    }
    scores |= {
        "accuracy": result.measures["recall_at_1"],
        "main_score": result.measures[MAIN.key],
        "hf_subset": SUBSET,
        "languages": [LANGUAGE],
    }
    return {
        "dataset_revision": result.task.revision or result.task.fingerprint,
        "task_name": mteb_name(result.task.collection, result.task.name),
        "mteb_version": None,
        "scores": {SPLIT: [scores]},
        "evaluation_time": sum(result.seconds.values()),
        "kg_co2_emissions": None,
        "date": None,
        "r2med": {
            "version": __version__,
            "system": result.system.name,
            "task": result.task.full_name,
            "task_fingerprint": result.task.fingerprint,
            "result_fingerprint": result.fingerprint,
            "depth": result.depth,
            "missing_queries": result.missing_queries,
            "model_is_exact": model.exact,
        },
    }


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
