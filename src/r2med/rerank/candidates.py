"""Candidates from anywhere: a stored run, a TREC file, R2MED's `topk_docs/*.jsonl`; checked against the task."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from ..core import NO_DOCUMENT, DataError, Hit, Run, Task
from ..core.stores import open_path
from ..core.trec import read_run

Unknown = Literal["refuse", "drop"]


class TopkLine(msgspec.Struct):
    """A line of `topk_docs/<task>.jsonl`: documents of a query, with scores or only in order."""

    id: str | int
    topk_pid: list[tuple[str | int, float] | str]


def load_candidates(path: str | Path, task: Task, *, unknown: Unknown = "refuse") -> Run:
    """Candidates from a TREC run or a JSON-lines file, plain or compressed, over the task's documents."""
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file", path=path)
    run = read_topk(path) if _is_json(path) else read_run(path)
    try:
        return on_task(run, task, unknown=unknown)
    except DataError as error:
        raise DataError(error.message, path=path) from None


def on_task(run: Run, task: Task, *, unknown: Unknown = "refuse") -> Run:
    """A run over exactly the task's queries and documents.

    Documents and queries the task does not know are an error that names the first, or are left out and counted in
    the notes under `candidates`. A query of the task without candidates keeps an empty list.
    """
    lost_queries = int((task.query_ids.positions(run.query_ids) < 0).sum())
    if lost_queries and unknown == "refuse":
        name = next(q for q in run.query_ids if q not in task.query_ids)
        raise DataError(f"has candidates for query {name!r}, which {task.full_name} does not hold")
    dropped = 0
    if run.doc_ids != task.documents.ids:
        if unknown == "drop":
            run, dropped = _known_only(run, task)
        else:
            run = run.on(task.documents.ids)
    if run.query_ids != task.query_ids:
        run = run.for_queries(task.query_ids)
    lengths = run.lengths()
    account: dict[str, object] = {
        "name": run.name,
        "queries_without": int((lengths == 0).sum()),
        "shortest": int(lengths.min(initial=run.depth)),
        "longest": int(lengths.max(initial=0)),
        "unknown_documents": dropped,
        "unknown_queries": lost_queries,
    }
    return Run(
        run.query_ids, run.doc_ids, run.docs, run.scores, name=run.name, notes={**run.notes, "candidates": account}
    )


def _known_only(run: Run, task: Task) -> tuple[Run, int]:
    """The run without documents the task does not hold; lists close up."""
    mapping = np.append(task.documents.ids.positions(run.doc_ids), np.int32(NO_DOCUMENT))
    docs = mapping[run.docs]
    dropped = int(((docs < 0) & (run.docs >= 0)).sum())
    order = np.argsort(docs < 0, axis=1, kind="stable")
    docs = np.take_along_axis(docs, order, axis=1)
    scores = np.where(docs < 0, np.float32(-np.inf), np.take_along_axis(run.scores, order, axis=1))
    return Run(run.query_ids, task.documents.ids, docs, scores, name=run.name, notes=run.notes), dropped


def read_topk(path: Path) -> Run:
    """R2MED's first-stage files: one JSON object a line with `id` and `topk_pid`, pairs of document and score."""
    decode = msgspec.json.Decoder(TopkLine, strict=False).decode
    rankings: dict[str, list[Hit]] = {}
    with open_path(path) as stream:
        for number, line in enumerate(stream, start=1):
            if line.isspace():
                continue
            try:
                record = decode(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f'expected {{"id", "topk_pid"}} ({error})', path=path, line=number) from None
            if str(record.id) in rankings:
                raise DataError(f"query {str(record.id)!r} stands twice", path=path, line=number)
            rankings[str(record.id)] = _hits(record)
    if not rankings:
        raise DataError("holds no candidates", path=path)
    try:
        return Run.from_rankings(rankings, name=path.name.split(".")[0])
    except DataError as error:
        raise DataError(error.message, path=path) from None


def _hits(record: TopkLine) -> list[Hit]:
    size = len(record.topk_pid)
    hits = []
    for i, entry in enumerate(record.topk_pid):
        if isinstance(entry, str):
            hits.append(Hit(entry, float(size - i)))
        else:
            doc_id, score = entry
            hits.append(Hit(str(doc_id), score))
    return hits


def _is_json(path: Path) -> bool:
    with open_path(path) as stream:
        for line in stream:
            if not line.isspace():
                return line.lstrip().startswith(b"{")
    raise DataError("is empty", path=path)
