"""Publishing on the hub: a Nano dataset or a set of results, prepared as a folder with a card, then uploaded.

Only plain files inside the folder are taken, never what a link leads to elsewhere. An upload is one commit, there whole
or not at all, and large files that arrived are not sent twice: to run it again is safe.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from .._version import __version__
from ..core import DataError, R2MedError, Unavailable, UsageError
from ..core.files import atomic_folder, write_bytes
from ..core.hub import MOST_LISTED, SLOWEST, bounded_replies, library, offline
from ..core.parallel import in_time
from ..core.stores import FolderStore
from ..core.table import Table, counted, markdown_text, points
from ..core.untrusted import inside
from ..report.scores import score_table
from ..results import ResultStore, TaskResult
from ..results.beside import BESIDE
from ..results.bundle import public
from ..results.store import indented_json
from ..tasks import collections
from ..tasks.nano.folder import HUB_LICENCES, Manifest, read_manifest, read_metadata
from .exporting import results_in, select_results

MARK = "<!-- prepared by r2med export hub -->"
NOT_CLINICAL = (
    "For research on retrieval. This is not a clinical decision system and not a source of medical advice: a passage "
    "that ranks high is not thereby true, current or right for a patient."
)
PUBLIC_HUB = "https://huggingface.co"
REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
UPLOAD_WITHIN = 600.0  # seconds for an upload, and then those that its bytes take at the slowest


def known_licences(licences: Iterable[str]) -> str:
    """The licence that all sources share; empty where one of them states none or they differ."""
    found = set(licences)
    return found.pop() if len(found) == 1 else ""


def nano_card(card: str, repo: str, manifest: Manifest, licence: str) -> str:
    """The card of a Nano folder with its place on the hub, its sources and their terms."""
    text = card.replace("path/to/this/folder", repo)
    head, _, body = text.removeprefix("---\n").partition("\n---\n")
    stated = f"license: {_hub_licence(licence)}"
    lines = [stated if line.startswith("license:") else line for line in head.split("\n")]
    rows = [
        [split, _source(t.source, t.revision), f"`{t.source_fingerprint[:16]}`", f"`{t.fingerprint[:16]}`"]
        for split, t in manifest.tasks.items()
    ]
    titles = ["Task", "Source", "Fingerprint of the source", "Fingerprint of this task"]
    return "\n".join(
        [
            "---", *lines, "---", MARK, body.strip(), "",
            "## Provenance", "",
            f"Built by {manifest.made_by}, prepared for the hub by r2med {__version__}. Fingerprints are hashes of the "
            "whole content; two tasks with equal ones hold the same texts and judgments.", "",
            Table(titles, rows, left=4).markdown(ready=True), "",
            _terms(licence), "", NOT_CLINICAL, "",
        ]
    )  # fmt: skip


def results_card(results: Sequence[TaskResult], repo: str, licence: str) -> str:
    """The card of a set of results."""
    by_collection: dict[str, list[TaskResult]] = {}
    for result in results:
        by_collection.setdefault(result.task.collection, []).append(result)
    tables = [
        f"## {name or 'Tasks of our own'}: nDCG@10 × 100\n\n{_scores(found)}" for name, found in by_collection.items()
    ]
    template = files(__package__).joinpath("results_card.txt").read_text("utf-8")
    return template.format(
        licence=_hub_licence(licence),
        mark=MARK,
        systems=counted(len({r.system.name for r in results}), "retrieval system"),
        results=counted(len(results), "result"),
        tables="\n\n".join(tables),
        repo=repo,
        provenance=_provenance(results),
        terms=_terms(licence),
        not_clinical=NOT_CLINICAL,
    )


def _scores(results: Sequence[TaskResult]) -> str:
    """A table of one collection, best average first; a system that lacks a task has none and stands last."""
    found = score_table(results)
    ranked = sorted(found.rows, key=lambda row: 1.0 if row.macro is None else -row.macro)
    rows = [[row.system, *(points(row.tasks.get(t)) for t in found.tasks), points(row.macro)] for row in ranked]
    return Table(["System", *(t.rpartition("/")[2] for t in found.tasks), "Average"], rows).markdown()


def _provenance(results: Sequence[TaskResult]) -> str:
    made = [r.environment.get("versions") for r in results]
    versions = sorted({str(v.get("r2med", "unknown") if isinstance(v, dict) else "unknown") for v in made})
    rows = []
    for name, t in {r.task.full_name: r.task for r in results}.items():
        source = t.source if not t.source.startswith(("/", "~")) else "a folder of our own"
        shown = [markdown_text(text) for text in (name, _source(source, t.revision))]
        rows.append([*shown, f"`{t.fingerprint[:16]}`", f"{t.queries:,}", f"{t.documents:,}"])
    table = Table(["Task", "Source", "Fingerprint", "Queries", "Documents"], rows, left=3).markdown(ready=True)
    return f"Measured with r2med {', '.join(versions)}; prepared for the hub by r2med {__version__}.\n\n{table}"


def _source(source: str, revision: str) -> str:
    """`org/name@revision` as the hub writes it; in words where the source is no repository."""
    if not revision:
        return source
    return f"{source}@{revision}" if "/" in source else f"{source}, revision {revision}"


def _terms(licence: str) -> str:
    said = (
        f"The source data are under {licence}. Keep to its terms, and credit the source, when you use what was made "
        "from them."
        if licence
        else "The licence of the source data is not stated here: the terms of each source apply."
    )
    return f"## Source and licence\n\n{said}"


def _hub_licence(licence: str) -> str:
    return HUB_LICENCES.get(licence, licence if licence in HUB_LICENCES.values() else "other")


class Prepared(NamedTuple):
    """A folder that can be uploaded as it is."""

    repo: str
    kind: Literal["nano", "results"]
    folder: Path
    files: dict[str, int]  # Path in the repository and size in bytes.
    licence: str  # Empty where the source states none.

    @property
    def size(self) -> int:
        return sum(self.files.values())


class Uploaded(NamedTuple):
    """Where it now is."""

    url: str
    commit: str


def prepare(folder: Path, repo: str, out: Path, *, licence: str = "") -> Prepared:
    """Write a copy of a Nano folder or a results folder with its card into `out`.

    An earlier preparation is replaced; any other folder that is not empty is left alone.
    """
    if not REPO.fullmatch(repo) or "--" in repo or ".." in repo or repo.endswith((".git", "-", ".")):
        raise UsageError(f"{repo!r} is not a repository id: expected organisation/name, letters, digits, - _ and .")
    if not folder.is_dir():
        raise DataError("no such folder", path=folder)
    if out.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise UsageError(f"{out} holds what is to be exported: choose another --out")
    manifest = read_manifest(folder)
    if manifest is None and results_in(str(folder)) is None:
        raise DataError("is neither a Nano folder (r2med nano build) nor a results folder (r2med run)", path=folder)
    _clear(out)
    with atomic_folder(out) as new:
        if manifest is not None:
            licence = _nano(folder, manifest, new, repo, licence)
        else:
            licence = _results(folder, new, repo, licence)
    files = {p.relative_to(out).as_posix(): p.stat().st_size for p in sorted(out.rglob("*")) if p.is_file()}
    return Prepared(repo, "nano" if manifest is not None else "results", out, files, licence)


def _clear(out: Path) -> None:
    """Remove an earlier preparation; a clone of the repository holds the card too, and is somebody's work."""
    card = out / "README.md"
    if out.is_symlink() or (out / ".git").exists() or not card.is_file():
        return
    if MARK in card.read_text("utf-8", errors="replace"):
        shutil.rmtree(out)


