"""Runs and judgments in TREC's text form."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from .atomic import atomic_file
from .columns import IdTable
from .compression import write_packed
from .errors import DataError
from .qrels import Judgment
from .run import Hit, Run
from .stores import open_path


def read_run(path: str | Path, *, doc_ids: IdTable | None = None, query_ids: Iterable[str] = ()) -> Run:
    """A TREC run (`query Q0 document rank score tag`), plain or compressed.

    Order follows the scores, as in trec_eval; the rank column is not looked at. TREC has no line for a query without
    hits: those of `query_ids` are in the run all the same, and a file without any line is then no error.
    """
    path, tag = Path(path), "run"
    rankings: dict[str, list[Hit]] = {query_id: [] for query_id in query_ids}
    with open_path(path) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.isspace():
                query_id, hit, tag = _run_line(line, path, number)
                rankings.setdefault(query_id, []).append(hit)
    if not rankings:
        raise DataError("holds no rankings", path=path)
    try:
        return Run.from_rankings(rankings, doc_ids=doc_ids, name=tag)
    except DataError as error:
        raise DataError(error.message, path=path) from None


def _run_line(line: bytes, path: Path, number: int) -> tuple[str, Hit, str]:
    fields = line.split()
    if len(fields) != 6:
        raise DataError(f"expected 6 columns, got {len(fields)}", path=path, line=number)
    try:
        score = float(fields[4])
    except ValueError:
        score = math.nan
    if math.isnan(score):
        raise DataError(f"score {fields[4].decode(errors='replace')!r} is not a number", path=path, line=number)
    if b"\0" in line:
        raise DataError("holds a NUL character", path=path, line=number)
    try:
        return fields[0].decode(), Hit(fields[2].decode(), score), fields[5].decode()
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
