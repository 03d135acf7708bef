"""A pool for labelling: the unjudged documents that systems show, as a file, and the labels read back from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from ..core import DataError, Judgment, Qrels, Run, Task, UsageError
from ..core.atomic import atomic_file
from .holes import DEPTH, unjudged

COLUMNS = ("task", "query_id", "doc_id", "grade", "best_rank", "systems", "query", "passage", "judge")


class PoolEntry(msgspec.Struct, kw_only=True):
    """One document to judge for one query; `grade` stays empty until somebody fills it in."""

    task: str
    query_id: str
    doc_id: str
    grade: int | None = None
    best_rank: int = 1
    systems: list[str] = []
    query: str = ""
    passage: str = ""
    judge: str = ""
    # Who gave the grade, where it was not a person.


def build_pool(
    runs: Mapping[str, Run], qrels: Qrels, *, depth: int = DEPTH, task: Task | None = None, name: str = ""
) -> list[PoolEntry]:
    """The holes of all systems, each once: by query, those that most systems show first.

    With the task at hand, the texts come along.
    """
    pool: dict[tuple[int, str], PoolEntry] = {}
    title = name or (task.full_name if task is not None else "")
    for system, run in runs.items():
        holes = unjudged(run, qrels, depth)
        for row, rank, doc in zip(holes.row.tolist(), holes.rank.tolist(), holes.doc.tolist(), strict=True):
            key = (row, holes.doc_ids[doc])
            entry = pool.get(key)
            if entry is None:
                entry = pool[key] = PoolEntry(
                    task=title, query_id=qrels.query_ids[row], doc_id=key[1], best_rank=rank + 1
                )
            entry.systems.append(system)
            entry.best_rank = min(entry.best_rank, rank + 1)
    if task is not None:
        for entry in pool.values():
            query, document = task.query(entry.query_id), task.documents.get(entry.doc_id)
            entry.query = query.text if query is not None else ""
            entry.passage = document.contents if document is not None else ""
    order = sorted(pool, key=lambda key: (key[0], -len(pool[key].systems), pool[key].best_rank, key[1]))
    return [pool[key] for key in order]


def write_pool(pool: Iterable[PoolEntry], path: str | Path) -> int:
    """Write `.tsv` or `.jsonl`, by the name's ending; says how many lines."""
    path, number = Path(path), 0
    check_pool_name(path)
    with atomic_file(path) as stream:
        if path.suffix == ".tsv":
            stream.write("\t".join(COLUMNS).encode() + b"\n")
        for entry in pool:
            stream.write((_tsv(entry) if path.suffix == ".tsv" else msgspec.json.encode(entry)) + b"\n")
            number += 1
    return number


def check_pool_name(path: Path) -> None:
    """A pool is written in one of two formats."""
    if path.suffix not in (".tsv", ".jsonl"):
        raise UsageError(f"{path}: a pool is a .tsv or a .jsonl file")


def _tsv(entry: PoolEntry) -> bytes:
    for identifier in (entry.task, entry.query_id, entry.doc_id):
        if identifier.split("\t") != [identifier] or len(identifier.splitlines()) > 1:
            raise DataError(f"id {identifier!r} cannot stand in a table; write a .jsonl file")
    cells = (
        entry.task, entry.query_id, entry.doc_id, "" if entry.grade is None else str(entry.grade),
        str(entry.best_rank), ", ".join(entry.systems), " ".join(entry.query.split()), " ".join(entry.passage.split()),
        entry.judge,
    )  # fmt: skip
    return "\t".join(cells).encode()


def read_labels(path: str | Path) -> list[tuple[str, Judgment]]:
    """The labels that were filled in, with their task; lines without a grade are still open and left out."""
    return [
        (entry.task, Judgment(entry.query_id, entry.doc_id, entry.grade))
        for entry in read_pool(path)
        if entry.grade is not None
    ]


def read_pool(path: str | Path) -> list[PoolEntry]:
    """A pool with all its lines."""
    path = Path(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None
    return list(_jsonl_rows(lines, path) if path.suffix == ".jsonl" else _tsv_rows(lines, path))


def _jsonl_rows(lines: list[bytes], path: Path) -> Iterator[PoolEntry]:
    decode = msgspec.json.Decoder(PoolEntry).decode
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield decode(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"not a pool entry ({error})", path=path, line=number) from None


def _tsv_rows(lines: list[bytes], path: Path) -> Iterator[PoolEntry]:
    if lines[0].rstrip(b"\r").split(b"\t")[:4] != [c.encode() for c in COLUMNS[:4]]:
        raise DataError(f"a pool starts with the columns {', '.join(COLUMNS[:4])}", path=path, line=1)
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        try:
            cells = line.rstrip(b"\r").decode().split("\t")
        except UnicodeDecodeError:
            raise DataError("is not valid UTF-8", path=path, line=number) from None
        if len(cells) < 4:
            raise DataError(f"expected at least 4 columns, got {len(cells)}", path=path, line=number)
        grade = cells[3].strip()
        if grade and not grade.lstrip("-").isdecimal():
            raise DataError(f"grade {grade!r} is not a whole number", path=path, line=number)
        more = dict(zip(COLUMNS[4:], cells[4:], strict=False))  # a table that went through hands may have lost some
        rank = more.get("best_rank", "").strip()
        yield PoolEntry(
            task=cells[0], query_id=cells[1], doc_id=cells[2], grade=int(grade) if grade else None,
            best_rank=int(rank) if rank.isdecimal() else 1,
            systems=[name for name in more.get("systems", "").split(", ") if name],
            query=more.get("query", ""), passage=more.get("passage", ""), judge=more.get("judge", ""),
        )  # fmt: skip
