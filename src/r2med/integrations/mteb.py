"""MTEB: its names for our tasks and measures, our tasks as its own, our results in its layout, its results as a ledger.

`mteb.evaluate(model, to_mteb(task))` and `r2med.evaluate(model, task)` give one model the same texts: title, a space
and the text of a document, the text of a query, no document left out for having a query's id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from .._version import __version__
from ..core import DataError, MissingExtra, R2MedError, ResultError, Task, UsageError, fingerprint
from ..core.files import write_bytes
from ..core.untrusted import component, file_name, inside
from ..models import Card, card_names, cards, find_card
from ..report.scores import by_system
from ..results import SystemInfo, TaskResult
from ..results.store import indented_json
from ..retrieve.mteb_inputs import SPLIT, SUBSET
from ..retrieve.mteb_inputs import mteb_name as catalogue_name
from ..scoring import MAIN, Measure
from ..tasks import collections, entries
from ..tasks.catalogue import TaskEntry
from .runs import to_dict

LANGUAGE = "eng-Latn"
CUTOFFS = (1, 3, 5, 10, 20, 100, 1000)
FAMILIES = {name: name for name in ("ndcg", "map", "recall", "precision", "mrr")} | {"hit": "hit_rate"}
"""Our families of measures and what MTEB calls them."""
UNPINNED = "no_revision_available"
LICENCES = {"mit", "apache-2.0", "cc-by-4.0", "cc-by-nc-4.0"}
FRAMEWORKS = {"onnx": "ONNX", "transformers": "PyTorch", "openai": "API", "voyage": "API"}
TYPES = {"dense": "dense", "lexical": "sparse", "sparse": "sparse", "late-interaction": "late-interaction"}
Scores = Mapping[str, Mapping[str, float]]  # Task to measure to value.
Group = tuple[str, str, tuple[str, ...]]  # Protocol, collection and tasks: what the systems of one `[[source]]` share.


def mteb_name(collection: str, task: str) -> str:
    """MTEB's own name for a task of R2MED, and a name that MTEB has not taken for every other.

    A task that is not in the catalogue is named after its folder: `OwnMyTaskRetrieval` is `my-task`. Where other
    folders would come to the same name it carries a hash.
    """
    if any(entry.name == task for entry in entries(collection)) and (name := catalogue_name(collection, task)):
        return name
    whole = f"{collection}/{task}" if collection else task
    words = "".join(part[0].upper() + part[1:] for part in re.findall(r"[A-Za-z0-9]+", whole))
    read_back = "-".join(re.findall("[A-Z][a-z0-9]*", words)).lower()
    mark = "" if read_back == whole else f"_{fingerprint('task', whole)[:8]}"
    return f"Own{words}{mark}Retrieval"


def task_of(name: str) -> TaskEntry | None:
    """The task of the catalogue that an MTEB name stands for."""
    return next((entry for entry in entries() if mteb_name(entry.collection, entry.name) == name), None)


def mteb_measure(key: str) -> str | None:
    """MTEB's key of one of our measures, None where MTEB has no such cut-off."""
    measure = None if key.startswith("recall_micro") else Measure.parse(key)
    return f"{FAMILIES[measure.family]}_at_{measure.cutoff}" if measure and measure.cutoff in CUTOFFS else None


def our_measure(key: str) -> str | None:
    """Our key of one of MTEB's measures, None for those we do not compute (nAUC and the like)."""
    family, _, cutoff = key.rpartition("_at_")
    ours = {theirs: own for own, theirs in FAMILIES.items()}.get(family)
    return f"{ours}_at_{cutoff}" if ours and cutoff.isascii() and cutoff.isdigit() else None


