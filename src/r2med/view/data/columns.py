"""Per-query scores of all systems: read once, kept as single precision."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...core.run import Float32
from ...scoring import Measure
from ...scoring.hits import Float64
from ...scoring.score_set import TaskScores
from .holdings import Holdings
from .shelf import Entry, Shelf, inside

MEASURES = tuple(
    Measure.parse(m)
    for m in ("nDCG@10", "nDCG@5", "nDCG@100", "AP@10", "RR@10", "P@10", "R@10", "R@100", "R@1000", "hit@1", "hit@10")
)
LARGEST = 256 << 20
_PLACE = {measure.key: i for i, measure in enumerate(MEASURES)}
_Scores = msgspec.defstruct("_Scores", [(m.key, float, float("nan")) for m in MEASURES], frozen=True)
_Line: Any = msgspec.defstruct("_Line", [("query_id", str), ("measures", _Scores)], frozen=True)


class Columns(NamedTuple):
    """One system on one task: a row per measure, a column per query."""

    query_ids: tuple[str, ...]
    values: Float32


class ScoreBook:
    """The per-query scores behind a shelf."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._known: dict[Path, tuple[tuple[int, int], Columns | None, str]] = {}
        self._ids: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def of(self, entry: Entry) -> Columns | None:
        """The scores of one result; None where they cannot be read, which `problem` then explains."""
        known = self._known.get(entry.path)
        if known is None or known[0] != entry.stamp:
            columns, problem = self._read(entry)
            known = (entry.stamp, columns, problem)
            with self._lock:
                self._known[entry.path] = known
        return known[1]

    def problem(self, entry: Entry) -> str:
        """Why there are no scores."""
        known = self._known.get(entry.path)
        return known[2] if known else ""

    def task(self, holdings: Holdings, task: str, measure: Measure) -> TaskScores | None:
        """Systems × queries of one task, in the order of `systems_on`; None where nothing can be read."""
        rows = [self.of(entry) for entry in self.entries(holdings, task, measure)]
        columns = [c for c in rows if c is not None]
        if not columns:
            return None
        matrix: Float64 = np.stack([c.values[_PLACE[measure.key]] for c in columns]).astype(np.float64)
        return TaskScores(task, columns[0].query_ids, matrix)

    def entries(self, holdings: Holdings, task: str, measure: Measure) -> list[Entry]:
        """The results of a task whose per-query scores can stand side by side: the same queries, the measure there."""
        found, queries = list[Entry](), None
        for of_system in holdings.systems.values():
            entry = of_system.get(task)
            columns = self.of(entry) if entry else None
            if entry and columns and not np.isnan(columns.values[_PLACE[measure.key]]).any():
                queries = queries or columns.query_ids
                if columns.query_ids == queries:
                    found.append(entry)
        return found

    def scores(self, entry: Entry, measure: Measure) -> dict[str, float]:
        """One result's scores by query; empty where they cannot be read."""
        columns = self.of(entry)
        if columns is None:
            return {}
        return dict(zip(columns.query_ids, columns.values[_PLACE[measure.key]].tolist(), strict=True))

    def _read(self, entry: Entry) -> tuple[Columns | None, str]:
        path = entry.path.with_suffix(".queries.jsonl")
        where = f"{entry.system} on {entry.result.task.full_name}"
        try:
            if not inside(path, self._shelf.roots) or path.stat().st_size > LARGEST:
                return None, f"{where}: the per-query scores lie elsewhere or are too large"
            lines = msgspec.json.Decoder(list[_Line]).decode(
                b"[" + path.read_bytes().strip().replace(b"\n", b",") + b"]"
            )
        except FileNotFoundError:
            return None, f"{where}: there are no per-query scores"
        except (OSError, ValueError, RecursionError) as error:
            return None, f"{where}: the per-query scores cannot be read ({error}); run it again"
        if len(lines) != entry.result.task.queries:
            return (
                None,
                f"{where}: {len(lines)} queries have scores, {entry.result.task.queries} were judged; run it again",
            )
        lines.sort(key=lambda line: line.query_id)
        ids = tuple(line.query_id for line in lines)
        values = np.array([msgspec.structs.astuple(line.measures) for line in lines], dtype=np.float32)
        with self._lock:
            return Columns(self._ids.setdefault(ids, ids), np.ascontiguousarray(values.T)), ""
