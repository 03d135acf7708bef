"""Models from the Hugging Face hub: pinned, without pickles unless asked, and quick to say that nothing answers."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from ..core import MissingExtra, ModelError, Unavailable
from ..core.places import hub_cache
from .card import Card
from .carrier import BLOCK, sha256_of
from .locate import Part

ANSWER_WITHIN = 5.0
# Seconds for the first answer: a laptop on a train should not wait for minutes.
TEXT = (".json", ".txt", ".model")
WEIGHTS = {"transformers": (".safetensors",), "onnx": (".onnx", ".onnx_data")}
PICKLES = re.compile(r"(pytorch_model|adapter_model)[\w.-]*\.bin")
ASIDE = {"onnx", "openvino", "coreml", "original", "runs", "eval"}
# Folders of other formats or of training by-products.


def fetch_from_hub(card: Card, part: Part, *, allow_pickle: bool, progress: bool, force: bool = False) -> Path:
    """Download one repository into the hub's own cache, where every other tool finds it too."""
    if offline():
        raise Unavailable(f"HF_HUB_OFFLINE forbids downloading {part.source}")
    hub = _hub()
    endpoint = os.environ.get("HF_ENDPOINT") or None
    token = os.environ.get("HF_TOKEN") or None
    try:
        info = hub.HfApi(endpoint=endpoint, token=token).model_info(
            part.source, revision=part.revision, timeout=ANSWER_WITHIN
        )
        names = wanted([s.rfilename for s in info.siblings or []], card, allow_pickle=allow_pickle)
        with _bars(hub, shown=progress):
            path = hub.snapshot_download(
                part.source,
                revision=part.revision,
                allow_patterns=names,
                cache_dir=hub_cache(),
                endpoint=endpoint,
                token=token,
                force_download=force,
            )
    except ModelError:
        raise
    except Exception as error:
        raise explain(error, part) from None
    return Path(path)


def wanted(names: list[str], card: Card, *, allow_pickle: bool) -> list[str]:
    """The files worth having: configuration, tokenizer and one form of the weights."""
    suffixes = WEIGHTS.get(card.backend, ())
    aside = ASIDE - {card.backend}
    kept = [name for name in names if not aside.intersection(PurePosixPath(name).parts[:-1])]
    code = (".py",) if card.remote_code else ()
    files = [n for n in kept if n.endswith((*TEXT, *code, *suffixes)) and not n.startswith("consolidated")]
    folders = {str(PurePosixPath(n).parent) for n in files if n.endswith(suffixes)}
    pickles = [
        n for n in kept if PICKLES.fullmatch(PurePosixPath(n).name) and str(PurePosixPath(n).parent) not in folders
    ]
    if pickles and not allow_pickle:
        raise ModelError(
            f"{card.name}: the hub has {pickles[0]} only as a pickle, which can run code when it is loaded; "
            f"if you trust {card.source}: r2med models fetch {card.name} --allow-pickle"
        )
    if not (folders or pickles):
        raise ModelError(f"{card.name}: no weights r2med can read among the files of {card.source}")
    return files + pickles


def explain(error: Exception, part: Part) -> Exception:
    """One line for what the hub client raised; a bug of ours stays as it is."""
    names = {cls.__name__ for cls in type(error).__mro__}
    where = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if "GatedRepoError" in names:
        return Unavailable(f"{part.source} is gated: accept its terms at {where}/{part.source} and set HF_TOKEN")
    if "RepositoryNotFoundError" in names:
        return Unavailable(f"the hub has no model {part.source}, or HF_TOKEN has no access to it")
    if "RevisionNotFoundError" in names:
        return Unavailable(f"the hub has no revision {part.revision} of {part.source}")
    about_network = {"HTTPError", "TransportError", "LocalEntryNotFoundError", "OfflineModeIsEnabled"}
    if names & {*about_network, "OSError", "TimeoutException", "HfHubHTTPError", "JSONDecodeError", "RuntimeError"}:
        first = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        return Unavailable(f"cannot download {part.source} from {where} ({first[:200]})")
    return error


def damaged(folder: Path) -> list[str]:
    """Files of a snapshot whose content is not what their name in the hub's cache says.

    The cache calls a large file by its SHA-256 and a small one by its git hash; where links are not possible there is
    no such name and nothing to compare.
    """
    bad = []
    for path in sorted(p for p in folder.rglob("*") if p.is_symlink()):
        blob = path.resolve()
        if not blob.is_file() or _hash_like(blob) != blob.name:
            bad.append(path.relative_to(folder).as_posix())
    return bad


def _hash_like(blob: Path) -> str:
    if re.fullmatch(r"[0-9a-f]{64}", blob.name):
        return sha256_of(blob)
    if not re.fullmatch(r"[0-9a-f]{40}", blob.name):
        return blob.name  # a hub that names its files otherwise
    digest = hashlib.sha1(f"blob {blob.stat().st_size}\0".encode(), usedforsecurity=False)
    with blob.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def offline() -> bool:
    """Whether the user forbade the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


@contextmanager
def _bars(hub: Any, *, shown: bool) -> Iterator[None]:
    """Progress on a terminal only, leaving the switch as it was."""
    before = hub.utils.are_progress_bars_disabled()
    if not shown and not before:
        hub.utils.disable_progress_bars()
    try:
        yield
    finally:
        if not shown and not before:
            hub.utils.enable_progress_bars()


def _hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.utils
    except ImportError:
        raise MissingExtra("downloading from the hub", "hub") from None
    return huggingface_hub
