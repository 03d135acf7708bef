"""The files beside a result: its run, per-query scores as arrays, and what queries were expanded to.

`<task>.run.gz` is a TREC run, compressed in blocks: a gzip member holds the lines of some queries, queries are sorted
by id, and the header of each member says how long it is and what its text hashes to. Any tool unpacks it as one file.
Here blocks are found by their headers, a query's block by bisection, and only that block is unpacked. A run in one
piece, as the first edition or another tool wrote it, is read whole.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np

from ..core import DataError, Hasher, IdTable, ResultError, Run
from ..core.files import atomic_file, open_regular
from ..core.run import parse_run, read_run, run_lines
from ..core.stores import inflate, outgrown, whole_lines
from ..scoring.measures import Float64
from .schema import TaskResult

RUN, QUERIES, EXPANSIONS, GENERATIONS = ".run.gz", ".queries.jsonl", ".expansions.jsonl", ".generations.jsonl"
BESIDE = (RUN, QUERIES, EXPANSIONS, GENERATIONS)
BLOCK = 1 << 16  # Bytes of text after which a block is closed; it always holds whole queries.
RUN_EXPANSION, RUN_FLOOR = 50, 16 << 20
"""Times its size that a run may unpack to, and bytes that are always allowed; ours unpack to five times their size."""
_HEADER = struct.Struct("<4s6sH2sHI16s")
"""A gzip header: magic and flags, time and system, and one extra field that holds the block's length and hash."""
_MAGIC, _NO_TIME, _FIELD = b"\x1f\x8b\x08\x04", b"\0\0\0\0\0\xff", b"R2"
_TAIL = struct.Struct("<II")
AGAIN = "run it again with --overwrite"
_LINES_OF_A_QUERY = re.compile(rb"(\S+) [^\n]*\n(?:\1 [^\n]*\n)*")


