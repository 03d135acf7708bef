"""Folders ready for the hub: a Nano dataset or a set of results, with a card, sizes known, nothing private in them."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import msgspec

from ..core import DataError, HostileData, UsageError
from ..core.atomic import atomic_folder, write_bytes
from ..results import ResultIndex, ResultStore, TaskResult
from ..results.store import checksum, encode_result
from ..tasks.nano import Manifest, read_manifest
from ..tasks.nano.metadata import read_metadata
from .exporting import results_in
from .hub_cards import MARK, known_licences, nano_card, results_card

REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
PATH = r"(/|~|[A-Za-z]:\\)"
BESIDE = (".run.gz", ".queries.jsonl", ".expansions.jsonl")


class Prepared(NamedTuple):
    """A folder that can be uploaded as it is."""

    repo: str
    kind: Literal["nano", "results"]
    folder: Path
    files: dict[str, int]
    """Path in the repository and size in bytes."""
    licence: str
    """Empty where the source states none."""

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(self.files.values())


def prepare(folder: Path, repo: str, out: Path, *, licence: str = "") -> Prepared:
    """Write a copy of a Nano folder or a results folder with its card into `out`.

    An earlier preparation is replaced; any other folder that is not empty is left alone.
    """
    check_repo(repo)
    if not folder.is_dir():
        raise DataError("no such folder", path=folder)
    if out.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise UsageError(f"{out} holds what is to be exported: choose another --out")
    manifest, store = read_manifest(folder), results_in(str(folder))
    if manifest is None and store is None:
        raise DataError("is neither a Nano folder (r2med nano build) nor a results folder (r2med run)", path=folder)
    _clear(out)
    with atomic_folder(out) as new:
        if manifest is not None:
            licence = _nano(folder, manifest, new, repo, licence)
        else:
            assert store is not None
            licence = _results(store, new, repo, licence)
    files = {p.relative_to(out).as_posix(): p.stat().st_size for p in sorted(out.rglob("*")) if p.is_file()}
    return Prepared(repo, "nano" if manifest is not None else "results", out, files, licence)


def check_repo(repo: str) -> None:
    """Refuse what the hub would refuse, before anything is written."""
    if not REPO.fullmatch(repo) or "--" in repo or ".." in repo or repo.endswith((".git", "-", ".")):
        raise UsageError(f"{repo!r} is not a repository id: expected organisation/name, letters, digits, - _ and .")


def _clear(out: Path) -> None:
    """Remove an earlier preparation; a clone of the repository holds the card too, and is somebody's work."""
    card = out / "README.md"
    if out.is_symlink() or (out / ".git").exists() or not card.is_file():
        return
    if MARK in card.read_text("utf-8", errors="replace"):
        shutil.rmtree(out)


def _nano(folder: Path, manifest: Manifest, new: Path, repo: str, licence: str) -> str:
    for name, digest in manifest.files.items():
        source = folder / name
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise HostileData(f"names {name!r}, which lies outside the folder", path=folder / "manifest.json")
        if not source.is_file() or hashlib.sha256(source.read_bytes()).hexdigest() != digest:
            raise DataError("is missing or was changed since the folder was built; build it again", path=source)
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, new / name)
    described = [d for split in manifest.tasks if (d := read_metadata(folder, split)) is not None]
    licence = licence or known_licences(d.licence for d in described)
    card = nano_card((folder / "README.md").read_text("utf-8"), repo, manifest, licence).encode()
    write_bytes(new / "README.md", card)
    manifest.files["README.md"] = hashlib.sha256(card).hexdigest()
    write_bytes(new / "manifest.json", msgspec.json.encode(manifest) + b"\n")
    return licence


def _results(store: ResultStore, new: Path, repo: str, licence: str) -> str:
    stored = ResultIndex([store.root]).select()
    results = [one.result for one in stored]
    for one, result in zip(stored, results, strict=True):
        if re.match(PATH, result.system.name):
            raise UsageError(
                f"system {result.system.name!r} shows a path of this machine: run it again under a name or from a "
                "relative folder"
            )
        target = ResultStore(new / "results").path(result.system.name, result.task.collection, result.task.name)
        write_bytes(target, encode_result(public(result)))
        for suffix in BESIDE:
            if one.beside(suffix).is_file():
                shutil.copyfile(one.beside(suffix), target.with_suffix(suffix))
    licence = licence or known_licences(_licence_of(result) for result in results)
    write_bytes(new / "scores.jsonl", b"".join(msgspec.json.encode(row) + b"\n" for row in _rows(results)))
    write_bytes(new / "README.md", results_card(results, repo, licence).encode())
    return licence


def _rows(results: Iterable[TaskResult]) -> Iterable[dict[str, object]]:
    for r in results:
        facts = {"system": r.system.name, "kind": r.system.kind, "collection": r.task.collection, "task": r.task.name}
        yield {**facts, "queries": r.task.queries, "documents": r.task.documents, **r.measures}


def _licence_of(result: TaskResult) -> str:
    from ..tasks import collections

    known = collections().get(result.task.collection)
    return known.licence if known else ""


def public(result: TaskResult) -> TaskResult:
    """A result without the paths of the machine it was made on: of each, only the last part stays."""
    shown = msgspec.convert(_without_paths(msgspec.to_builtins(result)), TaskResult)
    shown.checksum = checksum(shown)
    return shown


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {_without_paths(k): _without_paths(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_paths(v) for v in value]
    if isinstance(value, str) and re.match(PATH, value) and "\n" not in value:
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return value
