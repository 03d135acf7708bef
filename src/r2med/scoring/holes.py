"""Documents without a judgment: how many a system shows, how far its score could move, and the pool to judge them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ..core import NO_DOCUMENT, DataError, IdTable, Judgment, Qrels, Run, Task, UsageError
from ..core.files import write_bytes
from .evaluation import score
from .measures import MAIN, UNJUDGED, Float64, Measure, grades_along, place_in_query

DEPTH = 10
MOST_LABELLINGS = 2_000  # that are gone through for one system: ten holes with up to four grades
COLUMNS = ("task", "query_id", "doc_id", "grade", "best_rank", "systems", "query", "passage", "judge")


class Hole(NamedTuple):
    """A retrieved document without a judgment."""

    query: int  # by its position in the judgments
    rank: int  # from 0
    doc_id: str


def unjudged(run: Run, qrels: Qrels, depth: int = DEPTH) -> list[Hole]:
    """The documents in the top `depth` that have no judgment for their query."""
    if depth < 1:
        raise UsageError(f"a depth of {depth} shows nothing")
    top = run.top(depth)
    return [
        Hole(query, rank, top.doc_ids[int(top.docs[row, rank])])
        for query, row, grades in grades_along(top, qrels)
        for rank in np.flatnonzero(grades == UNJUDGED).tolist()
    ]


def condensed(run: Run, qrels: Qrels) -> Run:
    """The run without documents that nobody judged, and without queries that nobody judged: condensed lists."""
    ranked = run.for_queries(IdTable(q for q in run.query_ids if q in qrels.query_ids))
    docs, scores = np.full_like(ranked.docs, NO_DOCUMENT), np.full_like(ranked.scores, -np.inf)
    for _, row, grades in grades_along(ranked, qrels):
        kept = np.flatnonzero(grades >= -1)
        docs[row, : len(kept)], scores[row, : len(kept)] = ranked.docs[row, kept], ranked.scores[row, kept]
    return Run(ranked.query_ids, ranked.doc_ids, docs, scores, name=run.name, notes=run.notes)


def hole_shares(run: Run, qrels: Qrels, depth: int = DEPTH) -> Float64:
    """The share of each query's top `depth` that has no judgment; 0 where nothing was retrieved."""
    counts = np.bincount([hole.query for hole in unjudged(run, qrels, depth)], minlength=len(qrels.query_ids))
    shown = run.top(depth).for_queries(qrels.query_ids).lengths()
    return np.divide(counts, shown, out=np.zeros(len(shown)), where=shown > 0)


def with_labels(qrels: Qrels, labels: Iterable[tuple[int, str, int]]) -> Qrels:
    """The judgments, and one for each given query position, document and grade."""
    added = list(labels)
    names = [doc_id for _, doc_id, _ in added]
    table = IdTable(dict.fromkeys((*qrels.doc_ids, *names)))
    known = np.repeat(np.arange(len(qrels.query_ids)), np.diff(qrels.indptr))
    rows = np.concatenate((known, np.array([query for query, _, _ in added], dtype=np.int64)))
    docs = np.concatenate((table.positions(qrels.doc_ids)[qrels.docs], table.positions(names)))
    grades = np.concatenate((qrels.grades, np.array([grade for _, _, grade in added], dtype=np.int32)))
    order = np.argsort(rows, kind="stable")
    sizes = np.bincount(rows, minlength=len(qrels.query_ids))
    indptr = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    return Qrels(qrels.query_ids, table, indptr, docs[order].astype(np.int32), grades[order].astype(np.int32))


class ScoreBounds(NamedTuple):
    """The least and the most each query could score, and the score as judged."""

    low: Float64
    judged: Float64
    high: Float64


