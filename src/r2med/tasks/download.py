"""Getting tasks from the Hugging Face hub: pinned, resumable, hashed, checked against the catalogue."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from ..core import DataError, MissingExtra, Unavailable
from ..core.files import HashKind, wrong_files
from .catalogue import TaskEntry, drop_in, locate, snapshot
from .formats import get_format
from .load import TaskRef

TIMEOUT = 20.0  # seconds for the hub's first answer


class Downloaded(NamedTuple):
    """One task that is now on this machine."""

    task: str
    path: str
    queries: int
    documents: int
    judgments: int
    fetched: bool


def download(entry: TaskEntry, *, force: bool = False) -> Downloaded:
    """Fetch a task into the hub's own cache; check the hash of every file and the counts of the catalogue."""
    present = locate(entry)
    cached = present is None or present == snapshot(entry)
    path = fetch(entry, force=force) if force or cached else present
    task = TaskRef(entry.name, entry.collection, entry, path, entry.split).load()
    have = (len(task.queries), len(task.documents), len(task.qrels))
    want = (entry.queries, entry.documents, entry.judgments)
    if have != want:
        names = ("queries", "documents", "judgments")
        wrong = ", ".join(f"{h:,} {n} instead of {w:,}" for h, w, n in zip(have, want, names, strict=True) if h != w)
        raise DataError(f"{entry.full_name} has {wrong}", path=path)
    return Downloaded(entry.full_name, str(path), *have, force or present is None)


def fetch(entry: TaskEntry, *, force: bool = False) -> Path:
    """The download itself: huggingface_hub does the resuming, we check what came and say what went wrong."""
    if not entry.dataset:
        raise DataError(f"{entry.full_name} is built in; there is nothing to download")
    hub, token = hub_client("downloading from the hub"), os.environ.get("HF_TOKEN") or None
    patterns = get_format(entry.layout).hub_patterns(entry.split)
    wanted = {"repo_type": "dataset", "revision": entry.revision, "allow_patterns": patterns, "token": token}
    try:
        if not force and snapshot(entry) is not None:
            try:
                return Path(hub.snapshot_download(entry.dataset, local_files_only=True, **wanted))
            except FileNotFoundError:
                pass  # an interrupted download: go on with it
        # The client tries an unreachable hub for half a minute before it gives up; one question first tells at once.
        api = hub.HfApi(token=token)
        info = api.dataset_info(entry.dataset, revision=entry.revision, timeout=TIMEOUT, files_metadata=True)
        folder = Path(hub.snapshot_download(entry.dataset, force_download=force, tqdm_class=_bars(hub), **wanted))
    except Exception as error:
        raise explain_failure(error, entry) from None
    _refuse_wrong_content(entry, folder, stated_hashes(info))
    return folder


def stated_hashes(info: Any) -> dict[str, tuple[HashKind, str]]:
    """What the hub says the content of each file hashes to: SHA-256 of large files, git's hash of small ones."""
    stated: dict[str, tuple[HashKind, str]] = {}
    for file in info.siblings or []:
        if file.lfs:
            stated[file.rfilename] = ("sha256", file.lfs["sha256"] if isinstance(file.lfs, dict) else file.lfs.sha256)
        elif file.blob_id:
            stated[file.rfilename] = ("git", file.blob_id)
    return stated


def _refuse_wrong_content(entry: TaskEntry, folder: Path, stated: dict[str, tuple[HashKind, str]]) -> None:
    """Remove files that are not what the hub says, so that nothing finds them, and say so."""
    if wrong := wrong_files(folder, stated):
        for name in wrong:
            (folder / name).resolve().unlink(missing_ok=True)
            (folder / name).unlink(missing_ok=True)
        raise DataError(
            f"{entry.full_name}: the hub sent {wrong[0]} with other content than it states (its hash differs); "
            f"{len(wrong)} such files were removed again"
        )


def explain_failure(error: Exception, entry: TaskEntry) -> Exception:
    """One line for what the hub client raised; anything that is not about the hub stays as it is."""
    names = {cls.__name__ for cls in type(error).__mro__}
    advice = f"put the files into {drop_in(entry)}, or give r2med a folder instead of the name"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if "RepositoryNotFoundError" in names or status in (401, 403):
        return Unavailable(f"the hub has no dataset {entry.dataset}, or HF_TOKEN has no access to it")
    if "RevisionNotFoundError" in names:
        return Unavailable(f"the hub has no revision {entry.revision} of {entry.dataset}")
    if "OfflineModeIsEnabled" in names or ("LocalEntryNotFoundError" in names and offline()):
        return Unavailable(f"{entry.full_name} is not in the cache and HF_HUB_OFFLINE forbids the network: {advice}")
    about_network = ("LocalEntryNotFoundError", "HfHubHTTPError", "HTTPError", "TransportError", "ConnectionError")
    if names & {*about_network, "OSError", "TimeoutException", "RequestException", "RuntimeError", "ValueError"}:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
        return Unavailable(f"cannot download {entry.full_name} from {endpoint} ({first[:200]}): {advice}")
    return error


def _bars(hub: Any) -> Any:
    """The client's progress bars, on a terminal only: one of them would show everywhere."""

    class Bars(hub.utils.tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options | {"disable": options.get("disable") or None})

    return Bars


def offline() -> bool:
    """Whether the user forbade the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def hub_client(purpose: str) -> Any:
    """The hub's own library, or the extra that brings it."""
    try:
        import huggingface_hub
        import huggingface_hub.utils
    except ImportError:
        raise MissingExtra(purpose, "hub") from None
    return huggingface_hub
