"""The results folders, indexed. Nothing outside them is read: a link that leads out is reported and left alone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ....core import ResultError
from ....results import ResultStore, TaskResult

LARGEST = 8 << 20  # bytes of a result file; ours have some thousand
FRESH = 2.0  # seconds: a folder changed this recently may change again within its clock's tick
CHECK_EVERY = 1.0


class Entry(NamedTuple):
    """One system on one task, and where it lies."""

    system: str
    path: Path
    result: TaskResult
    stamp: tuple[int, int]


class _Read(NamedTuple):
    stamp: tuple[int, int]
    result: TaskResult | None
    problem: str


class _Folder(NamedTuple):
    changed: int
    files: dict[str, _Read]


class Shelf:
    """All results of some folders. `version` grows whenever something changed."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)
        self.version = 0
        self.entries: tuple[Entry, ...] = ()
        self.problems: tuple[str, ...] = ()
        self._folders: dict[Path, _Folder] = {}
        self._lock = threading.Lock()
        self._checked = 0.0

    def refresh(self, *, now: bool = False) -> None:
        """Look at the disk again, at most once a second."""
        with self._lock:
            if not now and time.monotonic() - self._checked < CHECK_EVERY:
                return
            problems: list[str] = []
            found = [(root, path, read) for root in self.roots for path, read in self._scan(root, problems)]
            problems += [read.problem for _, _, read in found if read.problem]
            entries = tuple(self._named([(r, p, f) for r, p, f in found if f.result is not None]))
            if entries != self.entries or tuple(problems) != self.problems or not self.version:
                self.entries, self.problems = entries, tuple(problems)
                self.version += 1
            self._checked = time.monotonic()

    def _named(self, found: list[tuple[Path, Path, _Read]]) -> Iterator[Entry]:
        """A system that stands in several folders is named after them too."""
        homes: dict[str, set[Path]] = {}
        for root, _, read in found:
            assert read.result is not None
            homes.setdefault(read.result.system.name, set()).add(root)
        for root, path, read in found:
            assert read.result is not None
            name = read.result.system.name
            label = name if len(homes[name]) == 1 else f"{name} ({_short(root, self.roots)})"
            yield Entry(label, path, read.result, read.stamp)

    def _scan(self, root: Path, problems: list[str]) -> Iterator[tuple[Path, _Read]]:
        whole = root.resolve()
        for system in _folders(whole, whole, problems):
            for collection in _folders(system, whole, problems):
                for name, read in self._files(collection, whole, problems).items():
                    yield collection / name, read

    def _files(self, folder: Path, root: Path, problems: list[str]) -> dict[str, _Read]:
        try:
            changed = folder.stat().st_mtime_ns
        except OSError:
            return {}
        known = self._folders.get(folder)
        if known and known.changed == changed and time.time() - changed / 1e9 > FRESH:
            return known.files
        before = known.files if known else {}
        files: dict[str, _Read] = {}
        for item in _listed(folder, problems):
            if item.name.endswith(".json") and not item.name.startswith("."):
                if _leaves(item, root, problems) or not item.is_file():
                    continue
                status = item.stat()
                stamp = (status.st_mtime_ns, status.st_size)
                kept = before.get(item.name)
                files[item.name] = kept if kept and kept.stamp == stamp else _read(root, Path(item.path), stamp)
        self._folders[folder] = _Folder(changed, files)
        return files


def _read(root: Path, path: Path, stamp: tuple[int, int]) -> _Read:
    if stamp[1] > LARGEST:
        return _Read(stamp, None, f"{path}: {stamp[1] >> 20} MiB are too many for a result file")
    try:
        result = ResultStore(root).read(path)
    except ResultError as error:
        return _Read(stamp, None, str(error))
    return _Read(stamp, result, "")


def _folders(parent: Path, root: Path, problems: list[str]) -> Iterator[Path]:
    for item in _listed(parent, problems):
        if not item.name.startswith(".") and not _leaves(item, root, problems) and item.is_dir():
            yield Path(item.path)


def _listed(folder: Path, problems: list[str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as items:
            return sorted(items, key=lambda item: item.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{folder}: cannot be read ({error.strerror or error})")
        return []


def _leaves(item: os.DirEntry[str], root: Path, problems: list[str]) -> bool:
    """Whether a link leads out of the results folder."""
    if not item.is_symlink() or Path(item.path).resolve().is_relative_to(root):
        return False
    problems.append(f"{item.path}: a link out of the results folder is not followed")
    return True


def inside(path: Path, roots: Sequence[Path]) -> bool:
    """Whether a file lies, links followed, in one of the folders."""
    whole = path.resolve()
    return any(whole.is_relative_to(root.resolve()) for root in roots)


def _short(root: Path, roots: Sequence[Path]) -> str:
    names = [r.resolve().name for r in roots]
    own = root.resolve().name
    return own if names.count(own) == 1 else str(root)
