"""Compressed data: read under bounds, written with the same bytes every time.

Everything that r2med decompresses passes through here. A small file can hold gigabytes, so what comes out is counted
while it is read, in small pieces, and refused once it outgrows the compressed size out of all proportion. That bounds
the output and, with it, memory and time.
"""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from .errors import DataError, HostileData, MissingExtra, UsageError
from .untrusted import inside

COMPRESSIONS = {"none": "", "gz": ".gz", "zst": ".zst"}
SUFFIXES = tuple(COMPRESSIONS.values())
EXPANSION_LIMIT = 200  # times its compressed size; prose shrinks to a third or a fifth, a bomb to a thousandth
EXPANSION_FLOOR = 64 << 20  # bytes that are always allowed
BUFFER = 1 << 18
ZSTD_PIECE = 2048
"""Bytes given to zstd at once: all they unpack to is in memory, and four bytes of a bomb are 128 KiB."""


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