def to_mteb(task: Task) -> Any:
    """An MTEB retrieval task (`AbsTaskRetrieval`) that holds the data of `task`."""
    try:
        import datasets
        from mteb.abstasks.retrieval import AbsTaskRetrieval
        from mteb.abstasks.task_metadata import TaskMetadata
    except ImportError:
        raise MissingExtra("making MTEB tasks", "mteb") from None
    if set(task.qrels.query_ids) - set(task.query_ids):
        raise UsageError(f"{task.full_name} judges queries that it does not hold, which MTEB cannot take")
    name, published = mteb_name(task.collection, task.name), task.collection in collections()
    what = "reasoning-driven medical retrieval" if published else "retrieval"
    metadata = TaskMetadata(
        name=name,
        description=f"{task.full_name}: {what}, as r2med holds it.",
        dataset={"path": task.source or task.full_name, "revision": task.revision or task.fingerprint},
        type="Retrieval",
        category="t2t",
        modalities=["text"],
        eval_splits=[SPLIT],
        eval_langs=[LANGUAGE],
        main_score="ndcg_at_10",
        domains=["Medical"] if published else None,
    )
    made = type(name, (AbsTaskRetrieval,), {"metadata": metadata, "__module__": __name__})()
    corpus = [{"id": d.id, "title": d.title, "text": d.text} for d in task.documents]
    data = {
        "corpus": datasets.Dataset.from_list(corpus),
        "queries": datasets.Dataset.from_list([{"id": q.id, "text": q.text} for q in task.queries]),
        "relevant_docs": {query: grades for query, grades in to_dict(task.qrels).items() if grades},
        "top_ranked": None,
    }
    made.dataset = {SUBSET: {SPLIT: data}}
    made.data_loaded = True
    return made


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
    exact: bool  # Whether the system is that model and nothing else: no expansion, no reranker, no quantised weights.
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
        write_bytes(folder / "model_meta.json", indented_json(model_meta(found)))
        for full_name, result in of_system.items():
            path = inside(folder, f"{mteb_name(result.task.collection, result.task.name)}.json", "task")
            write_bytes(path, indented_json(task_result(result, found)))
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
    unknown = ("loader", "release_date", "memory_usage_mb", "public_training_code", "public_training_data")
    return dict.fromkeys((*unknown, "training_datasets")) | {
        "name": model.name,
        "revision": model.revision,
        "languages": [LANGUAGE],
        "n_parameters": card.parameters if card else None,
        "max_tokens": card.document_length if card else None,
        "embed_dim": card.dimension if card else None,
        "license": licence if licence in LICENCES else None,
        "open_weights": not card.is_api if card else None,
        "framework": [FRAMEWORKS[card.backend]] if card and card.backend in FRAMEWORKS else ["NumPy"],
        "reference": f"https://huggingface.co/{card.source}" if card and on_hub else None,
        "similarity_fn_name": card.similarity if card and model.kind == "dense" else None,
        "use_instructions": bool(card.instructions.query or card.instructions.document) if card else None,
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


class Imported(NamedTuple):
    """Scores of one model on one task."""

    model: str
    revision: str
    protocol: str
    collection: str
    task: str
    measures: Mapping[str, float]


def read_mteb(folder: Path) -> list[Imported]:
    """Every result on a task of the catalogue in an MTEB results folder, at any depth; other tasks are left out."""
    if not folder.is_dir():
        raise DataError("no such folder", path=folder)
    found = [one for path in sorted(folder.rglob("*.json")) if path.name != "model_meta.json" for one in _read(path)]
    if not found:
        raise DataError("holds no MTEB result on a task of R2MED", path=folder)
    return found


def _read(path: Path) -> Iterator[Imported]:
    try:
        data: Any = msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, OSError, RecursionError) as error:
        raise DataError(f"not JSON ({error})", path=path) from None
    named = data.get("task_name") if isinstance(data, dict) else None
    known = task_of(named) if isinstance(named, str) else None
    if known is None:  # another task, or some other tool's file
        return
    try:
        found = [s for split in data["scores"].values() for s in split if s["hf_subset"] == "default"]
        taken = {own: float(value) for s in found for key, value in s.items() if (own := our_measure(key))}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"not an MTEB result ({error!r})", path=path) from None
    if len(found) != 1 or not taken or not all(0 <= value <= 1 for value in taken.values()):
        raise DataError("not an MTEB result: expected one split with scores from 0 to 1", path=path)
    (name, revision), protocol = _model(path), "mteb"
    ours = data.get("r2med")
    if isinstance(ours, dict) and isinstance(ours.get("system"), str):  # what `r2med export mteb` wrote
        name, protocol = ours["system"], "default"
    yield Imported(name, revision, protocol, known.collection, known.name, taken)


def _model(path: Path) -> tuple[str, str]:
    """From `model_meta.json`, else from the names of the folders."""
    fallback = path.parent.parent.name.replace("__", "/"), path.parent.name
    try:
        meta: Any = msgspec.json.decode((path.parent / "model_meta.json").read_bytes())
        return str(meta["name"] or fallback[0]), str(meta["revision"] or fallback[1])
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return fallback


def ledger_text(results: Iterable[Imported], *, source: str, title: str, url: str = "", date: str = "") -> str:
    """The results as a ledger file: a `[[source]]` for each set of tasks that models share."""
    rows: dict[tuple[str, str, str, str], dict[str, Mapping[str, float]]] = {}
    for one in results:
        of_model = rows.setdefault((one.model, one.revision, one.protocol, one.collection), {})
        if one.task in of_model:
            raise DataError(f"{one.model}@{one.revision} has two results on {one.collection}/{one.task}")
        of_model[one.task] = one.measures
    several = [name for name, _ in {(model, revision) for model, revision, *_ in rows}]
    grouped: dict[Group, dict[str, Scores]] = {}
    for (model, revision, protocol, collection), tasks in rows.items():
        shown = model if several.count(model) == 1 else f"{model}@{revision}"
        ordered = tuple(e.name for e in entries(collection) if e.name in tasks)
        grouped.setdefault((protocol, collection, ordered), {})[shown] = tasks
    facts = {"title": title, "url": url, "date": date}
    return "\n".join(
        line
        for number, (group, systems) in enumerate(grouped.items(), start=1)
        for line in _source(source if len(grouped) == 1 else f"{source}-{number}", facts, group, systems)
    )


def _source(name: str, facts: Mapping[str, str], group: Group, systems: Mapping[str, Scores]) -> Iterator[str]:
    protocol, collection, tasks = group
    queries = {e.name: e.queries for e in entries(collection)}
    shared = {"protocol": protocol, "collection": collection, "measured": False, "scale": 1, "tasks": list(tasks)}
    yield "[[source]]"
    for key, value in {"id": name, **facts, **shared, "queries": [queries[t] for t in tasks]}.items():
        yield f"{key} = {_toml(value)}"
    short = {c.source: c.name for c in cards() if not c.variant}
    for system, scores in systems.items():
        yield f"\n[source.systems.{_toml(short.get(system, system))}]"
        if system in short:
            yield f"label = {_toml(system)}"
        yield 'kind = "retriever"'
        for measure in scores[tasks[0]]:
            if all(measure in scores[t] for t in tasks):
                yield f"{measure} = {_toml([scores[t][measure] for t in tasks])}"
    yield "\n"


def _toml(value: object) -> str:
    """A value as TOML writes it: as JSON does, but that characters are never pairs of surrogates."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
