"""Getting tasks from the Hugging Face hub, pinned, resumable, checked against the catalogue."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from ..core import DataError, MissingExtra, Unavailable
from .catalogue import TaskEntry
from .load import TaskRef
from .places import drop_in, locate, snapshot

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
    """Fetch a task into the hub's own cache and check its counts."""
    present = locate(entry)
    cached = present is None or present == snapshot(entry)
    path = fetch(entry, force=force) if force or cached else present
    ref = TaskRef(entry.name, entry.collection, entry, path, entry.split)
    return check(ref, entry, fetched=force or present is None)


def check(ref: TaskRef, entry: TaskEntry, *, fetched: bool) -> Downloaded:
    """Compare what was fetched with what the catalogue says."""
    task = ref.load()
    have = (len(task.queries), len(task.documents), len(task.qrels))
    want = (entry.queries, entry.documents, entry.judgments)
    if have != want:
        names = ("queries", "documents", "judgments")
        wrong = ", ".join(f"{h:,} {n} instead of {w:,}" for h, w, n in zip(have, want, names, strict=True) if h != w)
        raise DataError(f"{entry.full_name} has {wrong}", path=ref.path)
    return Downloaded(entry.full_name, str(ref.path), *have, fetched)


def fetch(entry: TaskEntry, *, force: bool = False) -> Path:
    """The download itself: huggingface_hub does the resuming, we say what went wrong."""
    if not entry.dataset:
        raise DataError(f"{entry.full_name} is built in; there is nothing to download")
    hub, token = _hub(), os.environ.get("HF_TOKEN") or None
    patterns = [f"*/{entry.split}*.parquet", f"data/*/{entry.split}*.parquet"] if entry.layout == "nano" else None
    wanted = {"repo_type": "dataset", "revision": entry.revision, "allow_patterns": patterns, "token": token}
    try:
        if not force and snapshot(entry) is not None:
            try:
                return Path(hub.snapshot_download(entry.dataset, local_files_only=True, **wanted))
            except FileNotFoundError:
                pass  # an interrupted download: go on with it
        # The client tries an unreachable hub for half a minute before it gives up; one question first tells at once.
        hub.HfApi(token=token).dataset_info(entry.dataset, revision=entry.revision, timeout=TIMEOUT)
        return Path(hub.snapshot_download(entry.dataset, force_download=force, tqdm_class=_bars(hub), **wanted))
    except Exception as error:
        raise explain_failure(error, entry) from None


def explain_failure(error: Exception, entry: TaskEntry) -> Exception:
    """One line for what the hub client raised; anything that is not about the hub stays as it is."""
    names = {cls.__name__ for cls in type(error).__mro__}
    advice = f"put the files into {drop_in(entry)}, or give r2med a folder instead of the name"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if "RepositoryNotFoundError" in names or status in (401, 403):
        return Unavailable(f"the hub has no dataset {entry.dataset}, or HF_TOKEN has no access to it")
    if "RevisionNotFoundError" in names:
        return Unavailable(f"the hub has no revision {entry.revision} of {entry.dataset}")
    if "OfflineModeIsEnabled" in names or ("LocalEntryNotFoundError" in names and _offline()):
        return Unavailable(f"{entry.full_name} is not in the cache and HF_HUB_OFFLINE forbids the network: {advice}")
    about_network = ("LocalEntryNotFoundError", "HfHubHTTPError", "HTTPError", "TransportError", "ConnectionError")
    if names & {*about_network, "OSError", "TimeoutException", "RequestException", "RuntimeError", "JSONDecodeError"}:
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


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtra("downloading from the hub", "hub") from None
    return huggingface_hub
