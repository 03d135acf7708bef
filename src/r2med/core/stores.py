"""Where a task's files lie: a folder or a zip, plain or compressed, read as streams.

Archives are hostile until shown otherwise: names that leave the archive and data that unpacks out of all proportion
are refused while reading, so nothing is ever unpacked to disk.
"""

from __future__ import annotations

import gzip
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol, cast

from .errors import DataError, HostileData, MissingExtra
from .places import exists

SUFFIXES = ("", ".gz", ".zst")
EXPANSION_LIMIT = 200  # times its compressed size; prose compresses 3–5 times, a bomb a thousand times
EXPANSION_FLOOR = 64 << 20  # bytes that are always allowed
ZSTD_SIP = 2048


class Store(Protocol):
    """A set of named files."""

    path: Path

    def names(self) -> list[str]:
        """Relative names of all files, with forward slashes."""
        ...

    def open_raw(self, name: str) -> BinaryIO:
        """The stored bytes of one file."""
        ...

    def raw_size(self, name: str) -> int:
        """Size of the stored bytes."""
        ...

    def label(self, name: str) -> str:
        """How to call the file in a message."""
        ...


class FolderStore:
    """A folder on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """Files up to three levels down: no layout we read goes deeper."""
        found = {p for depth in ("*", "*/*", "*/*/*") for p in self.path.glob(depth)}
        return sorted(p.relative_to(self.path).as_posix() for p in found if p.is_file())

    def open_raw(self, name: str) -> BinaryIO:
        return (self.path / name).open("rb", buffering=1 << 18)

    def raw_size(self, name: str) -> int:
        return (self.path / name).stat().st_size

    def label(self, name: str) -> str:
        return str(self.path / name)


class ZipStore:
    """A task's `.zip` as downloaded; one folder around everything is looked through."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
            raise DataError(f"not a readable zip file ({error})", path=path) from None
        self._size = path.stat().st_size
        self._members: dict[str, zipfile.ZipInfo] = {}
        for info in self._zip.infolist():
            if not info.filename or info.is_dir() or info.filename.startswith("__MACOSX/"):
                continue
            parts = PurePosixPath(info.filename.replace("\\", "/"))
            if parts.is_absolute() or ".." in parts.parts or ":" in info.filename.split("/")[0]:
                raise HostileData(f"names a file outside itself: {info.filename!r}", path=path)
            self._members[parts.as_posix()] = info
        while self._members and len({name.partition("/")[:2] for name in self._members}) == 1:
            if not all("/" in name for name in self._members):
                break
            self._members = {name.partition("/")[2]: info for name, info in self._members.items()}

    def names(self) -> list[str]:
        return sorted(self._members)

    def open_raw(self, name: str) -> BinaryIO:
        info = self._members[name]
        if info.flag_bits & 1:
            raise DataError("is encrypted", path=self.label(name))
        try:
            member = cast(BinaryIO, self._zip.open(info))
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, struct.error) as error:
            raise DataError(f"broken zip member ({error})", path=self.label(name)) from None
        return cast(BinaryIO, io.BufferedReader(_Guard(member, self.raw_size(name), self.label(name)), 1 << 18))

    def raw_size(self, name: str) -> int:
        # What the member takes in the archive: the sizes it claims for itself are the archive's own word.
        return min(self._members[name].compress_size, self._size)

    def label(self, name: str) -> str:
        return f"{self.path}!{name}"


class _Guard(io.RawIOBase):
    """Passes bytes through and refuses to go on once they outgrow their compressed size."""

    def __init__(self, inner: BinaryIO, compressed_size: int, label: str) -> None:
        self._inner, self._label = inner, label
        self._limit = max(EXPANSION_FLOOR, EXPANSION_LIMIT * compressed_size)
        self._seen = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._inner.read(len(buffer))
        except EOFError:
            raise DataError("ends too early: the compressed file is truncated", path=self._label) from None
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError) as error:
            raise DataError(f"broken compressed data ({error})", path=self._label) from None
        except Exception as error:
            if type(error).__name__ != "ZstdError":
                raise
            raise DataError(f"broken compressed data ({error})", path=self._label) from None
        self._seen += len(data)
        if self._seen > self._limit:
            raise HostileData(f"unpacks to over {self._limit >> 20} MiB, out of all proportion", path=self._label)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._inner.close()
        super().close()


def open_store(path: Path) -> Store:
    """The store at `path`: a folder or a zip."""
    if not exists(path):
        raise DataError("no such folder or file", path=path)
    if path.is_dir():
        return FolderStore(path)
    if path.is_file() and path.suffix.lower() == ".zip":
        return ZipStore(path)
    raise DataError("is neither a folder nor a .zip", path=path)


def find(store: Store, *candidates: str, names: list[str] | None = None) -> str | None:
    """The first of `candidates` that exists, plain, gzipped or zstd-compressed."""
    present = set(store.names() if names is None else names)
    return next((c + suffix for c in candidates for suffix in SUFFIXES if c + suffix in present), None)


@contextmanager
def open_stream(store: Store, name: str) -> Iterator[BinaryIO]:
    """A buffered, decompressed stream of one file."""
    label = store.label(name)
    try:
        raw = store.open_raw(name)
    except OSError as error:
        raise DataError(f"cannot be opened ({error.strerror or error})", path=label) from None
    with raw:
        if name.endswith(".gz"):
            with _guarded(cast(BinaryIO, gzip.GzipFile(fileobj=raw)), store.raw_size(name), label) as stream:
                yield stream
        elif name.endswith(".zst"):
            with _guarded(_zstd_reader(raw), store.raw_size(name), label) as stream:
                yield stream
        else:
            yield raw


def gunzip(data: bytes, label: str) -> bytes:
    """Gzipped data whose file need not be called `.gz`, under the same limits."""
    with _guarded(cast(BinaryIO, gzip.GzipFile(fileobj=io.BytesIO(data))), len(data), label) as stream:
        return stream.read()


def _guarded(inner: BinaryIO, size: int, label: str) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Guard(inner, size, label), 1 << 18))


def _zstd_reader(raw: BinaryIO) -> BinaryIO:
    try:
        import zstandard
    except ImportError:
        raise MissingExtra("reading .zst files", "zstd") from None
    return cast(BinaryIO, _StrictZstd(zstandard.ZstdDecompressor(), raw))


class _StrictZstd:
    """zstandard's stream reader takes a truncated file for a finished one; this one does not."""

    def __init__(self, decompressor: object, raw: BinaryIO) -> None:
        self._decompressor = decompressor
        self._raw = raw
        self._object = decompressor.decompressobj()  # type: ignore[attr-defined]
        self._pending = bytearray()
        self._started = False

    def read(self, size: int) -> bytes:
        while len(self._pending) < size:
            # Small sips: four bytes of a bomb unpack to 128 KiB, and all of a call's output is in memory at once.
            chunk = self._raw.read(ZSTD_SIP)
            if not chunk:
                if self._started and not self._object.eof:
                    raise EOFError
                break
            while chunk:
                self._started = True
                self._pending += self._object.decompress(chunk)
                chunk = self._object.unused_data if self._object.eof else b""
                if self._object.eof and chunk:
                    self._object = self._decompressor.decompressobj()  # type: ignore[attr-defined]
        out = bytes(self._pending[:size])
        del self._pending[:size]
        return out

    def close(self) -> None:
        self._raw.close()
