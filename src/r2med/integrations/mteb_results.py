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
from ..core import R2MedError, ResultError, fingerprint
from ..core.atomic import write_bytes
from ..core.untrusted import component, file_name, inside
from ..models import Card, card_names, find_card
from ..report.collection import by_system
from ..results import SystemInfo, TaskResult
from ..retrieve.mteb_inputs import SPLIT, SUBSET
from ..scoring import MAIN
from .mteb import LANGUAGE, mteb_measure, mteb_name

UNPINNED = "no_revision_available"
LICENCES = {"mit", "apache-2.0", "cc-by-4.0", "cc-by-nc-4.0"}
FRAMEWORKS = {"onnx": "ONNX", "transformers": "PyTorch", "openai": "API", "voyage": "API"}
TYPES = {"dense": "dense", "lexical": "sparse", "sparse": "sparse", "late-interaction": "late-interaction"}


class Written(NamedTuple):
    """One exported result."""

    system: str
    task: str
    model: str
    revision: str
    path: str


class ModelIdentity(NamedTuple):
    """A model as MTEB names it."""

    name: str
    revision: str
    exact: bool
    """Whether the system is that model and nothing else: no expansion, no reranker, no quantised weights."""
    kind: str
    card: Card | None

    @property
    def folder(self) -> str:
        """`<model>/<revision>`, spelled as in MTEB's folders."""
        name = self.name.replace("/", "__").replace(" ", "_")
        return f"{component(name, 'model name')}/{component(self.revision, 'revision')}"


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
        folder = inside(out, f"results/{found.folder}", "model")
        if folder in owners:
            raise ResultError(f"{owners[folder]} and {system} would both be {found.name}: export them one by one")
        owners[folder] = system
        write_bytes(folder / "model_meta.json", _json(model_meta(found)))
        for full_name, result in of_system.items():
            path = inside(folder, f"{mteb_name(result.task.collection, result.task.name)}.json", "task")
            write_bytes(path, _json(task_result(result, found)))
            written.append(Written(system, full_name, found.name, found.revision, str(path)))
    return written


def identity(system: SystemInfo) -> ModelIdentity:
    """The model that results go under.

    A plain dense system of a hub model is that model. Everything else, such as BM25, a fusion, a reranked system, a
    model with other parameters or a quantised copy, is a system of ours: its figures are not the model's.
    """
    card = _card(system)
    exact = card is not None and not (card.is_api or card.variant or card.folder or card.document_source)
    if card is not None and exact:
        revision = card.revision if card.revision != "main" else UNPINNED
        return ModelIdentity(card.source, revision, True, system.kind, card)
    state = fingerprint("system", system.description)[:12]
    return ModelIdentity(f"r2med/{file_name(system.name)}", state, False, system.kind, card)


def _card(system: SystemInfo) -> Card | None:
    """The card of a system that is one model without parameters; a name with parameters is no hub id."""
    if system.name not in card_names() and "/" not in system.name:
        return None
    try:
        card = find_card(system.name)
    except R2MedError:
        return None
    return card if card.kind == system.kind else None


def model_meta(model: ModelIdentity) -> dict[str, object]:
    """What MTEB's `ModelMeta` holds; what is not known is null."""
    card = model.card
    licence = card.licence.lower() if card else "apache-2.0"
    on_hub = card is not None and not card.is_api and not card.folder
    return {
        "loader": None,
        "name": model.name,
        "revision": model.revision,
        "release_date": None,
        "languages": [LANGUAGE],
        "n_parameters": card.parameters if card else None,
        "memory_usage_mb": None,
        "max_tokens": card.document_length if card else None,
        "embed_dim": card.dimension if card else None,
        "license": licence if licence in LICENCES else None,
        "open_weights": not card.is_api if card else None,
        "public_training_code": None,
        "public_training_data": None,
        "framework": [FRAMEWORKS[card.backend]] if card and card.backend in FRAMEWORKS else ["NumPy"],
        "reference": f"https://huggingface.co/{card.source}" if card and on_hub else None,
        "similarity_fn_name": card.similarity if card and model.kind == "dense" else None,
        "use_instructions": bool(card.instructions.query or card.instructions.document) if card else None,
        "training_datasets": None,
        "adapted_from": None if model.exact or not card or card.folder else card.source,
        "model_type": [TYPES.get(model.kind, "hybrid")],
    }


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
