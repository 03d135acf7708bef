"""Models from the Hugging Face hub: pinned, and without pickles unless asked."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from ..core import ModelError
from ..core.hub import Download, Repository, download
from .card import Card, ModelCard
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
    if isinstance(card, Card) and card.head and f"{card.head}.safetensors" not in files:
        pickles += [name for name in kept if name == f"{card.head}.pt"]
    if pickles and not allow_pickle:
        raise ModelError(
            f"{card.name}: the hub has {pickles[0]} only as a pickle, which can run code when it is loaded; "
            f"if you trust {card.source}: r2med models fetch {card.name} --allow-pickle"
        )
    if not (folders or pickles):
        raise ModelError(f"{card.name}: no weights r2med can read among the files of {card.source}")
    return files + pickles
