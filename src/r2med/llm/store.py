"""The generation store: every answer on disk the moment it arrives, so that none is ever paid for twice.

One JSON-lines file per method × model × prompts × sampling × task. A record is one write under a lock, on disk before
`append` returns. Processes that share a file see each other's records and claim the queries they are working on; a
claim ends with its process, however that ends. A line that a killed process left half-written, or whose checksum does
not fit, is skipped and counted: its query is asked again.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec

from ..core import DataError, ResultError
from ..core.places import home
from .generation import Generation, StoreKey
from .protocol import Request

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: one process at a time
    fcntl = None

SCHEMA = 1
_SEAL = re.compile(rb',"crc32":(\d{1,10})\}\s*\Z')


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a file."""

    schema: int
    key: StoreKey


class GenerationStore:
    """All answers of one key, in memory and on disk."""

    def __init__(self, key: StoreKey, folder: Path | None = None, *, read_only: bool = False) -> None:
        """Open the file; `read_only` makes none and writes nothing, for a look at what is there."""
        self.key = key
        self.path = (folder or home() / "generations") / key.file_name
        self.bad_lines = 0
        self._found: dict[tuple[str, str], dict[int, Generation]] = {}
        self._read_to = 0
        self._tail = b""
        self._lock = threading.RLock()
        self._sync_lock = threading.Lock()
        self._written = self._synced = 0
        self._claimed: set[tuple[str, str]] = set()
        self._file = self._claims = -1
        try:
            if not read_only:
                self._open()
            elif self.path.exists():
                self._file = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            verb = "read" if read_only else "written"
            raise ResultError(f"{self.path}: cannot be {verb} ({error.strerror or error})") from None
        if self._file >= 0:
            self._check_header()
            self.refresh()

    def __enter__(self) -> GenerationStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))

    def __iter__(self) -> Iterator[Generation]:
        with self._lock:
            everything = [g for samples in self._found.values() for g in samples.values()]
        return iter(everything)

    @property
    def torn(self) -> int:
        """Lines that could not be read: what a process left behind that was killed while writing."""
        return self.bad_lines + bool(self._tail.strip())

    def statuses(self) -> Counter[str]:
        """Answers by status."""
        return Counter(generation.status for generation in self)

    def begun(self, request: Request) -> list[Generation]:
        """The first answers to a request, as many as are here without a gap."""
        with self._lock:
            samples = self._found.get((request.key, request.prompt_hash), {})
            wanted = range(request.sample, request.sample + request.sampling.n)
            return [samples[i] for i in takewhile(samples.__contains__, wanted)]

    def get(self, request: Request) -> list[Generation] | None:
        """The answers to a request if all of them are here."""
        found = self.begun(request)
        return found if len(found) == request.sampling.n else None

    def append(self, generations: Iterable[Generation]) -> None:
        """Put answers on disk; thread-safe. Failed ones are left out, so that they are tried again."""
        kept = [g for g in generations if g.status != "failed"]
        if not kept:
            return
        data = b"".join(map(sealed_line, kept))
        with self._lock:
            with self._exclusive():
                self._write(data)
            for generation in kept:
                self._add(generation)
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
                block = os.pread(self._file, min(size - self._read_to, 1 << 24), self._read_to)
                if not block:
                    break
                self._read_to += len(block)
                *lines, self._tail = (self._tail + block).split(b"\n")
                generations, bad = read_generations(line for line in lines if not is_header(line))
                self.bad_lines += bad
                for generation in generations:
                    self._add(generation)

    def claim(self, request: Request) -> bool:
        """Whether this process may work on a request: False while another one does, or when one just has."""
        place = (request.key, request.prompt_hash)
        with self._lock:
            if place in self._claimed:
                return False
            if fcntl is not None:
                try:
                    fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _offset(place))
                except (BlockingIOError, PermissionError):
                    return False
                except OSError:
                    pass  # a file system without locks: no sharing, but work goes on
            self._claimed.add(place)
            self.refresh()
            if self.begun(request):  # answered between the caller's look and this claim
                self.release(request)
                return False
            return True

    def release(self, request: Request) -> None:
        """End a claim."""
        place = (request.key, request.prompt_hash)
        with self._lock:
            if place in self._claimed:
                self._claimed.discard(place)
                if fcntl is not None:
                    fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, _offset(place))

    def close(self) -> None:
        """Give back both files; claims end here."""
        with self._lock:
            for handle in (self._file, self._claims):
                if handle >= 0:
                    os.close(handle)
            self._file = self._claims = -1

    def _add(self, generation: Generation) -> None:
        # The first answer stays: results that were made from it stay reproducible.
        place = (generation.query_id, generation.prompt_hash)
        self._found.setdefault(place, {}).setdefault(generation.sample, generation)

    def _open(self) -> None:
        """Open or begin the file and its claims."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        self._claims = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        with self._exclusive():
            if os.fstat(self._file).st_size == 0:
                self._write(msgspec.json.encode(Header(schema=SCHEMA, key=self.key)) + b"\n")
                sync_folder(self.path.parent)

    def _check_header(self) -> None:
        first = os.pread(self._file, 1 << 20, 0).split(b"\n", 1)[0]
        try:
            schema = msgspec.json.decode(first).get("schema")
        except (ValueError, RecursionError, AttributeError):
            return  # torn at birth: what follows it can still be read
        if isinstance(schema, int) and schema > SCHEMA:
            raise ResultError(f"{self.path}: written by a newer r2med (schema {schema})")

    def _write(self, data: bytes) -> None:
        """One write at the end of the file, on a line of its own even after a torn one."""
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            data = b"\n" + data
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            raise ResultError(f"{self.path}: cannot be written ({error.strerror or error})") from None

    def _sync(self, mine: int) -> None:
        """Wait until record `mine` is on disk; threads that write together share one flush."""
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
        if fcntl is None:
            yield
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError:  # a file system without locks: appending whole lines is still safe on most
            yield
            return
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def sync_folder(folder: Path) -> None:
    """Put a new file's name on disk too; a system that cannot open folders does so by itself."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_store(path: Path) -> tuple[StoreKey, list[Generation], int]:
    """A file's key, its answers and how many lines could not be read."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", path=path) from None
    generations, bad = read_generations(lines[1:])
    return read_header(path, lines[0]).key, generations, bad


def read_header(path: Path, line: bytes) -> Header:
    """The first line of a file."""
    try:
        return msgspec.json.decode(line, type=Header)
    except (ValueError, RecursionError):
        raise DataError("is not a generation store", path=path, line=1) from None


def sealed_line(generation: Generation) -> bytes:
    """A record as it stands in the file, with a checksum of itself as its last field."""
    data = msgspec.json.encode(generation)
    return data[:-1] + b',"crc32":%d}\n' % zlib.crc32(data)


def _opened(line: bytes) -> bytes:
    """A record without its checksum, which must fit; lines of before there were any are taken as they are."""
    if (seal := _SEAL.search(line)) is None:
        return line
    data = line[: seal.start()] + b"}"
    if zlib.crc32(data) != int(seal[1]):
        raise ValueError("the line was changed after it was written")
    return data


def read_generations(lines: Iterable[bytes]) -> tuple[list[Generation], int]:
    """The answers among lines, and how many lines were not whole."""
    generations, bad = [], 0
    for line in lines:
        if not line.strip():
            continue
        try:
            generations.append(msgspec.json.decode(_opened(line), type=Generation))
        except (ValueError, RecursionError):
            bad += 1
    return generations, bad


def is_header(line: bytes) -> bool:
    """Whether a line is the first one of a store."""
    return line.startswith(b'{"schema":')


def _offset(place: tuple[str, str]) -> int:
    """A byte of the lock file for every request; two that share one only wait for each other."""
    return int.from_bytes(hashlib.blake2b("\0".join(place).encode(), digest_size=7).digest(), "little")
