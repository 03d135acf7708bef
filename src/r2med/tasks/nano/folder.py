"""The files of a Nano folder: their names, `manifest.json`, `metadata/<split>.json`, the card, and schemas that agree.

The header of the card, `README.md`, tells the `datasets` library which files are which config and split.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from ..._version import __version__
from ...core import DataError, Task, UsageError
from ...core.columns import grouped
from ...core.files import sha256_of, write_bytes
from ...core.stores import open_store
from ...core.table import NONE, Table, markdown_text
from ...core.untrusted import component, inside
from ..catalogue import entries
from ..formats.arrow import pyarrow
from ..formats.parquet import GENERIC_SPLITS, MANIFEST
from ..load import TaskRef
from ..stats import Stats
from . import Account, Pool, PoolSettings
from .figures import ROLES, TaskFigures

Role = Literal["bm25", "dense", "hybrid"]
S = TypeVar("S", bound=msgspec.Struct)

SCHEMA = 1
HYBRID = "reranking_hybrid"
RESERVED = {"corpus", "queries", "qrels", "default", "metadata", "pages", "bm25", HYBRID}
FILLING: dict[str, Any] = {"title": "", "score": 1, "answer": None, "body_system": None}
"""What a split gets in a column that only others have: nothing that changes its content when it is read again."""


def split_name(ref: TaskRef, given: str = "") -> str:
    """The split of a Nano task: NanoR2MED's own name for a task of R2MED, else the task's name.

    The `datasets` library takes letters, digits and underscores only.
    """
    published = {e.name: e.split for e in entries("nano")}
    if given:
        name = given
    elif ref.collection == "r2med":
        name = published[ref.name]
    elif ref.entry is not None:
        name = f"Nano{ref.collection.capitalize()}{ref.name.replace('-', '')}"
    else:
        name = ref.split or ref.name
    name = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    if not name or name in GENERIC_SPLITS:
        raise UsageError(f"a Nano task cannot be called {given or ref.name!r}; give it a name with --name")
    return name


def set_name(refs: Sequence[TaskRef], splits: Sequence[str], given: str = "") -> str:
    """The name of a group: that given, `NanoR2MED`, `NanoMini` or `Nano mine` for a collection, else from the tasks."""
    if given:
        return given
    collection = refs[0].collection if len({ref.collection for ref in refs}) == 1 else ""
    if collection:
        return {"mini": "NanoMini", "nano": "NanoR2MED", "r2med": "NanoR2MED"}.get(collection, f"Nano {collection}")
    return splits[0] if len(splits) == 1 else f"{len(splits)} Nano retrieval tasks"


def config_name(retriever: str) -> str:
    """The config of a dense retriever's candidates: NanoR2MED's own for Harrier, else the retriever's name."""
    if retriever == "harrier":
        return "harrier_oss_v1_270m"
    name = re.sub(r"\W+", "_", retriever, flags=re.ASCII).strip("_").lower()
    return f"dense_{name}" if not name or name in RESERVED else name


def role_of(config: str) -> Role:
    """Which of the three profiles a candidate config is."""
    return "bm25" if config == "bm25" else "hybrid" if config == HYBRID else "dense"


class DocumentEntry(msgspec.Struct, omit_defaults=True):
    """How one document got in."""

    id: str
    by: str
    query: str = ""
    rank: int = 0


class TaskManifest(Account, kw_only=True):
    """How one task was made, document by document, without a date or a path."""

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
    admitted: dict[str, int]
    pool: list[DocumentEntry]


class Manifest(msgspec.Struct):
    """The whole folder: its tasks, and the hash of every file."""

    schema: int
    made_by: str
    tasks: dict[str, TaskManifest]
    files: dict[str, str]


class Metadata(msgspec.Struct, kw_only=True):
    """What a task is and how its candidates were made."""

    task: str
    split: str
    source: str
    revision: str
    description: str
    family: str
    licence: str
    fingerprint: str
    stats: Stats
    figures: TaskFigures
    retrievers: dict[str, dict[str, Any]]
    safeguarded_queries: list[str]
    set: str = ""
    language: str = ""
    dataset: str = ""
    """The dataset on the hub that the task was made from."""


def task_manifest(
    source: Task, pool: Pool, settings: PoolSettings, candidates: list[dict[str, Any]], *, source_name: str
) -> TaskManifest:
    """The account of one built task."""
    ids, nano = source.documents.ids, pool.task
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
        positives_in_source=sum(j.grade > 0 and j.query_id in source.query_ids for j in source.qrels),
        positives=nano.qrels.positives,
        admitted=dict(Counter(a.by for a in pool.admissions)),
        pool=[DocumentEntry(ids[a.doc], a.by, a.query, a.rank) for a in pool.admissions],
        **msgspec.structs.asdict(pool.account),
    )


