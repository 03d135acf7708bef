"""Records as JSON lines: each on disk the moment it is there, so that nothing is ever paid for twice.

A record is one write under a lock, on disk before `append` returns. Processes that share a file see each other's
records and claim what they are working on; a claim ends with its process, however that ends. A line that a killed
process left half-written, or whose checksum does not fit, is skipped and counted.

A journal beside the file holds the calls that were sent, so that those whose answer a kill lost can be counted: they
may have been charged for.

    >1f6b0c3a9d2e44:0     sent: where the call is claimed, and the number of the answer asked for
    <1f6b0c3a9d2e44:0     came back, with an answer or an error

A line of it is one small write that nobody waits for: a kill loses none, and a machine that lost its power may lose the
last.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec

from ..core import ResultError
from ..core.portable import BINARY, lock, lock_byte, read_at, unlock, unlock_byte

SCHEMA = 1
BLOCK = 1 << 24
_CHECKSUM = re.compile(rb',"crc32":(\d{1,10})\}\s*\Z')
_CALL = re.compile(rb"([<>])([0-9a-f]{1,14}):(\d{1,9})")
Record = TypeVar("Record", bound=msgspec.Struct)
Place = tuple[str, str]  # what a claim is for: a query and its prompt


class RecordFile(ABC, Generic[Record]):
    """A file of records under a first line that says what they share; may be used from many threads.

    A subclass keeps the records it is handed by `add`.
    """

    def __init__(self, path: Path, record: type[Record], key: object, *, read_only: bool = False) -> None:
        """Open the file; `read_only` makes none and writes nothing, for a look at what is there."""
        self.path = path
        self.bad_lines = 0
        self._record = record
        self._read_to = 0
        self._tail = b""
        self._lock = threading.RLock()
        self._sync_lock = threading.Lock()
        self._written = self._synced = 0
        self._claimed: set[Place] = set()
        self._file = self._claims = -1
        try:
            if not read_only:
                self._open(header_line(key))
            elif path.exists():
                self._file = os.open(path, os.O_RDONLY | BINARY)
        except OSError as error:
            verb = "read" if read_only else "written"
            raise ResultError(f"{path}: cannot be {verb} ({error.strerror or error})") from None
        if self._file >= 0:
            self._check_schema()
            self.refresh()

    @abstractmethod
    def add(self, record: Record) -> None:
        """Take in a record of the file."""

    @property
    def torn(self) -> int:
        """Lines that could not be read: what a process left behind that was killed while writing."""
        return self.bad_lines + bool(self._tail.strip())

    @property
    def replaced(self) -> bool:
        """Whether the file lost its name since it was opened, as when a repository is brought up to date."""
        try:
            return not os.path.samestat(self.path.stat(), os.fstat(self._file))
        except OSError:
            return True

    def append(self, records: Iterable[Record]) -> None:
        """Put records on disk."""
        kept = list(records)
        if not kept:
            return
        with self._lock:
            with self._exclusive():
                self._write(b"".join(map(with_checksum, kept)))
            for record in kept:
                self.add(record)
            self._written += 1
            mine = self._written
        self._sync(mine)

    def refresh(self) -> None:
        """Read what other processes have written since."""
        with self._lock:
            if self._file < 0:
                return
            size = os.fstat(self._file).st_size
            if size < self._read_to:
                raise ResultError(f"{self.path}: became shorter while in use")
            while self._read_to < size:
                block = read_at(self._file, min(size - self._read_to, BLOCK), self._read_to)
                if not block:
                    break
                self._read_to += len(block)
                *lines, self._tail = (self._tail + block).split(b"\n")
                records, bad = read_records((line for line in lines if not is_header(line)), self._record)
                self.bad_lines += bad
                for record in records:
                    self.add(record)

    def claim_place(self, place: Place) -> bool:
        """Whether this process may work on something: False while another one does, or another thread."""
        with self._lock:
            if place in self._claimed:
                return False
            with suppress(OSError):  # a file system without locks: no sharing, but work goes on
                if not lock_byte(self._claims, claim_offset(place)):
                    return False
            self._claimed.add(place)
            return True

    def release_place(self, place: Place) -> None:
        """End a claim."""
        with self._lock:
            if place in self._claimed:
                self._claimed.discard(place)
                unlock_byte(self._claims, claim_offset(place))

    def is_claimed(self, offset: int) -> bool:
        """Whether somebody works on what is claimed by a byte of the lock file."""
        with self._lock:
            if any(claim_offset(place) == offset for place in self._claimed):
                return True
            if self._claims < 0:
                return False
            with suppress(OSError):
                if not lock_byte(self._claims, offset):
                    return True
                unlock_byte(self._claims, offset)
            return False

    def close(self) -> None:
        """Give back both files; claims end here."""
        with self._lock:
            for handle in (self._file, self._claims):
                if handle >= 0:
                    os.close(handle)
            self._file = self._claims = -1

    def _open(self, header: bytes) -> None:
        """Open or begin the file and its claims."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | BINARY, 0o644)
        self._claims = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | BINARY, 0o644)
        with self._exclusive():
            if b"\n" not in read_at(self._file, BLOCK, 0):  # new, or killed while its first line was written
                os.ftruncate(self._file, 0)
                self._write(header)
                _sync_folder(self.path.parent)
        with suppress(OSError):
            os.utime(self.path)  # when it was last used, for pruning

    def _check_schema(self) -> None:
        first = read_at(self._file, 1 << 20, 0).split(b"\n", 1)[0]
        try:
            schema = msgspec.json.decode(first).get("schema")
        except (ValueError, RecursionError, AttributeError):
            return  # an incomplete header: what follows it can still be read
        if isinstance(schema, int) and schema > SCHEMA:
            raise ResultError(f"{self.path}: written by a newer r2med (schema {schema})")

    def _write(self, data: bytes) -> None:
        """One write at the end of the file, on a line of its own even after a torn one."""
        size = os.fstat(self._file).st_size
        if size and read_at(self._file, 1, size - 1) != b"\n":
            data = b"\n" + data
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            raise ResultError(f"{self.path}: cannot be written ({error.strerror or error})") from None

    def _sync(self, mine: int) -> None:
        """Wait until write `mine` is on disk; threads that write together share one flush."""
        with self._sync_lock:
            if self._synced < mine:
                upto = self._written
                try:
                    os.fsync(self._file)
                except OSError as error:
                    raise ResultError(f"{self.path}: cannot be written ({error.strerror or error})") from None
                self._synced = upto

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        # On a file system without locks appending whole lines is still safe on most.
        with suppress(OSError):
            lock(self._file, wait=True)
        try:
            yield
        finally:
            with suppress(OSError):
                unlock(self._file)


