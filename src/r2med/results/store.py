"""Results on disk: `<system>/<collection>/<task>.json`, `.run.gz`, `.queries.jsonl`.

The JSON is written last and read first: where it stands, the other two are whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from ..core import ResultError, Run, fingerprint
from ..core.atomic import atomic_file
from ..core.trec import read_run, write_run
from ..scoring import Evaluation
from .schema import SCHEMA, QueryScores, TaskResult

OWN = "own"  # collection folder of tasks that belong to no collection


class ResultStore:
    """A results folder."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def path(self, system: str, collection: str, task: str) -> Path:
        """Where a result's JSON lies."""
        return self.root / slug(system) / slug(collection or OWN) / f"{slug(task)}.json"

    def read(self, path: Path) -> TaskResult | None:
        """One result, or None where there is none; another schema is refused, not guessed at."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ResultError(f"{path}: cannot be read ({error.strerror or error})") from None
        try:
            schema = msgspec.json.decode(data, type=_SchemaOnly).schema
            if schema != SCHEMA:
                raise ResultError(
                    f"{path}: written in results schema {schema}, this r2med reads schema {SCHEMA}; "
                    f"use another folder (--results) or --overwrite"
                )
            result = msgspec.json.decode(data, type=TaskResult)
        except (ValueError, RecursionError) as error:
            raise ResultError(f"{path}: not a result file ({error}); remove it or use --overwrite") from None
        if result.checksum and result.checksum != checksum(result):
            raise ResultError(f"{path}: was changed after it was written; remove it or use --overwrite")
        return result

    def write(
        self, result: TaskResult, run: Run, evaluation: Evaluation, *, expansions: Iterable[object] | None = None
    ) -> Path:
        """Write a result with its run, its per-query scores and the texts its queries were expanded to."""
        path = self.path(result.system.name, result.task.collection, result.task.name)
        path.unlink(missing_ok=True)  # an old result must not stand beside a new run, were we stopped in between
        write_run(run, path.with_suffix(".run.gz"))
        with atomic_file(path.with_suffix(".queries.jsonl")) as stream:
            encode, columns = msgspec.json.Encoder().encode, evaluation.per_query.by_key()
            for i, query_id in enumerate(evaluation.query_ids):
                scores = {key: float(values[i]) for key, values in columns.items()}
                stream.write(encode(QueryScores(query_id=query_id, measures=scores)) + b"\n")
        if expansions is not None:
            with atomic_file(path.with_suffix(".expansions.jsonl")) as stream:
                stream.writelines(msgspec.json.encode(item) + b"\n" for item in expansions)
        stored = msgspec.json.decode(msgspec.json.encode(result), type=TaskResult)  # as it will be read
        stored.checksum = checksum(stored)
        with atomic_file(path) as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n")
        return path

    def run(self, result: TaskResult) -> Run:
        """The stored run of a result, queries without hits included."""
        path = self._beside(result, ".run.gz")
        return read_run(path, query_ids=self._query_ids(result)).renamed(result.system.name)

    def per_query(self, result: TaskResult, measure: str) -> dict[str, float]:
        """One measure of each query."""
        with self._beside(result, ".queries.jsonl").open("rb") as lines:
            decode = msgspec.json.Decoder(QueryScores).decode
            return {scores.query_id: scores.measures[measure] for scores in map(decode, lines)}

    def _query_ids(self, result: TaskResult) -> list[str]:
        """The queries that were scored; none where the table of them is not beside the result."""
        path, decode = self._beside(result, ".queries.jsonl"), msgspec.json.Decoder(_QueryOnly).decode
        try:
            with path.open("rb") as lines:
                return [decode(line).query_id for line in lines]
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise ResultError(f"{path}: the per-query scores cannot be read ({error}); run it again") from None

    def _beside(self, result: TaskResult, suffix: str) -> Path:
        return self.path(result.system.name, result.task.collection, result.task.name).with_suffix(suffix)

    def __iter__(self) -> Iterator[TaskResult]:
        for path in sorted(self.root.glob("*/*/*.json")):
            if (result := self.read(path)) is not None:
                yield result


class _SchemaOnly(msgspec.Struct):
    schema: int


class _QueryOnly(msgspec.Struct):
    query_id: str


def checksum(result: TaskResult) -> str:
    """Fingerprint of everything in a result but the fingerprint itself."""
    facts = msgspec.to_builtins(result)
    del facts["checksum"]
    return fingerprint("stored-result", facts)


def slug(name: str) -> str:
    """A name as a file name that every system takes and no path escapes through."""
    safe = re.sub(r"[^A-Za-z0-9._+@=,~-]", "_", name).lstrip(".")
    if not safe:
        raise ResultError(f"{name!r} cannot be a file name")
    return safe


def macro_average(per_task: list[dict[str, float]]) -> dict[str, float]:
    """Mean over tasks of each measure."""
    return {key: float(np.mean([m[key] for m in per_task])) for key in per_task[0]} if per_task else {}


def query_weighted(per_task: list[tuple[int, dict[str, float]]]) -> dict[str, float]:
    """Mean over queries of each measure."""
    total = sum(n for n, _ in per_task)
    if not total:
        return {}
    return {key: float(sum(n * m[key] for n, m in per_task) / total) for key in per_task[0][1]}
