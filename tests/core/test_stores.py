"""Folders, zips and compressed files: read within bounds, written with the same bytes every time."""

from __future__ import annotations

import ast
import bz2
import gzip
import io
import lzma
import os
import random
import stat
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

import r2med
from r2med.core import DataError, HostileData, UsageError
from r2med.core.stores import (
    EXPANSION_FLOOR,
    EXPANSION_LIMIT,
    FolderStore,
    ZipStore,
    expansion_limit,
    find,
    gunzip,
    inflated,
    open_path,
    open_store,
    open_stream,
    unpacked,
    write_lines,
    write_packed,
)


def folder(path: Path) -> Path:
    (path / "one" / "two" / "three").mkdir(parents=True)
    for name in ("a", "one/b", "one/two/c", "one/two/three/d"):
        (path / name).write_text(name)
    return path


def test_three_levels_are_seen(tmp_path: Path) -> None:
    assert FolderStore(folder(tmp_path)).names() == ["a", "one/b", "one/two/c"]
    assert find(open_store(tmp_path).names(), "x", "a") == "a"


def test_links_inside_are_followed_and_links_out_are_not(tmp_path: Path) -> None:
    inner, outer = folder(tmp_path / "inner"), folder(tmp_path / "outer")
    (inner / "own").symlink_to("one/b")
    (inner / "stolen").symlink_to(outer / "a")
    (inner / "stolen-relative").symlink_to("../outer/a")
    (inner / "elsewhere").symlink_to(outer)
    (inner / "loop").symlink_to(inner)
    store = FolderStore(inner)
    names = store.names()
    assert not any(name.startswith("elsewhere/") for name in names)
    with open_stream(store, "own") as stream:
        assert stream.read() == b"one/b"
    for name in ("stolen", "stolen-relative", "elsewhere/a"):
        with pytest.raises(HostileData, match=f"{name}: is a link that leads out of its folder"):
            store.open_raw(name)
    (tmp_path / "link").symlink_to(inner)  # a link that somebody typed is theirs to follow
    with open_stream(FolderStore(tmp_path / "link"), "own") as stream:
        assert stream.read() == b"one/b"
    with open_path(inner / "stolen") as stream:
        assert stream.read() == b"a"


def test_the_cache_of_the_hub_is_made_of_links(tmp_path: Path) -> None:
    repository = tmp_path / "datasets--R2MED--Biology"
    (repository / "blobs").mkdir(parents=True)
    (repository / "blobs" / "abc").write_text("content")
    snapshot = repository / "snapshots" / "commit"
    (snapshot / "below").mkdir(parents=True)
    (snapshot / "corpus.jsonl").symlink_to("../../blobs/abc")
    (snapshot / "below" / "corpus.jsonl").symlink_to("../../../blobs/abc")
    (snapshot / "secret").symlink_to("../../../../elsewhere")
    for place in (snapshot, snapshot / "below"):
        with open_stream(open_store(place), "corpus.jsonl") as stream:
            assert stream.read() == b"content"
    (tmp_path / "elsewhere").write_text("secret")
    (snapshot / "other").symlink_to("../../../elsewhere")
    with pytest.raises(HostileData):
        open_store(snapshot).open_raw("other")


def test_pipes_and_devices_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "corpus.jsonl")
    (tmp_path / "endless").symlink_to("/dev/zero")
    store = FolderStore(tmp_path)
    assert store.names() == []
    with pytest.raises(DataError, match="not a plain file"):
        store.open_raw("corpus.jsonl")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    try:
        with pytest.raises(DataError, match=r"cannot be read \(Permission denied\)"):
            FolderStore(tmp_path).names()
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(("method", "name"), [(zipfile.ZIP_BZIP2, "bzip2"), (zipfile.ZIP_LZMA, "LZMA")])
def test_members_that_unpack_all_at_once_are_refused(tmp_path: Path, method: int, name: str) -> None:
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("corpus.jsonl", b"x" * 1000)
        archive.writestr("plain", b"y", zipfile.ZIP_STORED)
        archive.writestr("usual", b"z", zipfile.ZIP_DEFLATED)
    store = ZipStore(path)
    with pytest.raises(DataError, match=rf"t\.zip!corpus\.jsonl: is packed with {name}; pack the archive again"):
        store.open_raw("corpus.jsonl")
    for member, content in (("plain", b"y"), ("usual", b"z")):
        with open_stream(store, member) as stream:
            assert stream.read() == content


def test_a_compressed_file_in_a_zip_is_read_by_its_own_suffix_only(tmp_path: Path) -> None:
    """bzip2 and xz are no suffixes we read: their bytes come as they are."""
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.bz2", bz2.compress(b"x"))
        archive.writestr("a.xz", lzma.compress(b"x"))
    for name in ("a.bz2", "a.xz"):
        with open_stream(ZipStore(path), name) as stream:
            assert stream.read() != b"x"


@pytest.mark.parametrize("second", ["corpus.jsonl", "./corpus.jsonl", "x/corpus.jsonl"])
def test_two_members_never_share_a_name(tmp_path: Path, second: str) -> None:
    path, first = tmp_path / "t.zip", "x\\corpus.jsonl" if "x/" in second else "corpus.jsonl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(first, b"one")
        if second == first:
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr(second, b"two")
        else:
            archive.writestr(second, b"two")
    with pytest.raises(HostileData, match=r"t\.zip: holds two files called '(x/)?corpus\.jsonl'"):
        ZipStore(path)


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    path, info = tmp_path / "t.zip", zipfile.ZipInfo("corpus.jsonl")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(HostileData, match=r"t\.zip: holds a link: 'corpus\.jsonl'"):
        ZipStore(path)


@pytest.mark.parametrize("larger", [False, True])
def test_a_list_of_files_that_is_too_long_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, larger: bool
) -> None:
    """Zip64, for archives of over 4 GiB, states its length elsewhere."""
    path = tmp_path / "t.zip"
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 10 if larger else 1 << 16)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(50):
            archive.writestr(f"{number}.txt", b"")
    assert (b"PK\6\6" in path.read_bytes()) == larger
    assert len(ZipStore(path).names()) == 50
    monkeypatch.setattr("r2med.core.stores.LARGEST_DIRECTORY", 50 * 46)
    with pytest.raises(HostileData, match="lists more files"):
        ZipStore(path)


def test_one_folder_around_everything(tmp_path: Path) -> None:
    path = tmp_path / "t.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("top/inner/a", b"")
        archive.writestr("top/inner/b/c", b"")
    assert ZipStore(path).names() == ["a", "b/c"]
    assert ZipStore(path, keep_folder=True).names() == ["top/inner/a", "top/inner/b/c"]


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
    allowed = {"core/stores.py"}
    allowed |= {"http.py", "results/runs.py"}  # which unpack in pieces of bounded size
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name not in allowed:
            assert not imported(path) & UNPACKERS, name
            assert "zlib.decompress" not in path.read_text("utf-8"), name