def write_manifest(folder: Path, tasks: dict[str, TaskManifest]) -> None:
    """Write `manifest.json` with the hash of every other file in the folder."""
    files = {
        path.relative_to(folder).as_posix(): sha256_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    manifest = Manifest(SCHEMA, f"r2med {__version__}", tasks, files)
    write_bytes(folder / MANIFEST, msgspec.json.encode(manifest) + b"\n")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a Nano folder, None where it has none (the published one)."""
    return _read(folder, MANIFEST, Manifest, "a manifest")


def changed_files(folder: Path, manifest: Manifest, split: str) -> list[str]:
    """Files of a split that are gone or no longer what the manifest says."""
    own = {n: d for n, d in manifest.files.items() if Path(n).name.startswith((f"{split}-", f"{split}."))}
    return [name for name, digest in own.items() if file_digest(folder, name) != digest]


def file_digest(folder: Path, name: str) -> str:
    """SHA-256 of a file that a manifest names; empty where it is missing, a link or no plain file."""
    path = inside(folder, name, "file")
    if not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
        return ""
    return sha256_of(path)


def write_metadata(folder: Path, metadata: Metadata) -> None:
    """Write the metadata of a split."""
    encoded = msgspec.json.encode(metadata, order="deterministic")
    write_bytes(
        inside(folder, _metadata_name(metadata.split, folder), "split"), msgspec.json.format(encoded, indent=2) + b"\n"
    )


def read_metadata(folder: Path, split: str) -> Metadata | None:
    """The metadata of a split, None where the folder or zip has none."""
    return _read(folder, _metadata_name(split, folder), Metadata, "a metadata file")


def _metadata_name(split: str, folder: Path) -> str:
    return f"metadata/{component(split, 'split', path=folder)}.json"


def _read(folder: Path, name: str, kind: type[S], what: str) -> S | None:
    store = open_store(folder)
    if name not in store.names():
        return None
    try:
        with store.open_raw(name) as stream:
            return msgspec.json.decode(stream.read(), type=kind)
    except (ValueError, RecursionError, OSError) as error:
        raise DataError(f"not {what} of r2med ({error})", path=store.label(name)) from None


def unify_schemas(folder: Path) -> None:
    """Give every split of a config the columns that any of them has: the `datasets` library refuses it otherwise."""
    pa = pyarrow()
    import pyarrow.parquet as pq

    for config in ("corpus", "queries", "qrels"):
        files = sorted((folder / config).glob("*.parquet"))
        schemas = [pq.read_schema(path) for path in files]
        fields = {field.name: field for schema in schemas for field in schema}
        for path, schema in zip(files, schemas, strict=True):
            if schema.names == list(fields):
                continue
            table = pq.read_table(path)
            for name in fields.keys() - set(schema.names):
                column = pa.array([FILLING[name]] * table.num_rows, fields[name].type)
                table = table.append_column(fields[name], column)
            pq.write_table(table.select(list(fields)), path, compression="zstd")


HUB_LICENCES = {"CC BY 4.0": "cc-by-4.0", "MIT": "mit", "Apache-2.0": "apache-2.0"}
TITLES = {"bm25": "BM25", "dense": "Dense", "hybrid": "Hybrid"}


class CardEntry(NamedTuple):
    """What the card says about one task."""

    split: str
    configs: list[str]
    manifest: TaskManifest
    figures: TaskFigures
    licence: str
    language: str = ""  # Empty where nobody said.
    medical: bool = False  # Whether it is made from a task of r2med's own collections, which all are.


def dataset_card(tasks: Sequence[CardEntry], title: str) -> str:
    """The whole card; its title is the name of the set, not of the folder it lies in."""
    several = len(tasks) > 1
    body = files(__package__).joinpath("card.txt").read_text("utf-8")
    body = body.format(
        count=f"{len(tasks)} retrieval tasks" if several else "One retrieval task",
        version=__version__,
        tasks=_task_table(tasks),
        scores=_score_table(tasks),
        split=tasks[0].split,
    )
    return f"{_header(tasks)}\n\n# {markdown_text(title)}\n\n{body}"


def _header(tasks: Sequence[CardEntry]) -> str:
    configs = grouped((c, task.split) for task in tasks for c in ("corpus", "queries", "qrels", *task.configs))
    licences = {HUB_LICENCES.get(task.licence, "other") for task in tasks}
    lines = ["---", f"license: {licences.pop() if len(licences) == 1 else 'other'}"]
    if all(task.language for task in tasks):
        lines += ["language:", *sorted({f"- {json.dumps(task.language)}" for task in tasks})]
    lines += ["task_categories:", "- text-retrieval", "tags:"]
    lines += [*(["- medical"] if all(task.medical for task in tasks) else []), "- information-retrieval", "configs:"]
    for config, splits in configs.items():
        lines += [f"- config_name: {config}", *(["  default: true"] if config == "corpus" else []), "  data_files:"]
        for split in splits:
            path = json.dumps(f"{config}/{split}-00000-of-00001.parquet")
            lines += [f"  - split: {split}", f"    path: {path}"]
    return "\n".join([*lines, "---"])


def _task_table(tasks: Sequence[CardEntry]) -> str:
    rows = []
    for task in tasks:
        made, figures = task.manifest, task.figures
        source = f"{made.source}@{made.revision}" if made.revision else made.source
        counts = [f"{count:,}" for count in (figures.queries, figures.documents, figures.positives)]
        rows.append([task.split, source, made.fill, *counts, str(made.seed)])
    titles = ["Task", "Source", "Fill", "Queries", "Documents", "Positives", "Seed"]
    return Table(titles, rows, left=3).markdown(ready=True)


def _score_table(tasks: Sequence[CardEntry]) -> str:
    roles = [role for role in ROLES if any(role in t.figures.profiles for t in tasks)]
    rows = []
    for task in tasks:
        profiles = task.figures.profiles
        rows.append([task.split, *(f"{profiles[r].ndcg_at_10:.4f}" if r in profiles else NONE for r in roles)])
    return Table(["Task", *(TITLES[role] for role in roles)], rows).markdown(ready=True)
