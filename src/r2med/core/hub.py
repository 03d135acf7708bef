"""The Hugging Face hub: one question first, then the files, each compared with what the hub's own list says of it.

Needs the extra `hub`, imported when it is used. `HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME` and `HF_HUB_OFFLINE` work as in
huggingface_hub.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .errors import MissingExtra, Unavailable
from .files import git_blob_id, sha256_of
from .parallel import in_parallel
from .places import hub_cache
from .plugins import first_line
from .untrusted import inside

ANSWER_WITHIN = 5.0  # seconds for the first answer: a laptop on a train should not wait for minutes
AT_ONCE = 8
NETWORK_ERRORS = {
    *("HTTPError", "TransportError", "LocalEntryNotFoundError", "OfflineModeIsEnabled", "OSError", "ConnectionError"),
    *("TimeoutException", "RequestException", "HfHubHTTPError", "JSONDecodeError", "RuntimeError"),
}


class Repository(NamedTuple):
    """A repository of the hub at one revision."""

    name: str
    revision: str
    kind: Literal["model", "dataset"] = "model"


class Download(NamedTuple):
    """A repository that is now in the hub's cache."""

    folder: Path
    verified: bool
    """Whether every file was hashed and compared with the hub's list; a mirror may list no hashes."""


def offline() -> bool:
    """Whether the user forbade the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def download(
    repository: Repository,
    choose: Callable[[list[str]], list[str]],
    *,
    force: bool = False,
    progress: bool = False,
) -> Download:
    """Put those files of a repository that `choose` picks into the hub's own cache, where every other tool finds them.

    A file whose content is not what the hub's list says is removed again and refused.
    """
    if offline():
        raise Unavailable(f"HF_HUB_OFFLINE forbids downloading {repository.name}")
    hub = library()
    where = {"repo_type": repository.kind, "revision": repository.revision}
    access = {"endpoint": os.environ.get("HF_ENDPOINT") or None, "token": os.environ.get("HF_TOKEN") or None}

    def fetch(name: str, _: threading.Event) -> tuple[str, Path]:
        path = hub.hf_hub_download(
            repository.name, name, cache_dir=hub_cache(), force_download=force, **where, **access
        )
        return name, Path(path)

    with _explained(repository):
        # The client tries an unreachable hub for half a minute before it gives up; one question first tells at once.
        info = hub.HfApi(**access).repo_info(repository.name, files_metadata=True, timeout=ANSWER_WITHIN, **where)
    listed = {file.rfilename: file for file in info.siblings or []}
    names = choose(list(listed))
    if not names:
        raise Unavailable(f"{repository.name} on the hub has none of the files that are wanted")
    for name in names:
        inside(hub_cache(), name, f"a file of {repository.name}")  # refuses names that lead elsewhere
    with _explained(repository), _progress_bars(hub, shown=progress):
        paths = dict(in_parallel(names, fetch, AT_ONCE))
    return _verified(repository, names, listed, paths)


@contextmanager
def _explained(repository: Repository) -> Iterator[None]:
    """Errors of the hub client as one line each."""
    try:
        yield
    except Exception as error:
        raise explain(error, repository) from None


def _verified(repository: Repository, names: list[str], listed: dict[str, Any], paths: dict[str, Path]) -> Download:
    hashed = True
    for name in names:
        lfs, blob = getattr(listed[name], "lfs", None), getattr(listed[name], "blob_id", None)
        expected, actual = (lfs["sha256"], sha256_of) if lfs else (blob, git_blob_id)
        if not expected:
            hashed = False
        elif (found := actual(paths[name])) != expected:
            with suppress(OSError):
                paths[name].resolve().unlink()
                paths[name].unlink(missing_ok=True)
            raise Unavailable(f"{repository.name}: {name} came with hash {found}, but the hub's list says {expected}")
    return Download(paths[names[0]].parents[names[0].count("/")], hashed)


def explain(error: Exception, repository: Repository) -> Exception:
    """One line for what the hub client raised; a bug of ours stays as it is."""
    names = {cls.__name__ for cls in type(error).__mro__}
    where = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    name, kind = repository.name, repository.kind
    place = f"{where}/{'' if kind == 'model' else 'datasets/'}{name}"
    if "GatedRepoError" in names:
        return Unavailable(f"{name} is gated: accept its terms at {place} and set HF_TOKEN")
    status = getattr(getattr(error, "response", None), "status_code", None)
    if "RepositoryNotFoundError" in names or status in (401, 403):
        return Unavailable(f"the hub has no {kind} {name}, or HF_TOKEN has no access to it")
    if "RevisionNotFoundError" in names:
        return Unavailable(f"the hub has no revision {repository.revision} of {name}")
    if names & NETWORK_ERRORS:
        return Unavailable(f"cannot download {name} from {where} ({first_line(error)})")
    return error


def library(purpose: str = "downloading from the hub") -> Any:
    """huggingface_hub, or an error that says how to get it."""
    try:
        import huggingface_hub
        import huggingface_hub.utils
    except ImportError:
        raise MissingExtra(purpose, "hub") from None
    return huggingface_hub


@contextmanager
def _progress_bars(hub: Any, *, shown: bool) -> Iterator[None]:
    """Progress on a terminal only, leaving the switch as it was."""
    before = hub.utils.are_progress_bars_disabled()
    if not shown and not before:
        hub.utils.disable_progress_bars()
    try:
        yield
    finally:
        if not shown and not before:
            hub.utils.enable_progress_bars()
