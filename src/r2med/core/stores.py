"""Where a task's files lie: a folder or a zip, plain or compressed, read as streams; and writing them.

Folders and archives are hostile until shown otherwise. Names and links that lead elsewhere are refused, pipes and
devices are not opened, and nothing is unpacked to disk. Everything that r2med decompresses passes through here: a small
file can hold gigabytes, so what comes out is counted while it is read, in small pieces, and refused once it outgrows
the compressed size out of all proportion. That bounds memory and time. What is written has the same bytes every time.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, Protocol, cast

from .errors import DataError, HostileData, MissingExtra, UsageError
from .files import exists, open_file
from .untrusted import inside

CHUNK = 1 << 20
LARGEST_DIRECTORY = 16 << 20  # bytes of a zip's list of files, which is read into memory whole
_END_OF_DIRECTORY = struct.Struct("<4s4H2LH")
LEVELS = 3  # levels of folders that are looked through: no layout we read goes deeper
BOUNDED_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
"""Ways to pack a zip's member that Python unpacks piece by piece; of others it holds the whole in memory."""
OTHER_METHODS = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "LZMA", 9: "deflate64", 93: "zstd"}
COMPRESSIONS = {"none": "", "gz": ".gz", "zst": ".zst"}
SUFFIXES = tuple(COMPRESSIONS.values())
EXPANSION_LIMIT = 200  # times its compressed size; prose shrinks to a third or a fifth, a bomb to a thousandth
EXPANSION_FLOOR = 64 << 20  # bytes that are always allowed
BUFFER = 1 << 18
MARKED = "begins with a byte-order mark: save the file as UTF-8 without it"
ZSTD_PIECE = 2048
"""Bytes given to zstd at once: all they unpack to is in memory, and four bytes of a bomb are 128 KiB."""


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


def refuse_mark(begin: bytes, path: str | Path) -> None:
    """Refuse a file that begins with the mark some editors put before UTF-8: it would be part of the first id."""
    if begin.startswith(BOM_UTF8):
        raise DataError(MARKED, path=path, line=1)


def whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    """A file in pieces that end with a line."""
    rest = b""
    while piece := stream.read(CHUNK):
        head, newline, rest = (rest + piece).rpartition(b"\n")
        if newline:
            yield head + newline
    if rest:
        yield rest


def expansion_limit(size: int) -> int:
    """Bytes that data of this compressed size may unpack to."""
    return max(EXPANSION_FLOOR, EXPANSION_LIMIT * size)


def outgrown(limit: int, label: str | Path) -> HostileData:
    """The error for data that unpack to more than their limit."""
    return HostileData(f"unpacks to over {limit >> 20} MiB, out of all proportion", path=label)


def bounded(inner: BinaryIO, size: int, label: str) -> BinaryIO:
    """A decompressing stream that refuses to go on beyond the limit for its compressed size."""
    return cast(BinaryIO, io.BufferedReader(_Bounded(inner, size, label), BUFFER))


class _Bounded(io.RawIOBase):
    """Counts what a decompressor gives, and turns its errors into one line."""

    def __init__(self, inner: BinaryIO, size: int, label: str) -> None:
        self._inner, self._label = inner, label
        self._limit, self._seen = expansion_limit(size), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._inner.read(len(buffer))
        except EOFError:
            raise DataError("ends too early: the compressed file is truncated", path=self._label) from None
        except Exception as error:
            known = isinstance(error, zipfile.BadZipFile | zlib.error | OSError)
            if not known and type(error).__name__ != "ZstdError":
                raise
            raise DataError(f"broken compressed data ({error})", path=self._label) from None
        self._seen += len(data)
        if self._seen > self._limit:
            raise outgrown(self._limit, self._label)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._inner.close()
        super().close()


