"""Writing JSON lines and tables of judgments, plain or compressed."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from .errors import MissingExtra, UsageError

COMPRESSIONS = {"none": "", "gz": ".gz", "zst": ".zst"}


def write_lines(folder: Path, name: str, lines: Iterable[bytes], *, compress: str = "none") -> None:
    """Write one file of a task; the folder around it appears atomically, so the file need not."""
    if compress not in COMPRESSIONS:
        raise UsageError(f"unknown compression {compress!r}; known: {', '.join(COMPRESSIONS)}")
    path = folder / (name + COMPRESSIONS[compress])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw:
        write_packed(raw, lines, suffix=path.suffix)


def write_packed(raw: IO[bytes], lines: Iterable[bytes], *, suffix: str) -> None:
    """Write lines as the suffix says: `.gz`, `.zst` or plain, with the same bytes every time."""
    if suffix == ".gz":
        with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="", compresslevel=6) as packed:
            packed.writelines(lines)
    elif suffix == ".zst":
        try:
            import zstandard
        except ImportError:
            raise MissingExtra("writing .zst files", "zstd") from None
        with zstandard.ZstdCompressor(level=9).stream_writer(raw, closefd=False) as stream:
            for line in lines:
                stream.write(line)
    else:
        raw.writelines(lines)
