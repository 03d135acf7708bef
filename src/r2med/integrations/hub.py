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
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from ..core import DataError, R2MedError, Unavailable, UsageError
from ..core.atomic import atomic_folder, write_bytes
from ..core.hub import MOST_LISTED, SLOWEST, bounded_replies, library, offline
from ..core.stores import FolderStore
from ..core.untrusted import inside
from ..core.waiting import in_time
from ..results import ResultIndex, ResultStore, TaskResult
from ..results.store import checksum, encode_result
from ..tasks import collections
from ..tasks.nano.folder import Manifest, read_manifest, read_metadata
from .exporting import results_in
from .hub_cards import MARK, known_licences, nano_card, results_card

PUBLIC_HUB = "https://huggingface.co"
REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
PATH = r"(/|~|[A-Za-z]:\\)"
UPLOAD_WITHIN = 600.0
"""Seconds for an upload, and then those that its bytes take at the slowest."""
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


def _results(store: ResultStore, new: Path, repo: str, licence: str) -> str:
    stored, source = ResultIndex([store.root]).select(), FolderStore(store.root)
    results = [one.result for one in stored]
    for one, result in zip(stored, results, strict=True):
        if re.match(PATH, result.system.name):
            raise UsageError(
                f"system {result.system.name!r} shows a path of this machine: run it again under a name or from a "
                "relative folder"
            )
        path = one.path.relative_to(store.root.resolve())
        target = ResultStore(new / "results").path(result.system.name, result.task.collection, result.task.name)
        write_bytes(target, encode_result(public(result)))
        for suffix in BESIDE:
            if one.path.with_suffix(suffix).is_file():
                _copy(source, path.with_suffix(suffix).as_posix(), target.with_suffix(suffix))
    known = collections()
    terms = (known[r.task.collection].licence if r.task.collection in known else "" for r in results)
    licence = licence or known_licences(terms)
    write_bytes(new / "scores.jsonl", b"".join(msgspec.json.encode(row) + b"\n" for row in _rows(results)))
    write_bytes(new / "README.md", results_card(results, repo, licence).encode())
    return licence


def _rows(results: Iterable[TaskResult]) -> Iterable[dict[str, object]]:
    for r in results:
        facts = {"system": r.system.name, "kind": r.system.kind, "collection": r.task.collection, "task": r.task.name}
        yield {**facts, "queries": r.task.queries, "documents": r.task.documents, **r.measures}


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
