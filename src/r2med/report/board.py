"""Which rows stand on the leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, get_args

from ..core import ResultError, UnknownName, UsageError
from ..results import ResultStore, TaskResult
from ..results.ledger import Figure, ledger
from ..results.ledger.figures import Kind
from ..results.protocols import get_protocol
from ..scoring import MAIN, Measure
from .leaderboard import MAIN_PROTOCOL, Row, measured_rows, published_rows, ranked
from .stored import task_names

ALL = "all"
LEDGER_KIND = {kind: kind for kind in get_args(Kind)} | {"expanded": "expansion", "reranked": "reranker"}
"""What the ledger calls a kind of ours; every other kind of ours is one of retriever."""


class Board(NamedTuple):
    """Ranked rows, the tasks they are about, and what a reader should know."""

    rows: list[Row]
    tasks: list[str]
    notes: list[str]


def board(
    folder: str | Path,
    *,
    collection: str = "",
    published: bool = False,
    measured: bool = False,
    protocol: str = "",
    source: str = "",
    kind: str = "",
    measure: Measure = MAIN,
    default_folder: bool = False,
) -> Board:
    """Collect and rank. A folder that nobody named may be missing; one that was named may not."""
    if published and measured:
        raise UsageError("--published and --measured exclude each other; leave both out to see both")
    ours = [] if published else _stored(folder, required=measured or not default_folder)
    where = collection or ("r2med" if published else _most_telling(ours))
    notes = [] if collection else _other_collections(ours, where)
    figures = [] if measured or not where else _figures(where, protocol, source, notes)
    here = [r for r in ours if r.task.collection == where]
    rows = published_rows(figures, measure) + measured_rows(ResultStore(folder), here, measure)
    if kind:
        known = sorted({r.kind for r in rows})
        rows = [r for r in rows if kind in (r.kind, LEDGER_KIND.get(r.kind, "retriever"))]
        if not rows:
            raise UnknownName("kind", kind, known, hint=f"(there are: {', '.join(known)})")
    if not any(row.tasks or row.macro is not None for row in rows):
        raise ResultError(f"nothing has {measure} on {where or 'folders of your own'} with these choices")
    present = list(dict.fromkeys(name.rpartition("/")[2] for row in rows for name in row.tasks))
    prefix = f"{where}/" if where else ""
    return Board(ranked(rows), [prefix + t for t in task_names(where, present)], notes)


def _stored(folder: str | Path, *, required: bool) -> list[TaskResult]:
    store = ResultStore(folder)
    if not store.root.is_dir():
        if required:
            raise ResultError(f"{store.root}: no such folder of results (r2med run makes one)")
        return []
    return list(store)


def _most_telling(results: list[TaskResult]) -> str:
    """The collection to show where none was named: the largest that has results."""
    present = {r.task.collection for r in results}
    named = next((c for c in ("r2med", "nano", "mini") if c in present), None)
    return named if named is not None else next(iter(present), "r2med")


def _other_collections(results: list[TaskResult], shown: str) -> list[str]:
    others = sorted({r.task.collection for r in results} - {shown, ""})
    return [f"there are results on {', '.join(others)} too (--collection)"] if others else []


def _figures(collection: str, protocol: str, source: str, notes: list[str]) -> list[Figure]:
    book = ledger()
    if source and source not in {s.id for s in book.sources}:
        known = [s.id for s in book.sources]
        raise UnknownName("source", source, known, hint=f"(known: {', '.join(known)})")
    if protocol and protocol != ALL:
        get_protocol(protocol)
    everything = book.select(collection=collection, source=source)
    wanted = protocol or (ALL if source else MAIN_PROTOCOL.get(collection, ALL))
    chosen = everything if wanted == ALL else [f for f in everything if f.protocol == wanted]
    if (left := len(everything) - len(chosen)) and not protocol:
        notes.append(f"{left} published figures were made under other protocols (--protocol {ALL} shows them)")
    return chosen
