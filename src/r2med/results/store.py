"""Results on disk: `<system>/<collection>/<task>.json`, `.run.gz`, `.queries.jsonl`; this is the only writer.

The JSON is written last and read first: where it stands, the files beside it are whole. It holds a checksum of itself
and the hashes of those files, and every reader checks them. Names of files are made from the names inside the JSON;
readers take names from the JSON only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from ..core import IdTable, ResultError, Run, fingerprint
from ..core.files import atomic_file, exists, open_regular, write_bytes
from ..core.untrusted import file_name, inside
from ..scoring import Evaluation
from .beside import (
    BESIDE,
    EXPANSIONS,
    GENERATIONS,
    QUERIES,
    RUN,
    UsedGenerations,
    open_run,
    read_scores,
    read_used,
    write_blocks,
)
from .protocols import MAIN_PROTOCOL
from .schema import MICRO, SCHEMA, QueryScores, TaskResult

T = TypeVar("T")
OWN = "own"  # Folder of tasks that belong to no collection.
LARGEST = 8 << 20  # Bytes of a result file; ours have some thousand.
FIRST_EDITIONS = {("mini", "1"): "mini@1"}
"""Collection and revision of results that were made before a collection was made anew, and what it is called now."""


R2MED_TASKS = (
    *("Biology", "Bioinformatics", "Medical-Sciences", "MedXpertQA-Exam", "MedQA-Diag"),
    *("PMC-Treatment", "PMC-Clinical", "IIYi-Clinical"),
)
KNOWN_NAMES = frozenset((*R2MED_TASKS, *MAIN_PROTOCOL))
"""Collections and tasks of the catalogue and the ledger, which are filed under their plain names.

