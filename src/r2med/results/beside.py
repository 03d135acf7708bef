"""The files beside a result: per-query scores as arrays, and what queries were expanded to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np

from ..core import DataError, ResultError
from ..core.places import open_regular
from ..scoring.hits import Float64
from .schema import TaskResult

RUN, QUERIES, EXPANSIONS = ".run.gz", ".queries.jsonl", ".expansions.jsonl"
CHUNK = 1 << 24


class ScoreColumns(NamedTuple):
    """Per-query scores of one result: a row per measure, a column per query, in the order of the file."""

    query_ids: tuple[str, ...]
    values: Float64

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        return int(self.values.nbytes) + 64 * len(self.query_ids)


def read_scores(path: Path, result: TaskResult, measures: tuple[str, ...]) -> ScoreColumns:
    """The per-query scores beside a result; they must be those that were stored, and add up to its means.

    A measure that the result lacks is a row of NaN.
    """
    place = f"{result.system.name} on {result.task.full_name}"
    digest, ids, rows = hashlib.blake2b(digest_size=16), list[str](), list[tuple[float, ...]]()
    decoder = msgspec.json.Decoder(_line_type(measures))
    try:
        with open_regular(path) as stream:
            for lines in _whole_lines(stream):
                digest.update(lines)
                for line in decoder.decode_lines(lines):
                    ids.append(line.query_id)
                    rows.append(msgspec.structs.astuple(line.measures))
    except FileNotFoundError:
        raise ResultError(f"{place}: there are no per-query scores; run it again") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ResultError(f"{place}: the per-query scores cannot be read ({error}); run it again") from None
    expected = result.files.get(QUERIES, "")
    if expected and digest.hexdigest() != expected:
        raise ResultError(f"{place}: the per-query scores were changed after they were written; run it again")
    values = np.array(rows, dtype=np.float64).reshape(len(ids), len(measures)).T
    means = values.mean(axis=1) if ids else np.full(len(measures), np.nan)
    stored = np.array([result.measures.get(key, np.nan) for key in measures])
    if len(ids) != result.task.queries or not (np.isnan(stored) | (np.abs(means - stored) < 1e-9)).all():
        raise ResultError(f"{place}: the per-query scores do not add up to the stored score; run it again")
    return ScoreColumns(_shared(tuple(ids)), np.ascontiguousarray(values))


@lru_cache(maxsize=64)
def _line_type(measures: tuple[str, ...]) -> Any:
    """A line with these measures only; the others are skipped, not decoded."""
    scores = msgspec.defstruct("Scores", [(key, float, float("nan")) for key in measures], frozen=True)
    return msgspec.defstruct("Line", [("query_id", str), ("measures", scores)], frozen=True)


@lru_cache(maxsize=64)
def _shared(ids: tuple[str, ...]) -> tuple[str, ...]:
    """One tuple for all systems that were scored on the same queries."""
    return ids


def _whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    """A file in pieces that end with a line."""
    rest = b""
    while piece := stream.read(CHUNK):
        head, newline, rest = (rest + piece).rpartition(b"\n")
        if newline:
            yield head + newline
    if rest:
        yield rest


class Expansion(msgspec.Struct, frozen=True, kw_only=True):
    """The texts made from one query: a line of `<task>.expansions.jsonl`."""

    query_id: str
    texts: list[str] = []
    statuses: list[str] = []
    reasoning: list[str] = []
    searches: list[str] = []


def read_expansion(path: Path, query_id: str, *, expected: str = "") -> Expansion | None:
    """What one query was expanded to; None where nothing was kept for it. `expected`: the hash of the file."""
    digest, wanted, found = hashlib.blake2b(digest_size=16), msgspec.json.encode(query_id), None
    try:
        with open_regular(path) as stream:
            for line in stream:
                digest.update(line)
                if found is None and wanted in line:
                    candidate = msgspec.json.decode(line, type=Expansion)
                    found = candidate if candidate.query_id == query_id else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read ({error})", path=path) from None
    if expected and digest.hexdigest() != expected:
        raise DataError("was changed after it was written; run it again", path=path)
    return found