def header_line(key: object) -> bytes:
    """The first line of a file of records."""
    return msgspec.json.encode({"schema": SCHEMA, "key": key}) + b"\n"


def with_checksum(record: msgspec.Struct) -> bytes:
    """A record as it stands in the file, with a checksum of itself as its last field."""
    data = msgspec.json.encode(record)
    return data[:-1] + b',"crc32":%d}\n' % zlib.crc32(data)


def without_checksum(line: bytes) -> bytes:
    """A record without its checksum, which must fit; lines of before there were any are taken as they are."""
    if (checksum := _CHECKSUM.search(line)) is None:
        return line
    data = line[: checksum.start()] + b"}"
    if zlib.crc32(data) != int(checksum[1]):
        raise ValueError("the line was changed after it was written")
    return data


def read_records(lines: Iterable[bytes], record: type[Record]) -> tuple[list[Record], int]:
    """The records among lines, and how many lines were not whole."""
    records, bad = [], 0
    for line in lines:
        if not line.strip():
            continue
        try:
            records.append(msgspec.json.decode(without_checksum(line), type=record))
        except (ValueError, RecursionError):
            bad += 1
    return records, bad


def is_header(line: bytes) -> bool:
    """Whether a line is the first one of a file of records."""
    return line.startswith(b'{"schema":')


def _sync_folder(folder: Path) -> None:
    """Put a new file's name on disk too; a system that cannot open folders does so by itself."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def claim_offset(place: Place) -> int:
    """A byte of the lock file for every place; two that share one only wait for each other."""
    return int.from_bytes(hashlib.blake2b("\0".join(place).encode(), digest_size=7).digest(), "little")


class Call(NamedTuple):
    """One call: the byte of the lock file by which it is claimed, and the number of the first answer asked for."""

    place: int
    sample: int


class SentCalls:
    """The journal beside a file of records; may be used from many threads and by many processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1
        self._lock = threading.Lock()
        self._open: set[Call] = set()
        """Calls of this process that are under way."""

    def send(self, call: Call) -> None:
        """Note that a call goes out; one that is under way already is not another."""
        with self._lock:
            if call not in self._open:
                self._open.add(call)
                self._write(b">", call)

    def settle(self, call: Call) -> None:
        """Note that a call came back; nothing where it never went out."""
        with self._lock:
            if call in self._open:
                self._open.discard(call)
                self._write(b"<", call)

    def settle_all(self) -> None:
        """Note that all calls of this process came back."""
        for call in list(self._open):
            self.settle(call)

    def lost(self, stored: Collection[Call], claimed: Callable[[int], bool]) -> int:
        """How many calls went out and never came back: not stored, and nobody waits for them any more.

        Whoever was killed between storing an answer and noting it here has lost nothing.
        """
        try:
            lines = _CALL.findall(self.path.read_bytes())
        except OSError:
            return 0
        sent, back = Counter[Call](), Counter[Call]()
        for mark, place, sample in lines:
            (sent if mark == b">" else back)[Call(int(place, 16), int(sample))] += 1
        lost = 0
        for call, times in sent.items():
            missing = times - max(back[call], int(call in stored))
            if missing > 0:
                lost += missing - (call in self._open or claimed(call.place))
        return lost

    def close(self) -> None:
        """Give back the file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    def _write(self, mark: bytes, call: Call) -> None:
        with suppress(OSError):  # a full disk ends the work where answers are stored, not here
            if self._file < 0:
                self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | BINARY, 0o644)
            os.write(self._file, b"%s%x:%d\n" % (mark, *call))