They stand here because reading the ledger takes longer than all else that finding a result takes.
"""


def collection_slug(collection: str) -> str:
    """A collection in folders, options and addresses: `own` stands for tasks that belong to none, and only for them."""
    return f"{collection}~" if collection.rstrip("~") == OWN else collection or OWN


def stored_names(name: str) -> tuple[str, str]:
    """What a collection, a task or a system is called on disk: today, and by the first edition."""
    return file_name(name, known=KNOWN_NAMES), slug(name)


def slug(name: str) -> str:
    """A file name of the first edition; different names can share one."""
    return re.sub(r"[^A-Za-z0-9._+@=,~-]", "_", name).lstrip(".") or "_"


class ResultStore:
    """A results folder."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def path(self, system: str, collection: str, task: str) -> Path:
        """Where a result's JSON lies; no other result has this place."""
        return self.places(system, collection, task)[0]

    def places(self, system: str, collection: str, task: str) -> tuple[Path, Path]:
        """Where the JSON of a result belongs, and where the first edition put it."""
        names = [stored_names(name) for name in (system, collection_slug(collection), task)]
        if (earlier := _before(collection)) is not None:
            names[1] = (names[1][0], earlier)
        now, before = (inside(self.root, f"{'/'.join(edition)}.json", "result") for edition in zip(*names, strict=True))
        return now, before

    def find(self, system: str, collection: str, task: str) -> TaskResult | None:
        """The result of a system on a task, also where the first edition put it."""
        for path in dict.fromkeys(self.places(system, collection, task)):
            if exists(path) and read_key(path) == (system, collection, task):
                return read_result(path)
        return None

    def write(
        self,
        result: TaskResult,
        run: Run,
        evaluation: Evaluation,
        *,
        expansions: Iterable[object] | None = None,
        generations: Iterable[UsedGenerations] = (),
    ) -> Path:
        """Write a result with its run, its per-query scores, its queries' expansions, and which stored answers it used.

        The result gets the hashes of these files and its checksum.
        """
        path = self._begin(result)
        result.files = {RUN: write_blocks(run, path.with_suffix(RUN))}
        result.files[QUERIES] = _write_lines(path.with_suffix(QUERIES), _query_lines(evaluation))
        for suffix, items in ((EXPANSIONS, expansions), (GENERATIONS, list(generations) or None)):
            if items is not None:
                lines = (msgspec.json.encode(item) + b"\n" for item in items)
                result.files[suffix] = _write_lines(path.with_suffix(suffix), lines)
        write_bytes(path, indented_json(sealed(result)))
        return path

    def put(self, result: TaskResult, beside: Mapping[str, bytes]) -> Path:
        """Write a result that was made elsewhere, with the files beside it as they are."""
        path = self._begin(result)
        for suffix in BESIDE:
            if suffix in beside:
                write_bytes(path.with_suffix(suffix), beside[suffix])
        write_bytes(path, indented_json(result))
        return path

    def _begin(self, result: TaskResult) -> Path:
        """The place of a result, cleared: an old one must not stand beside a new run, were we stopped in between."""
        key = (result.system.name, result.task.collection, result.task.name)
        path = self.path(*key)
        self._make_room(path, key)
        for suffix in (".json", EXPANSIONS, GENERATIONS):
            path.with_suffix(suffix).unlink(missing_ok=True)
        return path

    def _make_room(self, path: Path, key: Key) -> None:
        """A result on an earlier edition of the task moves to where results of that edition belong."""
        try:
            held = read_key(path) if exists(path) else key
        except ResultError:
            return  # damaged, and about to be replaced
        if held != key and not exists(self.path(*held)):
            new = self.path(*held)
            new.parent.mkdir(parents=True, exist_ok=True)
            for suffix in (*BESIDE, ".json"):  # the JSON last: where it stands, the others do
                if exists(path.with_suffix(suffix)):
                    path.with_suffix(suffix).replace(new.with_suffix(suffix))

    def run(self, result: TaskResult) -> Run:
        """The stored run of a result, queries without hits included."""
        return load_run(self._place(result), result)

    def generations(self, result: TaskResult) -> list[UsedGenerations]:
        """The stored answers of chat models that a result was made from."""
        if GENERATIONS not in result.files:
            return []
        return read_used(self._place(result).with_suffix(GENERATIONS), expected=result.files[GENERATIONS])

    def lost(self, result: TaskResult) -> str:
        """A file that belongs beside a result and is not there; empty where all are."""
        path = self._place(result)
        beside = (path.with_suffix(suffix) for suffix in result.files)
        return next((file.name for file in beside if not exists(file)), "")

    def _place(self, result: TaskResult) -> Path:
        """Where a stored result lies: in its own place, or where the first edition put it."""
        now, before = self.places(result.system.name, result.task.collection, result.task.name)
        return now if exists(now) or not exists(before) else before

    def __iter__(self) -> Iterator[TaskResult]:
        from .index import ResultIndex

        return iter([stored.result for stored in ResultIndex([self.root]).all()])


Key = tuple[str, str, str]  # System, collection and task: there is one result of each.


def read_key(path: Path) -> Key:
    """What a result file is about; its checksum is not looked at."""
    head = _convert(path, _facts(path), _Head)
    return head.system.name, _collection(head.task.collection, head.task.revision), head.task.name


def _collection(collection: str, revision: str) -> str:
    """The collection that a result belongs to.

    Every task of the catalogue has a revision. A result without one was made on a folder that is called like a
    collection, and does not belong beside what is published on that collection.
    """
    if collection in MAIN_PROTOCOL and not revision:
        return f"{collection}~"
    return FIRST_EDITIONS.get((collection, revision), collection)


def _before(collection: str) -> str | None:
    """The collection that results of this one may lie under as well, from when they were not told apart."""
    if collection.endswith("~") and collection[:-1] in MAIN_PROTOCOL:
        return collection[:-1]
    return next((old for (old, _), new in FIRST_EDITIONS.items() if new == collection), None)


class _System(msgspec.Struct):
    name: str


class _Task(_System):
    collection: str
    revision: str = ""


class _Head(msgspec.Struct):
    schema: int
    system: _System
    task: _Task


