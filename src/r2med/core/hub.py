"""The Hugging Face hub: one question first, then the files, each compared with what the hub's own list says of it.

Needs the extra `hub`, imported when it is used. `HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME` and `HF_HUB_OFFLINE` work as in
huggingface_hub.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .errors import MissingExtra, Unavailable
from .files import HashKind, content_hashes, hub_cache
from .parallel import in_parallel, in_time
from .plugins import first_line
from .untrusted import inside

ANSWER_WITHIN = 5.0
"""Seconds for the first answer: a laptop on a train should not wait for minutes."""
LIST_WITHIN = 30.0
"""Seconds for the whole list of files."""
MOST_LISTED = 32 << 20
"""Bytes of a list of files, or of any other answer that is no file."""
FIRST_MINUTE, SLOWEST = 60.0, 20_000
"""Seconds that any file may take, and bytes a second below which a download is given up after them."""
LARGEST = 64 << 30
"""Bytes of a file whose size the hub does not list."""
AT_ONCE = 8
PURPOSE = "downloading from the hub"
NETWORK_ERRORS = {
    *("HTTPError", "TransportError", "LocalEntryNotFoundError", "OfflineModeIsEnabled", "OSError", "ConnectionError"),
    *("TimeoutException", "RequestException", "HfHubHTTPError", "JSONDecodeError", "RuntimeError", "ValueError"),
}


class Repository(NamedTuple):
    """A repository of the hub at one revision."""

    name: str
    revision: str
    kind: Literal["model", "dataset"] = "model"
    label: str = ""
    """What messages call it, where that is not its name."""
    advice: str = ""
    """What else a user can do where the hub cannot be reached."""


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
    with _explained(repository):
        listed = {file.rfilename: file for file in _info(repository).siblings or []}
    hub, where, access = library(PURPOSE), _where(repository), _access()
    names = choose(list(listed))
    if not names:
        raise Unavailable(f"{repository.name} on the hub has none of the files that are wanted")
    for name in names:
        inside(hub_cache(), name, f"a file of {repository.name}")  # refuses names that lead elsewhere
    sizes = {name: listed[name].size or LARGEST for name in names}

    def fetch(name: str, _: threading.Event) -> tuple[str, Path]:
        options = {"cache_dir": hub_cache(), "force_download": force, **where, **access}
        seconds = FIRST_MINUTE + sizes[name] / SLOWEST
        return name, Path(in_time(lambda: hub.hf_hub_download(repository.name, name, **options), seconds))

    largest = max(MOST_LISTED, *sizes.values())
    with _explained(repository), _progress_bars(hub, shown=progress), bounded_replies(hub, largest):
        paths = dict(in_parallel(names, fetch, AT_ONCE))
    return _verified(repository, names, listed, paths)


def check_reachable(repository: Repository) -> None:
    """Raise where the hub cannot be asked; one that answers, if only to refuse, can be."""
    try:
        _info(repository)
    except Exception as error:
        if getattr(error, "response", None) is None:
            raise explain(error, repository) from None


def _info(repository: Repository) -> Any:
    """What the hub says of a repository.

    The client tries an unreachable hub for half a minute before it gives up; one question first tells at once.
    """
    if offline():
        raise Unavailable(f"HF_HUB_OFFLINE forbids downloading {repository.name}")
    hub = library(PURPOSE)

    def ask() -> Any:
        api = hub.HfApi(**_access())
        return api.repo_info(repository.name, files_metadata=True, timeout=ANSWER_WITHIN, **_where(repository))

    with bounded_replies(hub, MOST_LISTED):
        return in_time(ask, LIST_WITHIN)


def _where(repository: Repository) -> dict[str, Any]:
    return {"repo_type": repository.kind, "revision": repository.revision}


def _access() -> dict[str, Any]:
    return {"endpoint": os.environ.get("HF_ENDPOINT") or None, "token": os.environ.get("HF_TOKEN") or None}


@contextmanager
def bounded_replies(hub: Any, most: int) -> Iterator[None]:
    """The hub client refuses an answer of more than so many bytes, or a compressed one, which it would unpack whole."""
    hooks = hub.utils.get_session().event_hooks

    def ask_plainly(request: Any) -> None:
        request.headers["Accept-Encoding"] = "identity"

    def limit(response: Any) -> None:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise Unavailable(f"{response.url.host} answered in a compression that was not asked for")
        response.stream = _counted(response, most)

    added = {"request": ask_plainly, "response": limit}
    for when, hook in added.items():
        hooks.setdefault(when, []).append(hook)
    try:
        yield
    finally:
        for when, hook in added.items():
            hooks[when].remove(hook)


def _counted(response: Any, most: int) -> Any:
    """The body of an answer, up to a limit."""
    library, inner, host = sys.modules[type(response).__module__.partition(".")[0]], response.stream, response.url.host

    class Counted(library.SyncByteStream):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for part in inner:
                size += len(part)
                if size > most:
                    raise Unavailable(f"{host} answered with more than {most >> 20} MB")
                yield part

        def close(self) -> None:
            inner.close()

    return Counted()


@contextmanager
def _explained(repository: Repository) -> Iterator[None]:
    """Errors of the hub client as one line each."""
    try:
        yield
    except Exception as error:
        raise explain(error, repository) from None


def _verified(repository: Repository, names: list[str], listed: dict[str, Any], paths: dict[str, Path]) -> Download:
    """What was downloaded, if each file is what the list says; a wrong one is removed, so that nothing finds it."""
    stated = {name: _stated(listed[name]) for name in names}
    hashed = [(name, *fact) for name, fact in stated.items() if fact is not None]
    found = content_hashes([(paths[name], kind) for name, kind, _ in hashed])
    for (name, _, expected), actual in zip(hashed, found, strict=True):
        if actual != expected:
            with suppress(OSError):
                paths[name].resolve().unlink()
                paths[name].unlink(missing_ok=True)
            raise Unavailable(f"{repository.name}: {name} came with hash {actual}, but the hub's list says {expected}")
    return Download(paths[names[0]].parents[names[0].count("/")], len(hashed) == len(names))


def _stated(file: Any) -> tuple[HashKind, str] | None:
    """What the list says of a file's content: SHA-256 of a large one, git's hash of a small one."""
    if file.lfs:
        return "sha256", file.lfs["sha256"]
    return ("git", file.blob_id) if file.blob_id else None


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
        advice = f": {repository.advice}" if repository.advice else ""
        return Unavailable(f"cannot download {repository.label or name} from {where} ({first_line(error)}){advice}")
    return error


def library(purpose: str) -> Any:
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