@contextmanager
def unpacked(raw: BinaryIO, name: str, size: int, label: str) -> Iterator[BinaryIO]:
    """A stream of what a file holds; `name` says by its suffix how it is compressed, `size` is its stored size."""
    if name.endswith(".gz"):
        inner = cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    elif name.endswith(".zst"):
        inner = cast(BinaryIO, _ZstdReader(raw))
    else:
        yield raw
        return
    with bounded(inner, size, label) as stream:
        yield stream


def gunzip(data: bytes, label: str) -> bytes:
    """Gzipped bytes, unpacked under the same bound."""
    with unpacked(cast(BinaryIO, io.BytesIO(data)), ".gz", len(data), label) as stream:
        return stream.read()


def inflated(parts: Iterable[bytes]) -> Iterator[bytes]:
    """A body of gzip or deflate as it comes, unpacked in pieces of bounded size; whoever takes them counts them.

    One that ends too early is a `zlib.error`.
    """
    unpacker = None
    for part in parts:
        packed = part
        while packed:
            if unpacker is None or unpacker.eof:  # at the beginning, or where another file of gzip follows
                unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)  # reads the headers of both
            yield unpacker.decompress(packed, BUFFER)
            packed = unpacker.unconsumed_tail or unpacker.unused_data
    if unpacker is not None:
        yield unpacker.flush()
        if not unpacker.eof:
            raise zlib.error("the data end too early")


def inflate(packed: bytes, most: int, label: str | Path) -> bytes:
    """The first bytes, at most so many, of a deflate stream without a header."""
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, most)
    except zlib.error as error:
        raise DataError(f"broken compressed data ({error})", path=label) from None


class _ZstdReader:
    """Reads zstd frames; zstandard's own stream reader takes a truncated file for a finished one."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._zstd = _zstandard("reading .zst files").ZstdDecompressor()
        self._frame = self._zstd.decompressobj()
        self._pending = bytearray()
        self._started = False

    def read(self, size: int) -> bytes:
        while len(self._pending) < size:
            piece = self._raw.read(ZSTD_PIECE)
            if not piece:
                if self._started and not self._frame.eof:
                    raise EOFError
                break
            while piece:
                self._started = True
                self._pending += self._frame.decompress(piece)
                piece = self._frame.unused_data if self._frame.eof else b""
                if piece:
                    self._frame = self._zstd.decompressobj()
        out = bytes(self._pending[:size])
        del self._pending[:size]
        return out

    def close(self) -> None:
        self._raw.close()


def _zstandard(purpose: str) -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingExtra(purpose, "zstd") from None
    return zstandard


def write_lines(folder: Path, name: str, lines: Iterable[bytes], *, compress: str = "none") -> None:
    """Write one file of a task; the folder around it appears atomically, so the file need not."""
    if compress not in COMPRESSIONS:
        raise UsageError(f"unknown compression {compress!r}; known: {', '.join(COMPRESSIONS)}")
    path = inside(folder, name + COMPRESSIONS[compress], "file")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw:
        write_packed(raw, lines, suffix=path.suffix)


def write_packed(raw: IO[bytes], lines: Iterable[bytes], *, suffix: str) -> None:
    """Write lines as the suffix says: `.gz`, `.zst` or plain."""
    if suffix == ".gz":
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="", compresslevel=6) as packed:
            packed.writelines(lines)
    elif suffix == ".zst":
        with _zstandard("writing .zst files").ZstdCompressor(level=9).stream_writer(raw, closefd=False) as stream:
            for line in lines:
                stream.write(line)
    else:
        raw.writelines(lines)


def write_zip(raw: IO[bytes], members: Iterable[tuple[str, bytes]]) -> None:
    """Write a zip of named contents, in the order given; the same contents give the same bytes."""
    with zipfile.ZipFile(raw, "w") as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_STORED if name.endswith(".gz") else zipfile.ZIP_DEFLATED
            info.external_attr, info.create_system = 0o644 << 16, 3  # a plain file, on any system
            archive.writestr(info, data, compresslevel=6)
