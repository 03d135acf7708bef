"""A run: for each query, documents in order with their scores; and runs and judgments in TREC's text form."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from .budget import Account
from .columns import SPACE, IdTable, Int32, Int64
from .errors import DataError, UsageError
from .files import atomic_file
from .stores import open_path, refuse_mark, whole_lines, write_packed

if TYPE_CHECKING:
    from .task import Judgment

try:
    from .. import _fast
except ImportError:  # the C extensions were not built
    _fast = None  # type: ignore[assignment]

Float32 = npt.NDArray[np.float32]
NO_DOCUMENT = -1
MOST_CELLS = 1 << 29  # Queries × depth, of eight bytes each.


class Hit(NamedTuple):
    """One retrieved document."""

    doc_id: str
    score: float


class Run:
    """Rankings as two matrices (queries × depth).

    `docs` holds positions in `doc_ids`, `scores` their float32 scores; rows shorter than the depth are filled up with
    `NO_DOCUMENT` and minus infinity. Rows are put in trec_eval's order when a run is made, whoever made it: by score
    descending, equal scores by document id descending.
    """

    def __init__(
        self,
        query_ids: IdTable,
        doc_ids: IdTable,
        docs: Int32,
        scores: Float32,
        *,
        name: str = "r2med",
        notes: dict[str, object] | None = None,
        reused: Account | None = None,
    ) -> None:
        if docs.shape != scores.shape or docs.shape[0] != len(query_ids):
            raise UsageError(f"a run of {len(query_ids)} queries cannot hold matrices {docs.shape} and {scores.shape}")
        self.query_ids = query_ids
        self.doc_ids = doc_ids
        self.docs, self.scores = _in_order(docs, scores, doc_ids)
        self.name = name
        self.notes: dict[str, object] = notes if notes is not None else {}
        self.reused: Account = reused or {}
        """What whoever made it took from the cache; of a copy, nothing."""

    @classmethod
    def from_rankings(
        cls,
        rankings: Mapping[str, Sequence[Hit | tuple[str, float]]],
        *,
        doc_ids: IdTable | None = None,
        name: str = "r2med",
    ) -> Run:
        """Build from lists of (document id, score); they are sorted here, whatever order they come in."""
        hits = [hit for of_query in rankings.values() for hit in of_query]
        documents = IdTable(dict.fromkeys(hit[0] for hit in hits))
        queries = np.repeat(np.arange(len(rankings), dtype=np.int32), [len(of_query) for of_query in rankings.values()])
        scores = np.fromiter((hit[1] for hit in hits), dtype=np.float64, count=len(hits))
        positions = documents.positions(hit[0] for hit in hits)
        return cls.from_columns(IdTable(rankings), documents, queries, positions, scores, doc_ids=doc_ids, name=name)

    @classmethod
    def from_columns(
        cls,
        query_ids: IdTable,
        documents: IdTable,
        queries: Int32,
        docs: Int32,
        scores: npt.NDArray[np.float64],
        *,
        doc_ids: IdTable | None = None,
        name: str = "r2med",
    ) -> Run:
        """Build from a query, a document and a score for each hit, in any order; `doc_ids` is the run's own table."""
        lengths = np.bincount(queries, minlength=len(query_ids))
        order = np.argsort(queries, kind="stable")
        row = queries[order]
        column = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        shape = (len(query_ids), int(lengths.max(initial=0)))
        if shape[0] * shape[1] > MOST_CELLS:
            raise DataError(f"a run of {shape[0]:,} queries and {shape[1]:,} documents each is too large for memory")
        matrix, values = np.full(shape, NO_DOCUMENT, dtype=np.int32), np.full(shape, -np.inf, dtype=np.float32)
        known = np.arange(len(documents), dtype=np.int32) if doc_ids is None else doc_ids.positions(documents)
        if (lost := known[docs[order]] < 0).any():
            first = int(np.flatnonzero(lost)[0])
            place, unknown = int(row[first]), int(docs[order][first])
            raise DataError(f"query {query_ids[place]!r} retrieves unknown document {documents[unknown]!r}")
        if (bad := np.isnan(scores[order])).any():
            place = int(row[int(np.flatnonzero(bad)[0])])
            raise DataError(f"query {query_ids[place]!r} has a score that is not a number")
        matrix[row, column] = known[docs[order]]
        with np.errstate(over="ignore"):  # beyond float32 is infinite, as in trec_eval
            values[row, column] = scores[order]
        run = cls(query_ids, documents if doc_ids is None else doc_ids, matrix, values, name=name)
        run.check_unique()
        return run

    @property
    def depth(self) -> int:
        """Number of columns: the longest ranking it can hold."""
        return int(self.docs.shape[1])

    def __len__(self) -> int:
        return len(self.query_ids)

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {len(self)} queries × {self.depth})"

    def _repr_html_(self) -> str:
        """For notebooks: the first documents of the first queries."""
        from .table import Table

        rows = []
        for query_id, hits in self.top(3).for_queries(IdTable(self.query_ids[:3])):
            rows += [[query_id if not i else "", h.doc_id, str(i + 1), f"{h.score:.4f}"] for i, h in enumerate(hits)]
        caption = f"{len(self):,} queries, up to {self.depth:,} documents each"
        return Table(["Query", "Document", "Rank", "Score"], rows, caption, 2, self.name).html()

    def lengths(self) -> npt.NDArray[np.int64]:
        """How many documents each query retrieved."""
        return np.asarray((self.docs >= 0).sum(axis=1), dtype=np.int64)

    def of(self, query_id: str) -> list[Hit]:
        """The ranking of one query; empty for an unknown one."""
        row = self.query_ids.position(query_id)
        return [] if row < 0 else self.row(row)

    def row(self, row: int) -> list[Hit]:
        """The ranking of the query at position `row`."""
        docs, scores = self.docs[row].tolist(), self.scores[row].tolist()
        return [Hit(self.doc_ids[d], s) for d, s in zip(docs, scores, strict=True) if d >= 0]

    def __iter__(self) -> Iterator[tuple[str, list[Hit]]]:
        for i, query_id in enumerate(self.query_ids):
            yield query_id, self.row(i)

    def top(self, depth: int) -> Run:
        """The same rankings cut at `depth`."""
        return Run(
            self.query_ids, self.doc_ids, self.docs[:, :depth], self.scores[:, :depth], name=self.name, notes=self.notes
        )

    def renamed(self, name: str) -> Run:
        """The same rankings under another name."""
        return Run(self.query_ids, self.doc_ids, self.docs, self.scores, name=name, notes=self.notes)

    def check_unique(self) -> None:
        """Refuse a ranking that names a document twice."""
        ordered = np.sort(self.docs, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        if twice.any():
            row, column = (int(v[0]) for v in np.nonzero(twice))
            raise DataError(
                f"query {self.query_ids[row]!r} retrieves document {self.doc_ids[int(ordered[row, column])]!r} twice"
            )

    def on(self, doc_ids: IdTable, *, query_ids: Iterable[str] | None = None) -> Run:
        """The same rankings over another document table; a document it does not know is an error."""
        mapping = np.append(doc_ids.positions(self.doc_ids), np.int32(NO_DOCUMENT))
        docs = mapping[self.docs]
        lost = (docs < 0) & (self.docs >= 0)
        if lost.any():
            row, column = (int(v[0]) for v in np.nonzero(lost))
            raise DataError(
                f"query {self.query_ids[row]!r} retrieves "
                f"unknown document {self.doc_ids[int(self.docs[row, column])]!r}"
            )
        run = Run(self.query_ids, doc_ids, docs, self.scores, name=self.name, notes=self.notes)
        return run if query_ids is None else run.for_queries(IdTable(query_ids))

    def for_queries(self, query_ids: IdTable) -> Run:
        """The rankings of `query_ids` in that order; a query this run does not hold gets an empty row."""
        rows = self.query_ids.positions(query_ids)
        known = rows >= 0
        docs = np.full((len(rows), self.depth), NO_DOCUMENT, dtype=np.int32)
        scores = np.full(docs.shape, -np.inf, dtype=np.float32)
        docs[known], scores[known] = self.docs[rows[known]], self.scores[rows[known]]
        return Run(query_ids, self.doc_ids, docs, scores, name=self.name, notes=self.notes)


def _in_order(docs: Int32, scores: Float32, doc_ids: IdTable) -> tuple[Int32, Float32]:
    """Rows in trec_eval's order; nothing is copied where they are in it already."""
    if (np.isnan(scores) & (docs >= 0)).any():
        raise DataError("a run has a score that is not a number")
    before, after = scores[:, :-1], scores[:, 1:]
    tied = (before == after) & (docs[:, 1:] >= 0)
    falling = (before > after) | (docs[:, 1:] < 0)
    empty_last = not ((docs[:, :-1] < 0) & (docs[:, 1:] >= 0)).any()
    if empty_last and (falling | tied).all() and not tied.any():
        return docs, scores
    ties = np.append(doc_ids.tie_rank, np.int32(len(doc_ids)))[docs]
    if empty_last and (falling | (tied & (ties[:, :-1] < ties[:, 1:]))).all():
        return docs, scores
    order = np.lexsort((ties, -np.where(docs < 0, -np.inf, scores)), axis=1)
    return np.take_along_axis(docs, order, axis=1), np.take_along_axis(scores, order, axis=1)


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
        if not read.lines:
            refuse_mark(piece, path)
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