def _copy(source: FolderStore, name: str, target: Path) -> str:
    """Copy a plain file of a folder and return its SHA-256; a link that leads out of the folder is refused."""
    inside(source.path, name, "file")
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with source.open_raw(name) as stream, target.open("wb") as copy:
        while block := stream.read(1 << 20):
            digest.update(block)
            copy.write(block)
    return digest.hexdigest()


def _nano(folder: Path, manifest: Manifest, new: Path, repo: str, licence: str) -> str:
    source = FolderStore(folder)
    for name, digest in manifest.files.items():
        if not inside(folder, name, "file").is_file() or _copy(source, name, inside(new, name, "file")) != digest:
            raise DataError(
                "is missing or was changed since the folder was built; build it again", path=source.label(name)
            )
    described = [d for split in manifest.tasks if (d := read_metadata(new, split)) is not None]
    licence = licence or known_licences(d.licence for d in described)
    card = nano_card((new / "README.md").read_text("utf-8"), repo, manifest, licence).encode()
    write_bytes(new / "README.md", card)
    manifest.files["README.md"] = hashlib.sha256(card).hexdigest()
    write_bytes(new / "manifest.json", msgspec.json.encode(manifest) + b"\n")
    return licence


def _results(folder: Path, new: Path, repo: str, licence: str) -> str:
    stored, source = select_results(folder), FolderStore(folder)
    results = [one.result for one in stored]
    for one, result in zip(stored, results, strict=True):
        path = one.path.relative_to(folder.resolve())
        target = ResultStore(new / "results").path(result.system.name, result.task.collection, result.task.name)
        write_bytes(target, indented_json(public(result)))
        for suffix in BESIDE:
            if one.path.with_suffix(suffix).is_file():
                _copy(source, path.with_suffix(suffix).as_posix(), target.with_suffix(suffix))
    known = collections()
    terms = (known[r.task.collection].licence if r.task.collection in known else "" for r in results)
    licence = licence or known_licences(terms)
    lines = []
    for r in results:
        facts = {"system": r.system.name, "kind": r.system.kind, "collection": r.task.collection, "task": r.task.name}
        row = {**facts, "queries": r.task.queries, "documents": r.task.documents, **r.measures}
        lines.append(msgspec.json.encode(row) + b"\n")
    write_bytes(new / "scores.jsonl", b"".join(lines))
    write_bytes(new / "README.md", results_card(results, repo, licence).encode())
    return licence


