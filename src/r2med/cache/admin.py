"""Everything kept under `R2MED_HOME`: showing it, checking it byte by byte, making it smaller.

Nothing here follows a link: what a link points to is not the cache's to count or to remove.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..core import DataError, UnknownName, UsageError
from ..core.files import home
from .arrays import ABOUT, LABEL, MANIFEST, read_arrays
from .records import is_header, read_records
from .shards import SUFFIX, DamagedShard, open_shard

FOLDERS = {"vectors": "embeddings", "scores": "rerank", "generations": "generations", "indexes": "indexes"}
"""Kind of what is kept, and its folder in the home."""
PRUNED = ("vectors", "scores", "indexes")
"""What `prune` looks at unless told otherwise: generations may have cost money."""
STALE_SECONDS = 24 * 3600.0  # a temporary file this old belongs to a process that was killed


class Entry(NamedTuple):
    """One set of vectors or scores, one index, or the generations of one method with one model on one task."""

    kind: str
    path: Path
    label: str  # display name of the model; may be empty
    detail: str  # which side, method or task
    about: dict[str, Any]  # the facts that the name of the folder or file is a hash of
    bytes: int
    files: int
    last_used: float  # seconds since 1970


class Damage(NamedTuple):
    """A file that is not what was written."""

    kind: str
    path: Path
    reason: str
    lost: bool  # whether it is of no use at all; False: some lines of it


class Pruned(NamedTuple):
    """What was removed."""

    entries: int
    damaged: int
    temporary: int
    bytes: int


def entries(root: Path | None = None, kinds: Sequence[str] = tuple(FOLDERS)) -> list[Entry]:
    """All that is kept, the one used last first."""
    if unknown := [kind for kind in kinds if kind not in FOLDERS]:
        raise UsageError(f"nothing of kind {unknown[0]!r} is kept; there are {', '.join(FOLDERS)}")
    found = [entry for kind in kinds for entry in _entries(kind, _place(root, kind))]
    return sorted(found, key=lambda entry: entry.last_used, reverse=True)


def _place(root: Path | None, kind: str) -> Path:
    if kind not in FOLDERS:
        raise UnknownName("kind of cache entry", kind, FOLDERS, hint=f"(known: {', '.join(FOLDERS)})")
    return (root or home()) / FOLDERS[kind]


def _entries(kind: str, place: Path) -> Iterator[Entry]:
    if kind == "generations":
        for path in _files(place, (".jsonl",)):
            key = _read_json(path, first_line=True).get("key", {})
            label, method = str(key.get("llm", "")), str(key.get("method", ""))
            size, used = _size_and_time(path)
            yield Entry(kind, path, label, method, key, size, 1, used)
        return
    marker = MANIFEST if kind == "indexes" else ABOUT
    for folder in _folders(place):
        if folder.name.startswith("."):
            continue  # another process is writing it
        facts = _read_json(folder / marker)
        about = facts.get("about", {}) if kind == "indexes" else facts
        count = len(list(_files(folder, (SUFFIX, ".npy"))))
        if not facts and not count:
            continue  # not ours
        label = about.pop(LABEL, "") or about.get("model") or about.get("name") or ""
        detail = about.get("side") or about.get("task") or ""
        detail = f"{detail} tokens" if about.get("of") == "tokens" else detail
        _, used = _size_and_time(folder / marker)
        yield Entry(kind, folder, str(label), str(detail), about, _bytes_in(folder), count, used)


def verify(root: Path | None = None, kinds: Sequence[str] = tuple(FOLDERS)) -> Iterator[tuple[Entry, list[Damage]]]:
    """Read every byte of what is kept and compare it with its checksums, entry by entry."""
    checks = {"generations": _damaged_lines, "indexes": _damaged_arrays}
    for entry in entries(root, kinds):
        yield entry, list(checks.get(entry.kind, _damaged_shards)(entry))


def _damaged_shards(entry: Entry) -> Iterator[Damage]:
    for path in _files(entry.path, (SUFFIX,)):
        try:
            open_shard(path, check=True)
        except DamagedShard as why:
            yield Damage(entry.kind, path, str(why), lost=True)
        except OSError:
            continue  # gone meanwhile


def _damaged_lines(entry: Entry) -> Iterator[Damage]:
    try:
        first, *lines = entry.path.read_bytes().split(b"\n")
    except OSError as error:
        yield Damage(entry.kind, entry.path, f"cannot be read ({error.strerror or error})", lost=False)
        return
    _, bad = read_records(lines, _AnyRecord)
    if bad or not is_header(first):
        reason = f"{bad} lines cannot be read" if is_header(first) else "the first line cannot be read"
        yield Damage(entry.kind, entry.path, f"{reason}; what is lost is asked again", lost=False)


class _AnyRecord(msgspec.Struct):
    """A line of any file of records."""


def _damaged_arrays(entry: Entry) -> Iterator[Damage]:
    try:
        read_arrays(entry.path)
    except DataError as why:
        yield Damage(entry.kind, entry.path, why.message, lost=True)


def prune(
    root: Path | None = None,
    kinds: Sequence[str] = PRUNED,
    *,
    max_bytes: int | None = None,
    unused_days: float | None = None,
) -> Pruned:
    """Remove what is damaged, what killed processes left, and entries: the unused, then the oldest until it fits."""
    kinds = [kind for kind in kinds if not _place(root, kind).is_symlink()]
    damaged = [damage.path for _, found in verify(root, kinds) for damage in found if damage.lost]
    abandoned = [path for kind in kinds for path in _abandoned(_place(root, kind))]
    freed = sum(map(_remove, [*damaged, *abandoned]))
    kept = entries(root, kinds)
    total, removed = sum(entry.bytes for entry in kept), 0
    for entry in reversed(kept):
        unused = unused_days is not None and time.time() - entry.last_used > unused_days * 86_400
        if unused or (max_bytes is not None and total > max_bytes):
            total -= entry.bytes
            freed += _remove(entry.path)
            removed += 1
    return Pruned(removed, len(damaged), len(abandoned), freed)


def _abandoned(place: Path) -> Iterator[Path]:
    """Temporary files and folders of processes that were killed, known by their age."""
    for path in [*_files(place), *_folders(place)]:
        temporary = path.name.startswith(".") and path.name.endswith(".tmp")
        if temporary and time.time() - _size_and_time(path)[1] > STALE_SECONDS:
            yield path


def _remove(path: Path) -> int:
    """Remove a file or a folder and say how many bytes that freed."""
    if path.is_dir():
        size = _bytes_in(path)
        shutil.rmtree(path, ignore_errors=True)
        return size
    size, _ = _size_and_time(path)
    beside = (".lock", ".sent") if path.suffix == ".jsonl" else ()
    for gone in (path, *map(path.with_suffix, beside)):
        with suppress(OSError):
            gone.unlink()
    return size


def _files(place: Path, suffixes: tuple[str, ...] = ("",)) -> Iterator[Path]:
    """All files below a folder whose names end so."""
    for folder, _, names in os.walk(place, followlinks=False):
        paths = (Path(folder) / name for name in sorted(names) if name.endswith(suffixes))
        yield from (path for path in paths if not path.is_symlink())


def _folders(place: Path) -> list[Path]:
    """The folders in a folder."""
    with suppress(OSError):
        return sorted(path for path in place.iterdir() if path.is_dir() and not path.is_symlink())
    return []


def _bytes_in(folder: Path) -> int:
    return sum(_size_and_time(path)[0] for path in _files(folder))


def _size_and_time(path: Path) -> tuple[int, float]:
    """Bytes of a file and when it was used last; nothing where it has gone meanwhile."""
    with suppress(OSError):
        facts = path.lstat()
        return facts.st_size, facts.st_mtime
    return 0, 0.0


def _read_json(path: Path, *, first_line: bool = False) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError), path.open("rb") as stream:
        return msgspec.json.decode(stream.readline(1 << 20) if first_line else stream.read(), type=dict[str, Any])
    return {}
