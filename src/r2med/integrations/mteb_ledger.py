"""MTEB's result folders as a ledger file: published figures, which `r2med reproduce --ledger` compares with ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..core import DataError
from ..models import cards
from ..tasks import entries
from .mteb import our_measure, task_of


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
    name, revision = _model(path)
    ours = data.get("r2med")
    if isinstance(ours, dict) and isinstance(ours.get("system"), str):  # what `r2med export mteb` wrote
        yield Imported(ours["system"], revision, "default", *known, taken)
    else:
        yield Imported(name, revision, "mteb", *known, taken)


def _model(path: Path) -> tuple[str, str]:
    """From `model_meta.json`, else from the names of the folders."""
    fallback = path.parent.parent.name.replace("__", "/"), path.parent.name
    try:
        meta: Any = msgspec.json.decode((path.parent / "model_meta.json").read_bytes())
        return str(meta["name"] or fallback[0]), str(meta["revision"] or fallback[1])
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return fallback


Scores = Mapping[str, Mapping[str, float]]
"""Task to measure to value."""
Group = tuple[str, str, tuple[str, ...]]
"""Protocol, collection and tasks: what the systems of one `[[source]]` share."""


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