def score_bounds(
    run: Run, qrels: Qrels, measure: Measure = MAIN, *, depth: int = DEPTH, pool: Collection[tuple[int, str]] = ()
) -> ScoreBounds:
    """The range of a measure over every way to label the pool: each document with 0 or a grade that the judgments use.

    The pool is the holes in the run's own top `depth` and those of other systems: pairs of query position and document.
    "All relevant" is not the most: each new relevant document also makes the ideal ranking longer. So the least is
    with all documents at the highest grade that the run does not show, the most with all of them irrelevant. Of the
    same grades for the documents that it shows, the best order has the higher ones above and the worst below, so going
    through the grades in these two orders finds both ends.
    """
    if measure.family in ("bpref", "judged"):
        raise UsageError(f"{measure} looks at judged documents only: holes are for measures that count others as wrong")
    looked_at = run if measure.cutoff is None else run.top(measure.cutoff)
    inside = {(hole.query, hole.doc_id) for hole in unjudged(run, qrels, depth)} | set(pool)
    own = [hole for hole in unjudged(looked_at, qrels, max(looked_at.depth, 1)) if (hole.query, hole.doc_id) in inside]
    elsewhere = inside - {(hole.query, hole.doc_id) for hole in own}
    query = np.array([hole.query for hole in own], dtype=np.int64)
    counts = np.bincount(query, minlength=len(qrels.query_ids))
    from_top = place_in_query(query, len(counts))
    from_bottom = counts[query] - 1 - from_top
    levels = _levels(qrels, measure)
    unseen = [(*pair, levels[0]) for pair in sorted(elsewhere)]
    judged = score(looked_at, qrels, [measure]).per_query[measure]
    low, high = judged, judged
    for grades in _falling(levels, int(counts.max(initial=0))):
        for place, others in ((from_top, []), (from_bottom, unseen)):
            labels = [(hole.query, hole.doc_id, grades[at]) for hole, at in zip(own, place.tolist(), strict=True)]
            scored = score(looked_at, with_labels(qrels, labels + others), [measure]).per_query[measure]
            low, high = np.minimum(low, scored), np.maximum(high, scored)
    return ScoreBounds(low, judged, high)


def _levels(qrels: Qrels, measure: Measure) -> list[int]:
    """The grades of relevant documents to try, highest first; one where a measure only asks who is relevant."""
    used = sorted({1, *qrels.grades[qrels.grades > 0].tolist()}, reverse=True)
    return used if measure.family == "ndcg" else [max(used[0], _least_relevant(measure))]


def _least_relevant(measure: Measure) -> int:
    """The least grade of a document that a measure calls relevant."""
    threshold = dict(measure.parameters).get("rel", 1)
    assert isinstance(threshold, int)
    return threshold


def _falling(levels: Sequence[int], length: int) -> Iterator[tuple[int, ...]]:
    """Every falling sequence of grades and 0; where there are too many, those with one grade beside 0."""
    if math.comb(length + len(levels), length) <= MOST_LABELLINGS:
        yield from combinations_with_replacement((*levels, 0), length)
        return
    for level in levels:
        yield from combinations_with_replacement((level, 0), length)


class HoleReport(msgspec.Struct, frozen=True, kw_only=True):
    """One system on one task: its holes, its score as judged, the range, and where that puts it among the others.

    The range is over labellings of the pool of all systems' holes. `if_relevant` is the score if every hole of every
    system were relevant, with the least grade that the measure calls so; ranks are by score, 1 the best.
    """

    system: str
    holes: float
    judged: float
    low: float
    high: float
    if_relevant: float
    rank: int
    rank_if_relevant: int
    best_rank: int
    worst_rank: int


def hole_report(
    runs: Mapping[str, Run], qrels: Qrels, measure: Measure = MAIN, *, depth: int = DEPTH
) -> list[HoleReport]:
    """How the unjudged documents could change the order of systems."""
    pairs = {(hole.query, hole.doc_id) for run in runs.values() for hole in unjudged(run, qrels, depth)}
    pooled = with_labels(qrels, [(*pair, _least_relevant(measure)) for pair in sorted(pairs)])
    bounds = [score_bounds(run, qrels, measure, depth=depth, pool=pairs) for run in runs.values()]
    low, judged, high = np.array([[side.mean() for side in of_run] for of_run in bounds]).T
    relevant = np.array([score(run, pooled, [measure]).mean(measure) for run in runs.values()])
    return [
        HoleReport(
            system=name,
            holes=float(hole_shares(run, qrels, depth).mean()),
            judged=float(judged[i]),
            low=float(low[i]),
            high=float(high[i]),
            if_relevant=float(relevant[i]),
            rank=1 + _above(judged, judged[i]),
            rank_if_relevant=1 + _above(relevant, relevant[i]),
            best_rank=1 + _above(low, high[i]),
            worst_rank=len(runs) - _above(-high, -low[i]),
        )
        for i, (name, run) in enumerate(runs.items())
    ]


def _above(scores: Float64, score: float) -> int:
    return int((scores > score + 1e-12).sum())


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
    judge: str = ""  # Who gave the grade, where it was not a person.


