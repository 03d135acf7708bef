"""`manifest.json`: how each Nano task was made, document by document, without a date or a path."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from ..._version import __version__
from ...core import DataError, Task
from ...core.atomic import write_bytes
from .pool import Pool, PoolSettings

SCHEMA = 1


class DocumentEntry(msgspec.Struct, omit_defaults=True):
    """How one document got in."""

    id: str
    by: str
    query: str = ""
    rank: int = 0


class TaskManifest(msgspec.Struct):
    """The account of one task."""

    task: str
    source: str
    revision: str
    source_fingerprint: str
    fingerprint: str
    docs: int
    fill: str
    seed: int
    candidates: list[dict[str, Any]]
    queries_in_source: int
    queries: int
    documents_in_source: int
    documents: int
    positives_in_source: int
    positives: int
    positives_merged: int
    duplicate_queries: dict[str, str]
    queries_without_positive: list[str]
    judgments_of_missing_documents: list[tuple[str, str]]
    copies_merged_into_positives: dict[str, str]
    copies_left_out: int
    admitted: dict[str, int]
    pool: list[DocumentEntry]


class Manifest(msgspec.Struct):
    """The whole folder."""

    schema: int
    made_by: str
    tasks: dict[str, TaskManifest]
    files: dict[str, str]


def task_manifest(
    source: Task, pool: Pool, settings: PoolSettings, candidates: list[dict[str, Any]], *, source_name: str
) -> TaskManifest:
    """The account of one built task."""
    ids, nano = source.documents.ids, pool.task
    asked = source.query_ids
    return TaskManifest(
        task=source.full_name,
        source=source_name,
        revision=source.revision,
        source_fingerprint=source.fingerprint,
        fingerprint=nano.fingerprint,
        docs=settings.docs,
        fill=settings.fill,
        seed=settings.seed,
        candidates=candidates,
        queries_in_source=len(source.queries),
        queries=len(nano.queries),
        documents_in_source=len(source.documents),
        documents=len(nano.documents),
        positives_in_source=sum(j.grade > 0 and j.query_id in asked for j in source.qrels),
        positives=nano.qrels.positives,
        positives_merged=pool.positives_merged,
        duplicate_queries=pool.duplicate_queries,
        queries_without_positive=pool.queries_without_positive,
        judgments_of_missing_documents=pool.judgments_of_missing_documents,
        copies_merged_into_positives=pool.merged_copies,
        copies_left_out=pool.copies_left_out,
        admitted=dict(Counter(a.by for a in pool.admissions)),
        pool=[DocumentEntry(ids[a.doc], a.by, a.query, a.rank) for a in pool.admissions],
    )


def write_manifest(folder: Path, tasks: dict[str, TaskManifest]) -> None:
    """Write `manifest.json` with the hash of every other file in the folder."""
    files = {
        path.relative_to(folder).as_posix(): _digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }
    manifest = Manifest(SCHEMA, f"r2med {__version__}", tasks, files)
    write_bytes(folder / "manifest.json", msgspec.json.encode(manifest) + b"\n")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a Nano folder, None where it has none (the published one)."""
    path = folder / "manifest.json"
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (ValueError, RecursionError, OSError) as error:
        raise DataError(f"not a manifest of r2med ({error})", path=path) from None


def changed_files(folder: Path, manifest: Manifest, split: str) -> list[str]:
    """Files of a split that are gone or no longer what the manifest says."""
    own = {
        name: digest
        for name, digest in manifest.files.items()
        if Path(name).name.startswith((f"{split}-", f"{split}."))
    }
    return [name for name, digest in own.items() if _digest(folder / name) != digest]


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
