"""Where a task's files lie: a folder or a zip, plain or compressed, read as streams.

Folders and archives are hostile until shown otherwise. Names and links that lead elsewhere are refused, pipes and
devices are not opened, and what unpacks out of all proportion is refused while reading; nothing is unpacked to disk.
"""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol, cast

from .compression import SUFFIXES, bounded, unpacked
from .errors import DataError, HostileData
from .files import exists, open_file

CHUNK = 1 << 20
LARGEST_DIRECTORY = 16 << 20  # bytes of a zip's list of files, which is read into memory whole
_END_OF_DIRECTORY = struct.Struct("<4s4H2LH")
LEVELS = 3  # levels of folders that are looked through: no layout we read goes deeper
BOUNDED_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""Ways to pack a zip's member that Python unpacks piece by piece; of others it holds the whole in memory."""
OTHER_METHODS = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "LZMA", 9: "deflate64", 93: "zstd"}


class Store(Protocol):
    """A set of named files."""

    path: Path

    def names(self) -> list[str]:
        """Relative names of all files, with forward slashes."""

    def open_raw(self, name: str) -> BinaryIO:
        """The stored bytes of one file."""

    def raw_size(self, name: str) -> int:
        """Size of the stored bytes."""

    def label(self, name: str) -> str:
        """How to call the file in a message."""


class FolderStore:
    """A folder on disk. Links inside it are followed as long as they stay inside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        real = path.resolve()
        # The hub's cache keeps the content of all snapshots in one folder and links to it.
        snapshots = next((parent for parent in (real, *real.parents) if parent.name == "snapshots"), None)
        self._roots = (real, snapshots.with_name("blobs")) if snapshots else (real,)

    def names(self) -> list[str]:
        return sorted(self._walk(self.path, "", LEVELS))

    def _walk(self, folder: Path, prefix: str, levels: int) -> Iterator[str]:
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            if prefix:
                return  # a folder within that we may not read is no part of the task
            raise DataError(f"cannot be read ({error.strerror or error})", path=folder) from None
        for entry in entries:
            with suppress(OSError):
                if entry.is_file():
                    yield prefix + entry.name
                elif levels > 1 and entry.is_dir() and not (entry.is_symlink() and self._leads_out(Path(entry.path))):
                    yield from self._walk(Path(entry.path), f"{prefix}{entry.name}/", levels - 1)

    def _leads_out(self, path: Path) -> bool:
        real = path.resolve()
        return not any(real.is_relative_to(root) for root in self._roots)

    def open_raw(self, name: str) -> BinaryIO:
        path = self.path / name
        if self._leads_out(path):
            raise HostileData("is a link that leads out of its folder; put the file itself there", path=path)
        return open_file(path)

    def raw_size(self, name: str) -> int:
        return (self.path / name).stat().st_size

    def label(self, name: str) -> str:
        return str(self.path / name)


class FileStore:
    """One file that somebody named, which may be a link to anywhere."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        return [self.path.name]

    def open_raw(self, name: str) -> BinaryIO:
        return open_file(self.path)

    def raw_size(self, name: str) -> int:
        return self.path.stat().st_size

    def label(self, name: str) -> str:
        return str(self.path)


