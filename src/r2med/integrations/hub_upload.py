"""Uploading a prepared folder: one commit through the hub's own client, one line when it fails.

A commit is there whole or not at all, and large files that arrived are not sent twice: to run it again is safe.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from ..core import MissingExtra, R2MedError, Unavailable, UsageError
from .hub_prepare import Prepared

PUBLIC_HUB = "https://huggingface.co"


class Uploaded(NamedTuple):
    """Where it now is."""

    url: str
    commit: str


def upload(prepared: Prepared, *, private: bool) -> Uploaded:
    """Create the dataset repository where there is none, and commit the folder to it."""
    if not prepared.licence:
        raise UsageError("the source data state no licence, or several: say under which one you publish (--licence)")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise Unavailable("HF_HUB_OFFLINE forbids uploading")
    hub = _hub()
    token = os.environ.get("HF_TOKEN") or hub.get_token()
    if not token:
        raise UsageError("uploading needs a token: set HF_TOKEN, or log in once with hf auth login")
    if not sys.stderr.isatty():
        hub.utils.disable_progress_bars()
    endpoint = os.environ.get("HF_ENDPOINT") or PUBLIC_HUB
    api = hub.HfApi(endpoint=endpoint, token=token)
    try:
        _create(api, prepared.repo, private=private)
        done = api.upload_folder(
            repo_id=prepared.repo,
            repo_type="dataset",
            folder_path=str(prepared.folder),
            commit_message=f"r2med export hub: {len(prepared.files)} files",
        )
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
    status = next((s for one in causes if (s := _status(one)) is not None), None)
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


def _status(error: BaseException) -> int | None:
    code = getattr(getattr(error, "response", None), "status_code", None)
    return code if isinstance(code, int) else None


def _hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.utils
    except ImportError:
        raise MissingExtra("uploading to the hub", "hub") from None
    return huggingface_hub
