"""Models from the Hugging Face hub: pinned, and without pickles unless asked."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from ..core import ModelError
from ..core.files import git_blob_id, sha256_of
from ..core.hub import Download, Repository, download
from .card import ModelCard
from .locate import Part

TEXT = (".json", ".txt", ".model")
WEIGHTS = {"transformers": (".safetensors",), "onnx": (".onnx", ".onnx_data")}
PICKLES = re.compile(r"(pytorch_model|adapter_model)[\w.-]*\.bin")
ASIDE = {"onnx", "openvino", "coreml", "original", "runs", "eval"}
# Folders of other formats or of training by-products.


def fetch_from_hub(card: ModelCard, part: Part, *, allow_pickle: bool, progress: bool, force: bool = False) -> Download:
    """Download one repository into the hub's own cache, where every other tool finds it too."""

    def choose(names: list[str]) -> list[str]:
        return wanted(names, card, allow_pickle=allow_pickle)

    return download(Repository(part.source, part.revision), choose, force=force, progress=progress)


def wanted(names: list[str], card: ModelCard, *, allow_pickle: bool) -> list[str]:
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
    """The content's hash in the form of the blob's name; the name itself where it is no hash we know."""
    if re.fullmatch(r"[0-9a-f]{64}", blob.name):
        return sha256_of(blob)
    return git_blob_id(blob) if re.fullmatch(r"[0-9a-f]{40}", blob.name) else blob.name