class ZipStore:
    """A task's `.zip` as downloaded; one folder around everything is looked through unless `keep_folder`."""

    def __init__(self, path: Path, *, keep_folder: bool = False) -> None:
        self.path = path
        self._members: dict[str, zipfile.ZipInfo] = {}
        try:
            if _directory_bytes(path) > LARGEST_DIRECTORY:
                raise HostileData("lists more files than an archive may hold", path=path)
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
            raise DataError(f"not a readable zip file ({error})", path=path) from None
        self._size = path.stat().st_size
        for info in self._zip.infolist():
            if not info.filename or info.is_dir() or info.filename.startswith("__MACOSX/"):
                continue
            parts = PurePosixPath(info.filename.replace("\\", "/"))
            if parts.is_absolute() or ".." in parts.parts or ":" in info.filename.split("/")[0]:
                raise HostileData(f"names a file outside itself: {info.filename!r}", path=path)
            if stat.S_ISLNK(info.external_attr >> 16):
                raise HostileData(f"holds a link: {info.filename!r}", path=path)
            if self._members.setdefault(parts.as_posix(), info) is not info:
                raise HostileData(f"holds two files called {parts.as_posix()!r}", path=path)
        while not keep_folder and self._has_one_folder():
            self._members = {name.partition("/")[2]: info for name, info in self._members.items()}

    def _has_one_folder(self) -> bool:
        return all("/" in name for name in self._members) and len({n.partition("/")[0] for n in self._members}) == 1

    def names(self) -> list[str]:
        return sorted(self._members)

    def open_raw(self, name: str) -> BinaryIO:
        info = self._members[name]
        if info.flag_bits & 1:
            raise DataError("is encrypted", path=self.label(name))
        if info.compress_type not in BOUNDED_METHODS:
            method = OTHER_METHODS.get(info.compress_type, f"method {info.compress_type}")
            raise DataError(f"is packed with {method}; pack the archive again with deflate", path=self.label(name))
        try:
            member = cast(BinaryIO, self._zip.open(info))
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError, struct.error) as error:
            raise DataError(f"broken zip member ({error})", path=self.label(name)) from None
        return bounded(member, self.raw_size(name), self.label(name))

    def raw_size(self, name: str) -> int:
        # What the member takes in the archive: the sizes it claims for itself are the archive's own word.
        return min(self._members[name].compress_size, self._size)

    def label(self, name: str) -> str:
        return f"{self.path}!{name}"


def _directory_bytes(path: Path) -> int:
    """How long the list of files at the end of a zip is, as the zip states it and zipfile believes it."""
    with open_file(path) as stream:
        stream.seek(max(0, path.stat().st_size - (1 << 16) - _END_OF_DIRECTORY.size))
        tail = stream.read()
    found = tail.rfind(b"PK\5\6")
    if found < 0 or len(tail) - found < _END_OF_DIRECTORY.size:
        return 0  # not a zip, as zipfile is about to say
    larger = tail.rfind(b"PK\6\6", 0, found)  # an archive of over 4 GiB states it here
    if 0 <= larger <= found - 56:
        return int.from_bytes(tail[larger + 40 : larger + 48], "little")
    return int(_END_OF_DIRECTORY.unpack_from(tail, found)[5])


class JoinedStore:
    """Several stores as one; a file comes from the first that has it."""

    def __init__(self, *stores: Store) -> None:
        self.path = stores[0].path
        self._stores = stores

    def names(self) -> list[str]:
        return sorted({name for store in self._stores for name in store.names()})

    def _of(self, name: str) -> Store:
        return next(store for store in self._stores if name in store.names())

    def open_raw(self, name: str) -> BinaryIO:
        return self._of(name).open_raw(name)

    def raw_size(self, name: str) -> int:
        return self._of(name).raw_size(name)

    def label(self, name: str) -> str:
        return self._of(name).label(name)


def open_store(path: Path) -> Store:
    """The store at `path`: a folder or a zip."""
    if not exists(path):
        raise DataError("no such folder or file", path=path)
    if path.is_dir():
        return FolderStore(path)
    if path.is_file() and path.suffix.lower() == ".zip":
        return ZipStore(path)
    raise DataError("is neither a folder nor a .zip", path=path)


def find(names: Iterable[str], *candidates: str) -> str | None:
    """The first of `candidates` that is among `names`, plain, gzipped or zstd-compressed."""
    present = set(names)
    return next((c + suffix for c in candidates for suffix in SUFFIXES if c + suffix in present), None)


@contextmanager
def open_stream(store: Store, name: str) -> Iterator[BinaryIO]:
    """A buffered, decompressed stream of one file."""
    with store.open_raw(name) as raw, unpacked(raw, name, store.raw_size(name), store.label(name)) as stream:
        yield stream


@contextmanager
def open_path(path: Path) -> Iterator[BinaryIO]:
    """A buffered, decompressed stream of a file that somebody named."""
    with open_stream(FileStore(path), path.name) as stream:
        yield stream


def whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    """A file in pieces that end with a line."""
    rest = b""
    while piece := stream.read(CHUNK):
        head, newline, rest = (rest + piece).rpartition(b"\n")
        if newline:
            yield head + newline
    if rest:
        yield rest