def upload(prepared: Prepared, *, private: bool) -> Uploaded:
    """Create the dataset repository where there is none, and commit the folder to it."""
    if not prepared.licence:
        raise UsageError("the source data state no licence, or several: say under which one you publish (--licence)")
    if offline():
        raise Unavailable("HF_HUB_OFFLINE forbids uploading")
    hub = library("uploading to the hub")
    token = os.environ.get("HF_TOKEN") or hub.get_token()
    if not token:
        raise UsageError("uploading needs a token: set HF_TOKEN, or log in once with hf auth login")
    if not sys.stderr.isatty():
        hub.utils.disable_progress_bars()
    endpoint = os.environ.get("HF_ENDPOINT") or PUBLIC_HUB
    api = hub.HfApi(endpoint=endpoint, token=token)

    def send() -> Any:
        _create(api, prepared.repo, private=private)
        return api.upload_folder(
            repo_id=prepared.repo,
            repo_type="dataset",
            folder_path=str(prepared.folder),
            commit_message=f"r2med export hub: {len(prepared.files)} files",
        )

    try:
        with bounded_replies(hub, MOST_LISTED):
            done = in_time(send, UPLOAD_WITHIN + prepared.size / SLOWEST)
    except R2MedError:
        raise
    except Exception as error:
        raise explain(error, prepared.repo, endpoint, token) from None
    return Uploaded(f"{endpoint}/datasets/{prepared.repo}", done.oid)


def _create(api: Any, repo: str, *, private: bool) -> None:
    api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
    if private and not api.dataset_info(repo).private:  # one that was there keeps its visibility
        raise UsageError(f"{repo} is there already and public: nothing was uploaded")


def explain(error: Exception, repo: str, endpoint: str, token: str) -> R2MedError:
    """One line for whatever the client raised, without the token."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    names = {cls.__name__ for one in causes for cls in type(one).__mro__}
    codes = (getattr(getattr(one, "response", None), "status_code", None) for one in causes)
    status = next((code for code in codes if isinstance(code, int)), None)
    if status == 401:
        return Unavailable(f"{endpoint} does not accept the token (HF_TOKEN, or the one hf auth login stored)")
    if status == 403:
        return Unavailable(f"the token has no right to write to {repo}: choose another --repo or ask its owner")
    if status == 404:
        return Unavailable(f"the hub has no {repo} that this token may write to")
    said = f"{type(error).__name__}: {' '.join(str(error).split())}".replace(token, "…")[:300]
    if "HFValidationError" in names:
        return UsageError(f"{repo!r} is not a repository id ({said})")
    return Unavailable(f"cannot upload to {repo} at {endpoint} ({said}); to run it again is safe")
