"""Stored runs, opened fast: a run is unpacked once, and a query's list is read when somebody looks at it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ....core import DataError, R2MedError
from ....core.stores import FolderStore, open_stream
from ....core.trec import read_run
from .shelf import Entry, Shelf, inside

TOP = 10
BUDGET = 96 << 20  # bytes of unpacked runs kept


class Hit(NamedTuple):
    """One place of a ranking."""

    rank: int
    doc_id: str
    score: float


class Ranked(NamedTuple):
    """One query's list: all documents in order, and the scores of the first ones."""

    docs: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()


class Ranking:
    """One run as this package writes it: the lines of a query together, best first."""

    def __init__(self, path: Path, depth: int) -> None:
        self._path = path
        self.depth = depth
        with open_stream(FolderStore(path.parent), path.name) as stream:
            self._data = b"\n" + stream.read()
        self._known: OrderedDict[str, Ranked] = OrderedDict()
        self._whole: dict[str, Ranked] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return len(self._data)

    def of(self, query_id: str) -> Ranked:
        """The list of a query; empty where the run has none."""
        if self._whole is not None:
            return self._whole.get(query_id, Ranked())
        known = self._known.get(query_id)
        if known is None:
            known = self._read(query_id)
            if known is None:
                self._whole = self._read_by_score()
                return self._whole.get(query_id, Ranked())
            self._known[query_id] = known
            if len(self._known) > 8:
                self._known.popitem(last=False)
        return known

    def top(self, query_id: str, most: int = TOP) -> list[Hit]:
        """The first places of a query."""
        found = self.of(query_id)
        return [Hit(i, d, s) for i, (d, s) in enumerate(zip(found.docs[:most], found.scores[:most], strict=False), 1)]

    def ranks(self, query_id: str, doc_ids: list[str]) -> list[int | None]:
        """The rank of each document, None where it is not in the list."""
        docs = self.of(query_id).docs
        places = {doc_id: rank for rank, doc_id in enumerate(docs, 1)}
        return [places.get(doc_id) for doc_id in doc_ids]

    def _read(self, query_id: str) -> Ranked | None:
        """The lines of one query; None where they are not in order, or not together."""
        name = query_id.encode()
        begin = self._data.find(b"\n" + name + b" ")
        if begin < 0:
            return None if b"\t" in self._data[:256] else Ranked()
        end = self._data.find(b"\n", self._data.rfind(b"\n" + name + b" ") + 1)
        tokens = self._data[begin : end if end >= 0 else None].split()
        if len(tokens) % 6 or set(tokens[0::6]) != {name}:
            return None
        try:
            scores = tuple(map(float, tokens[4::6]))
            docs = tuple(token.decode() for token in tokens[2::6])
        except ValueError:
            return None
        if any(not a >= b for a, b in pairwise(scores)):
            return None
        return Ranked(docs, scores[:TOP])

    def _read_by_score(self) -> dict[str, Ranked]:
        """The long way, through the scores: for a run that somebody else wrote or changed."""
        try:
            run = read_run(self._path)
        except R2MedError as error:
            raise DataError(f"this run cannot be read: {error}") from None
        self._data = b""
        found = {}
        for query_id, hits in run:
            found[query_id] = Ranked(tuple(h.doc_id for h in hits), tuple(h.score for h in hits[:TOP]))
        return found


class Rankings:
    """The runs behind a shelf, the latest used kept."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._kept: OrderedDict[Path, tuple[tuple[int, int], Ranking]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, entry: Entry) -> Ranking:
        """The run of a result; a run that cannot be read is an error that names it."""
        with self._lock:
            kept = self._kept.get(entry.path)
            if kept and kept[0] == entry.stamp:
                self._kept.move_to_end(entry.path)
                return kept[1]
            ranking = Ranking(self._path(entry), entry.result.depth)
            self._kept[entry.path] = (entry.stamp, ranking)
            while len(self._kept) > 1 and sum(r.nbytes for _, r in self._kept.values()) > BUDGET:
                self._kept.popitem(last=False)
            return ranking

    def _path(self, entry: Entry) -> Path:
        path = entry.path.with_suffix(".run.gz")
        if not path.is_file():
            raise DataError("there is no run beside this result", path=path)
        if not inside(path, self._shelf.roots):
            raise DataError("a link out of the results folder is not followed", path=path)
        return path
