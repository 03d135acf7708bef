"""Which weights these are: hashes of a model's files, found without reading gigabytes twice.

A cache keyed by a path gives one model's vectors to another that was later put in its place; a cache keyed by a hub
name does so when the repository moves on. The content is the identity, and what a card says of a carrier's content is
compared with it before a file is used.
"""

from __future__ import annotations

from pathlib import Path

from ..core import DataError, ModelError
from ..core.files import content_hashes, wrong_files
from ..core.places import hub_cache
from ..core.untrusted import inside
from .card import ModelCard
from .locate import from_carrier

WEIGHTS = ("*.safetensors", "*.onnx", "*.onnx_data", "*.bin", "*.pt", "*.pth")
CODE = ("*.py",)
SETTINGS = (
    *("config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt", "tokenizer.model"),
    *("added_tokens.json", "special_tokens_map.json", "adapter_config.json"),
)
SLOW_TOKENIZERS = ("vocab.json", "merges.txt", "*.model")
"""What a tokenizer is made from where there is no tokenizer.json."""


def file_hash(path: Path) -> str:
    """SHA-256 of a file's content."""
    try:
        return content_hashes([(path, "sha256")])[0]
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror or error})") from None
    except DataError as error:
        raise ModelError(str(error)) from None


def folder_hashes(folder: Path) -> dict[str, str]:
    """Hashes of everything in a model folder that changes what it computes, by relative name."""
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a model folder")
    fast = (folder / "tokenizer.json").is_file()
    patterns = (*WEIGHTS, *CODE, *SETTINGS, *(() if fast else SLOW_TOKENIZERS))
    files = {path for pattern in patterns for path in folder.glob(f"**/{pattern}") if path.is_file()}
    return {path.relative_to(folder).as_posix(): file_hash(path) for path in sorted(files)}


def verified(card: ModelCard, folder: Path) -> Path:
    """The folder, if its files are those that the card's carrier or the hub's cache names; others are not compared."""
    known, wrong = "the hub's cache", list[str]()
    if card.carrier is not None and from_carrier(card, folder):
        known = f"the card of {card.name}"
        wrong = [
            file.name for file in card.carrier.files if file_hash(inside(folder, file.name, "file")) != file.sha256
        ]
    elif folder.is_relative_to(hub_cache()):
        wrong = wrong_files(folder)
    if wrong:
        raise ModelError(
            f"{folder / wrong[0]} is not the file that {known} names: it was damaged or changed after it was fetched; "
            f"r2med models fetch {card.name} --force"
        )
    return folder
