"""One reading of anything compressed, with bounds."""

from __future__ import annotations

import ast
import gzip
import io
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

import r2med
from r2med.core import DataError, HostileData, UsageError
from r2med.core.compression import (
    EXPANSION_FLOOR,
    EXPANSION_LIMIT,
    expansion_limit,
    gunzip,
    inflated,
    unpacked,
    write_lines,
    write_packed,
)

ROOT = Path(r2med.__file__).parent
UNPACKERS = {"gzip", "bz2", "lzma", "zipfile", "tarfile", "zstandard"}


def read(data: bytes, name: str) -> bytes:
    with unpacked(io.BytesIO(data), name, len(data), name) as stream:
        return stream.read()


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_body_that_ends_too_early_is_an_error(pack: Callable[[bytes], bytes]) -> None:
    plain = random.Random(1).randbytes(50_000) + bytes(5_000_000)
    packed = pack(plain)
    for size in (1, 997, len(packed)):
        parts = [packed[at : at + size] for at in range(0, len(packed), size)]
        assert b"".join(inflated(parts)) == plain
    for cut in (1, 5, 1000):
        with pytest.raises(zlib.error, match="end too early"):
            list(inflated([packed[:-cut]]))
    assert list(inflated([])) == []


def test_a_body_of_two_files_is_read_to_its_end() -> None:
    assert b"".join(inflated([gzip.compress(b"one") + gzip.compress(b" two")])) == b"one two"


def test_the_limit_grows_with_the_compressed_size() -> None:
    assert expansion_limit(0) == expansion_limit(1000) == EXPANSION_FLOOR
    assert expansion_limit(1 << 30) == EXPANSION_LIMIT << 30


@pytest.mark.parametrize(("name", "pack"), [("x.gz", gzip.compress), ("x.zst", zstandard.compress), ("x", bytes)])
def test_what_was_packed_is_read(name: str, pack: object) -> None:
    assert callable(pack)
    content = b"".join(b"line %d\n" % i for i in range(50_000))
    assert read(pack(content), name) == content
    assert read(pack(content) + (pack(content) if name != "x" else b""), name) == content * (2 if name != "x" else 1)
    assert read(pack(b""), name) == b""


@pytest.mark.parametrize("name", ["x.gz", "x.zst"])
def test_a_bomb_is_refused_on_the_way(name: str) -> None:
    zeros = bytes(EXPANSION_FLOOR + 1)
    bomb = gzip.compress(zeros, 1) if name == "x.gz" else zstandard.compress(zeros)
    with pytest.raises(HostileData, match="unpacks to over 64 MiB, out of all proportion"):
        read(bomb, name)
    assert len(read(gzip.compress(zeros[:-1], 1) if name == "x.gz" else zstandard.compress(zeros[:-1]), name))


@pytest.mark.parametrize("data", [b"", b"\x1f\x8b", b"no gzip", gzip.compress(b"x" * 999, mtime=0)[:-3]])
def test_what_is_no_gzip(data: bytes) -> None:
    if not data:
        assert gunzip(data, "reply") == b""
        return
    with pytest.raises(DataError, match=r"^reply: (ends too early|broken compressed data)"):
        gunzip(data, "reply")


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_the_same_lines_give_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    first, second = io.BytesIO(), io.BytesIO()
    for buffer in (first, second):
        write_packed(buffer, [b"a\n", b"b\n"], suffix=suffix)
    assert first.getvalue() == second.getvalue()
    assert read(first.getvalue(), f"x{suffix}") == b"a\nb\n"
    with pytest.raises(UsageError, match="unknown compression 'rar'; known: none, gz, zst"):
        write_lines(tmp_path, "x", [], compress="rar")


def imported(path: Path) -> set[str]:
    tree = ast.walk(ast.parse(path.read_text("utf-8")))
    plain = {alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names}
    tree = ast.walk(ast.parse(path.read_text("utf-8")))
    return plain | {str(node.module) for node in tree if isinstance(node, ast.ImportFrom) and not node.level}


def test_nothing_else_unpacks() -> None:
    """A second way to decompress would be one without bounds; `zlib` elsewhere is for check sums only."""
    allowed = {"core/compression.py", "core/stores.py"}
    allowed |= {"http.py", "results/runs.py"}  # which unpack in pieces of bounded size
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name not in allowed:
            assert not imported(path) & UNPACKERS, name
            assert "zlib.decompress" not in path.read_text("utf-8"), name