def read_result(path: Path) -> TaskResult:
    """One result file, whole and unchanged; any other is refused, with what to do about it."""
    facts = _facts(path)
    result = _convert(path, facts, TaskResult)
    if not result.checksum:
        raise ResultError(f"{path}: has no checksum, so its scores cannot be trusted; remove it or use --overwrite")
    if result.checksum != _checksum(facts):
        raise ResultError(f"{path}: was changed after it was written; remove it or use --overwrite")
    result.task.collection = _collection(result.task.collection, result.task.revision)
    return result


def _convert(path: Path, facts: dict[str, object], kind: type[T]) -> T:
    if "schema" in facts and facts["schema"] != SCHEMA:
        raise ResultError(
            f"{path}: written in results schema {facts['schema']}, this r2med reads schema {SCHEMA}; "
            f"use another folder (--results) or --overwrite"
        )
    try:
        return msgspec.convert(facts, kind)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path}: not a result file ({error}); remove it or use --overwrite") from None


def _facts(path: Path) -> dict[str, object]:
    try:
        with open_regular(path) as stream:
            data = stream.read(LARGEST + 1)
    except OSError as error:
        raise ResultError(f"{path}: cannot be read ({error.strerror or error})") from None
    if len(data) > LARGEST:
        raise ResultError(f"{path}: more than {LARGEST >> 20} MiB are too many for a result file")
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path}: not a result file ({error}); remove it or use --overwrite") from None


def load_run(path: Path, result: TaskResult, doc_ids: IdTable | None = None) -> Run:
    """The whole run beside a result file, compared with its hashes; with `doc_ids`, over that table of documents."""
    stored, scored = open_run(path.with_suffix(RUN), expected=result.files.get(RUN, "")), path.with_suffix(QUERIES)
    query_ids = read_scores(scored, result, ()).query_ids if scored.exists() else ()
    return stored.whole(doc_ids=doc_ids, query_ids=query_ids).renamed(result.system.name)


def indented_json(value: object) -> bytes:
    """A value as the JSON that people may read, such as a result file."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def content_hash(data: bytes) -> str:
    """The hash by which a result knows a file beside it, the run excepted."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def sealed(result: TaskResult) -> TaskResult:
    """A result with the checksum of what it holds now."""
    result.checksum = checksum(result)
    return result


def checksum(result: TaskResult) -> str:
    """The checksum that belongs to a result, whatever it carries."""
    return _checksum(msgspec.json.decode(msgspec.json.encode(result)))  # as it will be read


def _checksum(facts: dict[str, object]) -> str:
    """Of everything that stands in the file, so that a field of another edition counts too."""
    return fingerprint("stored-result", {key: value for key, value in facts.items() if key != "checksum"})


def _query_lines(evaluation: Evaluation) -> Iterator[bytes]:
    encode = msgspec.json.Encoder().encode
    columns = {key: values.tolist() for key, values in evaluation.per_query.by_key().items()}
    for i, query_id in enumerate(evaluation.query_ids):
        scores = {key: values[i] for key, values in columns.items()}
        yield encode(QueryScores(query_id=query_id, measures=scores)) + b"\n"


def _write_lines(path: Path, lines: Iterable[bytes]) -> str:
    """Write a file and return the hash of its bytes."""
    digest = hashlib.blake2b(digest_size=16)
    with atomic_file(path) as stream:
        for line in lines:
            digest.update(line)
            stream.write(line)
    return digest.hexdigest()


def macro_average(per_task: list[dict[str, float]]) -> dict[str, float]:
    """Mean over tasks of each measure."""
    return {key: float(np.mean([m[key] for m in per_task])) for key in per_task[0]} if per_task else {}


def query_weighted(per_task: list[tuple[int, dict[str, float]]]) -> dict[str, float]:
    """Mean over queries of each measure; those that count judgments have none."""
    total = sum(n for n, _ in per_task)
    keys = [key for key in per_task[0][1] if not key.startswith(MICRO)] if total else []
    return {key: float(sum(n * m[key] for n, m in per_task) / total) for key in keys}
