"""Runs and judgments in TREC's text form."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .columns import SPACE, IdTable, Int32, Int64
from .compression import write_packed
from .errors import DataError
from .files import atomic_file
from .run import Run
from .stores import open_path, whole_lines
from .task import Judgment

try:
    from .. import _fast
except ImportError:  # the C extensions were not built
    _fast = None  # type: ignore[assignment]


def read_run(path: str | Path, *, doc_ids: IdTable | None = None, query_ids: Iterable[str] = ()) -> Run:
    """A TREC run (`query Q0 document rank score tag`), plain or compressed.

    Order follows the scores, as in trec_eval; the rank column is not looked at. TREC has no line for a query without
    hits: those of `query_ids` are in the run all the same, and a file without any line is then no error.
    """
    with open_path(Path(path)) as stream:
        return parse_run(whole_lines(stream), path, doc_ids=doc_ids, query_ids=query_ids)


def parse_run(
    pieces: Iterable[bytes], path: str | Path, *, doc_ids: IdTable | None = None, query_ids: Iterable[str] = ()
) -> Run:
    """A TREC run from pieces of whole lines; `path` is named in messages."""
    read = _Columns(query_ids)
    for piece in pieces:
        if b"\0" in piece or not read.take(piece):
            for number, line in enumerate(piece.split(b"\n"), start=read.lines + 1):
                _check_line(line, path, number)
        read.lines += piece.count(b"\n")
    if not read.queries:
        raise DataError("holds no rankings", path=path)
    try:
        return read.run(doc_ids)
    except DataError as error:
        raise DataError(error.message, path=path) from None


class _Columns:
    """The columns of a run, taken in many lines at a time; ids as numbers in the order in which they first stand."""

    def __init__(self, query_ids: Iterable[str]) -> None:
        named = dict.fromkeys(query_ids)
        self.queries: dict[bytes, int] = {query_id.encode(): number for number, query_id in enumerate(named)}
        self.lines = 0
        self._documents: dict[bytes, int] = {}
        self._parts: list[tuple[Int32, Int32, npt.NDArray[np.float64]]] = []
        self._tag = "run"

    def take(self, lines: bytes) -> bool:
        """Take in some whole lines; False where one of them is no line of a run."""
        if _fast is not None and (columns := _fast.run_columns(lines, self.queries, self._documents)):
            queries, documents = (np.frombuffer(column, dtype=np.int32) for column in columns[:2])
            self._parts.append((queries, documents, np.frombuffer(columns[2], dtype=np.float64)))
            self._tag = columns[3].decode() or self._tag
            return True
        return self._take_slowly(lines)

    def _take_slowly(self, lines: bytes) -> bool:
        words = _words_of_lines(lines)
        if not ((words == 6) | (words == 0)).all():
            return False
        fields = lines.split()
        try:
            scores = np.array(list(map(_score, fields[4::6])), dtype=np.float64)
            queries, documents = _numbered(fields[::6], self.queries), _numbered(fields[2::6], self._documents)
            tags = [tag.decode() for tag in dict.fromkeys(fields[:4:-6])]
        except ValueError:  # which a mistake in UTF-8 is too
            return False
        self._tag = next(iter(tags), self._tag)
        self._parts.append((queries, documents, scores))
        return not bool(np.isnan(scores).any())

    def run(self, doc_ids: IdTable | None) -> Run:
        """All of it as a run."""
        empty = (np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32), np.zeros(0))
        queries, documents, scores = (np.concatenate(column) for column in zip(empty, *self._parts, strict=True))
        asked, found = (IdTable(name.decode() for name in known) for known in (self.queries, self._documents))
        return Run.from_columns(asked, found, queries, documents, scores, doc_ids=doc_ids, name=self._tag)


def _score(field: bytes) -> float:
    """A score as trec_eval reads it; Python would take 1_0 for ten."""
    if b"_" in field:
        raise ValueError
    return float(field)


def _words_of_lines(lines: bytes) -> Int64:
    """How many words each line holds."""
    data = np.frombuffer(lines, dtype=np.uint8)
    inside = ~SPACE[data]
    ends = inside & ~np.append(inside[1:], False)
    breaks = np.append(np.flatnonzero(data == ord("\n")), len(data))
    return np.diff(np.searchsorted(np.flatnonzero(ends), breaks), prepend=0)


def _numbered(column: list[bytes], known: dict[bytes, int]) -> Int32:
    """Ids as numbers; one that is not known yet gets the next."""
    for name in dict.fromkeys(column):
        if name not in known:
            name.decode()
            known[name] = len(known)
    return np.fromiter(map(known.__getitem__, column), dtype=np.int32, count=len(column))


def _check_line(line: bytes, path: str | Path, number: int) -> None:
    """Say what is wrong with a line, if anything is."""
    fields = line.split()
    if not fields:
        return
    if len(fields) != 6:
        raise DataError(f"expected 6 columns, got {len(fields)}", path=path, line=number)
    try:
        score = _score(fields[4])
    except ValueError:
        score = math.nan
    if math.isnan(score):
        raise DataError(f"score {fields[4].decode(errors='replace')!r} is not a number", path=path, line=number)
    if b"\0" in line:
        raise DataError("holds a NUL character", path=path, line=number)
    try:
        b" ".join((fields[0], fields[2], fields[5])).decode()
    except UnicodeDecodeError:
        raise DataError("is not valid UTF-8", path=path, line=number) from None


def write_run(run: Run, path: str | Path) -> None:
    """Write a TREC run; compressed where the name ends in `.gz` or `.zst`, with the same bytes every time."""
    _write(path, run_lines(run))


def _write(path: str | Path, lines: Iterable[bytes]) -> None:
    with atomic_file(Path(path)) as stream:
        write_packed(stream, lines, suffix=Path(path).suffix)


def run_lines(run: Run) -> Iterator[bytes]:
    """The lines of each query, best document first."""
    tag = "-".join(run.name.split()) or "r2med"
    tokens: dict[int, str] = {}
    for row, query_id in enumerate(run.query_ids):
        buffer, query = io.StringIO(), _token(query_id)
        docs, scores = run.docs[row].tolist(), run.scores[row].tolist()
        for rank, (doc, score) in enumerate(zip(docs, scores, strict=True), start=1):
            if doc >= 0:
                if doc not in tokens:
                    tokens[doc] = _token(run.doc_ids[doc])
                buffer.write(f"{query} Q0 {tokens[doc]} {rank} {score:.9g} {tag}\n")
        yield buffer.getvalue().encode()


def _token(identifier: str) -> str:
    if not identifier or identifier.split() != [identifier]:
        raise DataError(f"id {identifier!r} holds white space, which TREC files cannot carry")
    return identifier


def write_qrels(qrels: Iterable[Judgment], path: str | Path) -> None:
    """Write TREC judgments; compressed where the name ends in `.gz` or `.zst`."""
    _write(path, (f"{_token(q)} 0 {_token(d)} {g}\n".encode() for q, d, g in qrels))
