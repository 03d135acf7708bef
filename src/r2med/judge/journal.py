"""What one judge wrote, in order: a file of JSON lines that only grows.

An entry is on disk before `save` returns. It names the entry it replaces, so that two windows of one judge, or two
clones of a project, cannot overwrite each other without anybody knowing: `save` refuses an entry that replaces
something older than what is there. An entry that is sent twice under the same id is kept once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

import msgspec

from ..cache.records import RecordFile, with_checksum
from ..core import DataError, UsageError

JudgeKind = Literal["person", "llm", "adjudicator"]
Slot = tuple[str, str]
"""What an entry is about: a query and a passage; a query alone (no passage); the whole project (neither)."""


class Conflict(UsageError):
    """An entry that replaces something older than what is there; `current` is what is there."""

    def __init__(self, current: Entry | None) -> None:
        super().__init__("this was changed elsewhere since it was shown")
        self.current = current


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing a judge wrote. A grade that is taken back is an entry without one."""

    id: str  # made by whoever writes it; sent twice, it counts once
    at: str  # UTC, ISO 8601
    query_id: str = ""
    doc_id: str = ""
    grade: int | None = None
    skipped: bool = False
    reason: str = ""
    support: str = ""  # the sentence of the passage that supports the grade
    note: str = ""
    answer: str = ""  # to the query, before any passage was seen
    finished: bool = False  # the judge is done, and may see what others gave
    seconds: float | None = None
    replaces: str = ""  # id of the entry of the same slot that was shown when this one was made
    details: dict[str, str] = {}  # of an LLM: the answer as it came, the prompt's fingerprint

    @property
    def slot(self) -> Slot:
        """What the entry is about."""
        return self.query_id, self.doc_id


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a journal: who judges. `spec` is the chat model's of an LLM."""

    project: str
    judge: str
    kind: JudgeKind
    spec: str = ""


class _FirstLine(msgspec.Struct, frozen=True):
    schema: int
    key: Header


class Journal(RecordFile[Entry]):
    """The entries of one judge; may be written from several threads and processes."""

    def __init__(self, path: Path, header: Header, *, read_only: bool = False) -> None:
        self.header = header
        self._latest: dict[Slot, Entry] = {}
        self._by_id: dict[str, Entry] = {}
        self.forks: set[Slot] = set()
        """Slots in which two entries replace the same one: clones of a project that were put together."""
        super().__init__(path, Entry, header, read_only=read_only)
        if self._file >= 0 and read_header(path) != header:
            self.close()
            raise DataError(f"is not the journal of {header.judge}, {header.kind}, in this project", path=path)

    def add(self, record: Entry) -> None:
        """Take in an entry of the file; of two that replace the same one the later counts."""
        if record.id in self._by_id:
            return
        self._by_id[record.id] = record
        current = self._latest.get(record.slot)
        if current is not None and record.replaces != current.id:
            self.forks.add(record.slot)
            if (record.at, record.id) < (current.at, current.id):
                return
        self._latest[record.slot] = record

    def save(self, entry: Entry) -> Entry:
        """Put an entry on disk, and give what now stands in its slot; `Conflict` where the slot has moved on."""
        with self._lock, self._exclusive():
            self.refresh()
            if (known := self._by_id.get(entry.id)) is not None:
                if known != msgspec.structs.replace(entry, at=known.at):
                    raise UsageError(f"two different entries have the id {entry.id!r}")
                self._flush()  # the one that was sent first may not have reached the disk
                return known
            current = self._latest.get(entry.slot)
            if entry.replaces != (current.id if current else ""):
                raise Conflict(current)
            self._write(with_checksum(entry))
            self.refresh()
            self._flush()
        return entry

    def _flush(self) -> None:
        self._written += 1
        self._sync(self._written)

    def current(self, query_id: str = "", doc_id: str = "") -> Entry | None:
        """What now stands in a slot."""
        return self._latest.get((query_id, doc_id))

    def holds(self, entry_id: str) -> bool:
        """Whether an entry of this id was ever saved."""
        return entry_id in self._by_id

    def entries(self) -> Iterator[Entry]:
        """What now stands in each slot, in the order in which slots were first written."""
        return iter(list(self._latest.values()))

    def grades(self) -> dict[Slot, int]:
        """The grades that stand."""
        return {slot: entry.grade for slot, entry in self._latest.items() if entry.grade is not None}

    @property
    def finished(self) -> bool:
        """Whether the judge said to be done."""
        return (said := self.current()) is not None and said.finished


def read_header(path: Path) -> Header:
    """Who wrote a journal."""
    try:
        with path.open("rb") as stream:
            return msgspec.json.decode(stream.readline(1 << 16), type=_FirstLine).key
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"is not a journal of judgments ({error})", path=path) from None


def now() -> str:
    """The present time, as entries carry it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