def build_pool(
    runs: Mapping[str, Run], qrels: Qrels, *, depth: int = DEPTH, task: Task | None = None, name: str = ""
) -> list[PoolEntry]:
    """The holes of all systems, each once: by query, those that most systems show first.

    With a task, the texts are filled in.
    """
    pool: dict[tuple[int, str], PoolEntry] = {}
    title = name or (task.full_name if task is not None else "")
    for system, run in runs.items():
        for query, rank, doc_id in unjudged(run, qrels, depth):
            new = PoolEntry(task=title, query_id=qrels.query_ids[query], doc_id=doc_id, best_rank=rank + 1)
            entry = pool.setdefault((query, doc_id), new)
            entry.systems.append(system)
            entry.best_rank = min(entry.best_rank, rank + 1)
    if task is not None:
        for entry in pool.values():
            question, document = task.query(entry.query_id), task.documents.get(entry.doc_id)
            entry.query = question.text if question is not None else ""
            entry.passage = document.contents if document is not None else ""
    order = sorted(pool, key=lambda key: (key[0], -len(pool[key].systems), pool[key].best_rank, key[1]))
    return [pool[key] for key in order]


def write_pool(pool: Iterable[PoolEntry], path: str | Path) -> int:
    """Write `.tsv` or `.jsonl`, by the name's ending; gives the number of entries."""
    path = Path(path)
    check_pool_name(path)
    table = path.suffix == ".tsv"
    lines = [_tsv(entry) if table else msgspec.json.encode(entry) for entry in pool]
    heading = ["\t".join(COLUMNS).encode()] if table else []
    write_bytes(path, b"".join(line + b"\n" for line in heading + lines))
    return len(lines)


def check_pool_name(path: Path) -> None:
    """A pool is written in one of two formats."""
    if path.suffix not in (".tsv", ".jsonl"):
        raise UsageError(f"{path}: a pool is a .tsv or a .jsonl file")


def _tsv(entry: PoolEntry) -> bytes:
    for identifier in (entry.task, entry.query_id, entry.doc_id):
        if identifier.split("\t") != [identifier] or len(identifier.splitlines()) > 1:
            raise DataError(f"id {identifier!r} cannot stand in a table; write a .jsonl file")
    cells = msgspec.structs.asdict(entry) | {
        "grade": "" if entry.grade is None else entry.grade,
        "systems": ", ".join(entry.systems),
        "query": " ".join(entry.query.split()),
        "passage": " ".join(entry.passage.split()),
    }
    return "\t".join(str(cells[column]) for column in COLUMNS).encode()


def read_labels(path: str | Path) -> list[tuple[str, Judgment]]:
    """The grades that were filled in, with their task; entries without one are left out, two for one pair refused."""
    labels: dict[tuple[str, str, str], int] = {}
    for entry in read_pool(path):
        if entry.grade is None:
            continue
        grade = labels.setdefault((entry.task, entry.query_id, entry.doc_id), entry.grade)
        if grade != entry.grade:
            pair = f"{entry.doc_id!r} for query {entry.query_id!r} of {entry.task}"
            raise DataError(f"holds two grades of {pair}: {grade} and {entry.grade}", path=path)
    return [(task, Judgment(query_id, doc_id, grade)) for (task, query_id, doc_id), grade in labels.items()]


def read_pool(path: str | Path) -> list[PoolEntry]:
    """All entries of a pool."""
    path, entries = Path(path), []
    table = path.suffix != ".jsonl"
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None
    if table and lines[0].rstrip(b"\r").split(b"\t")[:4] != [column.encode() for column in COLUMNS[:4]]:
        raise DataError(f"a pool starts with the columns {', '.join(COLUMNS[:4])}", path=path, line=1)
    for number, line in enumerate(lines[table:], start=1 + table):
        if not line.strip():
            continue
        try:
            record = _tsv_record(line) if table else msgspec.json.decode(line)
            entries.append(msgspec.convert(record, PoolEntry, strict=not table))
        except (ValueError, RecursionError) as error:
            raise DataError(f"not a pool entry ({error})", path=path, line=number) from None
    return entries


def _tsv_record(line: bytes) -> dict[str, object]:
    """The cells of a line that are filled in; a table that was edited by hand may have lost its later columns."""
    cells = line.decode().rstrip("\r").split("\t")
    if len(cells) < 4:
        raise ValueError(f"expected at least 4 columns, got {len(cells)}")
    filled = {column: cell for column, cell in zip(COLUMNS, cells, strict=False) if cell.strip()}
    if not filled.get("best_rank", "").isdecimal():
        filled.pop("best_rank", None)
    return filled | {"systems": [name for name in filled.get("systems", "").split(", ") if name]}