class ScoreColumns(NamedTuple):
    """Per-query scores of one result: a row per measure, a column per query, in the order of the file."""

    query_ids: tuple[str, ...]
    values: Float64

    @property
    def nbytes(self) -> int:
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
            for lines in whole_lines(stream):
                digest.update(lines)
                for line in decoder.decode_lines(lines):
                    ids.append(line.query_id)
                    rows.append(msgspec.structs.astuple(line.measures))
    except FileNotFoundError:
        raise ResultError(f"{place}: there are no per-query scores; {AGAIN}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ResultError(f"{place}: the per-query scores cannot be read ({error}); {AGAIN}") from None
    expected = result.files.get(QUERIES, "")
    if expected and digest.hexdigest() != expected:
        raise ResultError(f"{place}: the per-query scores were changed after they were written; {AGAIN}")
    values = np.array(rows, dtype=np.float64).reshape(len(ids), len(measures)).T
    means = values.mean(axis=1) if ids else np.full(len(measures), np.nan)
    stored = np.array([result.measures.get(key, np.nan) for key in measures])
    if len(ids) != result.task.queries or not (np.isnan(stored) | (np.abs(means - stored) < 1e-9)).all():
        raise ResultError(f"{place}: the per-query scores do not add up to the stored score; {AGAIN}")
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
        raise _changed(path)
    return found


class UsedGenerations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answers of one generation store that a result was made from: a line of `<task>.generations.jsonl`."""

    method: str
    digest: str  # Of the store's key, by which the store finds its file.
    prompts: list[str]  # Hashes of the prompts that were answered.
    again: list[str] = []  # Marks of the answers among them that took the place of others.


def read_used(path: Path, *, expected: str = "") -> list[UsedGenerations]:
    """The generations that a result was made from; none where it asked no chat model. `expected`: the file's hash."""
    try:
        with open_regular(path) as stream:
            data = stream.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None
    if expected and hashlib.blake2b(data, digest_size=16).hexdigest() != expected:
        raise _changed(path)
    try:
        return msgspec.json.Decoder(UsedGenerations).decode_lines(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"cannot be read ({error})", path=path) from None


class Ranking(NamedTuple):
    """One query's documents, best first, with their scores."""

    docs: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()

    def ranks(self, doc_ids: list[str]) -> list[int | None]:
        """The rank of each document, None where it is not in the list."""
        places = {doc_id: rank for rank, doc_id in enumerate(self.docs, 1)}
        return [places.get(doc_id) for doc_id in doc_ids]


def write_blocks(run: Run, path: Path) -> str:
    """Write a run in blocks, with the same bytes every time; returns the hash of all block headers."""
    hasher = Hasher("run blocks")
    with atomic_file(path) as stream:
        for text in _texts(run):
            digest = hashlib.blake2b(text, digest_size=16).digest()
            packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
            body = packer.compress(text) + packer.flush() + _TAIL.pack(zlib.crc32(text), len(text) & 0xFFFFFFFF)
            size = _HEADER.size + len(body)
            stream.write(_HEADER.pack(_MAGIC, _NO_TIME, 24, _FIELD, 20, size, digest) + body)
            hasher.data(size.to_bytes(8, "little") + digest)
    return hasher.digest()


def _texts(run: Run) -> Iterator[bytes]:
    """The lines of a run, queries sorted by id, in pieces of whole queries."""
    pending, written = bytearray(), False
    for lines in run_lines(run.for_queries(IdTable(sorted(run.query_ids)))):
        pending += lines
        if len(pending) >= BLOCK:
            yield bytes(pending)
            pending.clear()
            written = True
    if pending or not written:  # an empty run has one empty block, so that it is a gzip file all the same
        yield bytes(pending)


def open_run(path: Path, *, expected: str = "") -> StoredRun:
    """Open a stored run. `expected`: the hash that its result file states."""
    with _open(path) as stream:
        head = stream.read(_HEADER.size)
    if head[:4] == _MAGIC and head[12:14] == _FIELD:
        return RunBlocks(path, expected)
    if expected:
        raise _changed(path)
    return WholeRun(path)


class WholeRun:
    """A run as the first edition or another tool wrote it: read at once, without hashes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._run = read_run(path)

    @property
    def nbytes(self) -> int:
        return self._run.docs.nbytes + self._run.scores.nbytes

    def of(self, query_id: str) -> Ranking:
        hits = self._run.of(query_id)
        return Ranking(tuple(hit.doc_id for hit in hits), tuple(hit.score for hit in hits))

    def whole(self, *, doc_ids: IdTable | None = None, query_ids: Iterable[str] = ()) -> Run:
        """The whole run over a table of documents; `query_ids` are in it also without hits."""
        return read_run(self._path, doc_ids=doc_ids, query_ids=query_ids)


class RunBlocks:
    """A run in blocks; its headers must hash to `expected`, where that is known, and each block as its header says."""

    def __init__(self, path: Path, expected: str) -> None:
        self._path = path
        self._places: list[tuple[int, int, bytes]] = []  # offset, length and hash of each block
        self._last: tuple[int, bytes] = (-1, b"")  # the block unpacked last
        hasher, offset = Hasher("run blocks"), 0
        with _open(path) as stream:
            whole = os.fstat(stream.fileno()).st_size
            self._limit = max(RUN_FLOOR, RUN_EXPANSION * whole)
            while offset < whole:
                stream.seek(offset)
                data = stream.read(_HEADER.size).ljust(_HEADER.size, b"\0")
                magic, _, _, field, _, size, digest = _HEADER.unpack(data)
                if magic != _MAGIC or field != _FIELD or not _HEADER.size < size <= whole - offset:
                    raise _changed(path)
                hasher.data(size.to_bytes(8, "little") + digest)
                self._places.append((offset, size, digest))
                offset += size
        if expected and hasher.digest() != expected:
            raise _changed(path)

    @property
    def nbytes(self) -> int:
        return 100 * len(self._places) + 2 * BLOCK

    def of(self, query_id: str) -> Ranking:
        """The ranking of a query; empty where the run has none."""

        def first_query(block: int) -> bytes:
            return self.block(block, most=4096).partition(b" ")[0]

        name = query_id.encode()
        after = bisect_right(range(len(self._places)), name, key=first_query)
        text = b"\n" + self.block(after - 1) if after else b""
        found = _LINES_OF_A_QUERY.match(text, text.find(b"\n" + name + b" ") + 1)
        if found is None or found[1] != name:
            return Ranking()
        tokens = found[0].split()
        try:
            return Ranking(tuple(token.decode() for token in tokens[2::6]), tuple(map(float, tokens[4::6])))
        except ValueError:
            raise _changed(self._path) from None

    def block(self, number: int, *, most: int = 0) -> bytes:
        """The text of a block, checked against its hash; with `most`, only its beginning, unchecked."""
        last, text = self._last  # taken at once: another thread may unpack another block meanwhile
        if last == number:
            return text
        offset, size, digest = self._places[number]
        with _open(self._path) as stream:
            stream.seek(offset + _HEADER.size)
            packed = stream.read(size - _HEADER.size)
        try:
            text = inflate(packed, most or self._limit + 1, self._path)
        except DataError:
            raise _changed(self._path) from None
        if len(text) > self._limit:
            raise outgrown(self._limit, self._path)
        if most:
            return text
        ends_well = not text or text.endswith(b"\n")
        if hashlib.blake2b(text, digest_size=16).digest() != digest or not ends_well:
            raise _changed(self._path)
        self._last = (number, text)
        return text

    def whole(self, *, doc_ids: IdTable | None = None, query_ids: Iterable[str] = ()) -> Run:
        """The whole run over a table of documents, compared with its hashes."""
        return parse_run(self._pieces(), self._path, doc_ids=doc_ids, query_ids=query_ids)

    def _pieces(self) -> Iterator[bytes]:
        """The text in pieces of whole lines; more than is in proportion to the file is refused."""
        total = 0
        for number in range(len(self._places)):
            text = self.block(number)
            total += len(text)
            if total > self._limit:
                raise outgrown(self._limit, self._path)
            yield from whole_lines(io.BytesIO(text))


def _open(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise DataError("there is no run beside this result", path=path) from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None


def _changed(path: Path) -> DataError:
    return DataError(f"was changed after it was written; {AGAIN}", path=path)


StoredRun = RunBlocks | WholeRun  # read at the queries that are asked for
