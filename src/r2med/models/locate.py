"""Where a model's files lie on this machine, and which they are; nothing is downloaded.

A cache keyed by a path gives one model's vectors to another that was later put in its place; a cache keyed by a hub
name does so when the repository moves on. The content is the identity, and what a card says of a carrier's content is
compared with it before a file is used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from ..core import DataError, HostileData, ModelError
from ..core.files import content_hashes, home, hub_cache, wrong_files
from ..core.untrusted import component, inside
from .card import Card, ModelCard

WEIGHTS = ("*.safetensors", "*.bin", "*.onnx", "onnx/*.onnx")
HEADS = (".safetensors", ".pt")
# Endings of the file that a card names as its head, the first that is there.
MARK = "CARRIER.txt"
# File that marks a folder as filled from a carrier, not by the user.
HASHED_WEIGHTS = ("*.safetensors", "*.onnx*", "*.data", "*.bin", "*.pt", "*.pth")
CODE = ("*.py",)
SETTINGS = (
    *("config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt", "tokenizer.model"),
    *("added_tokens.json", "special_tokens_map.json", "adapter_config.json"),
)
SLOW_TOKENIZERS = ("vocab.json", "merges.txt", "*.model")
# What a tokenizer is made from where there is no tokenizer.json.


class Part(NamedTuple):
    """One repository of a model: most have one, MedCPT has two encoders, RankLLaMA an adapter and its base."""

    name: str
    source: str
    revision: str


def parts(card: ModelCard) -> tuple[Part, ...]:
    """The repositories a model is made of; none for an API."""
    if card.is_api:
        return ()
    named = [Part("main", card.source, card.revision)]
    if isinstance(card, Card) and card.document_source:
        named.append(Part("document", card.document_source, card.document_revision))
    if isinstance(card, Card) and card.base_source:
        named.append(Part("base", card.base_source, card.base_revision))
    return tuple(named)


def own_folder(card: ModelCard, part: str = "main") -> Path:
    """Where fetched carriers go, and where a user without network puts a model: no configuration needed."""
    folder = home() / "models" / component(card.name.replace("/", "--"), "model")
    if part == "main" and isinstance(card, Card) and card.source == card.document_source:
        part = "document"  # the paper's MedCPT: the encoder of the documents reads the queries too
    return folder if part == "main" else folder / component(part, "part")


def from_carrier(card: ModelCard, folder: Path) -> bool:
    """Whether a folder came out of the card's carrier, so that the hashes of its files are known."""
    if card.carrier is None or folder != own_folder(card):
        return False
    return card.carrier.only or (folder / MARK).is_file()


def locate(card: ModelCard, part: str = "main") -> Path | None:
    """The folder of a ready model (or of one part of it), or None."""
    if card.folder:
        return Path(card.folder)
    own = own_folder(card, part)
    if card.carrier and card.carrier.only:
        # The hub has other weights under this id, so its cache is not looked at.
        return own if all(inside(own, file.name, "file").is_file() for file in card.carrier.files) else None
    if complete(own) and has_head(card, own):
        return own
    found = next((p for p in parts(card) if p.name == part), None)
    folder = snapshot(found.source, found.revision) if found else None
    return folder if folder and complete(folder) and has_head(card, folder) else None


def ready(card: ModelCard) -> bool:
    """Whether every part of a model lies here; an API has none."""
    return all(locate(card, part.name) for part in parts(card))


def snapshot(source: str, revision: str) -> Path | None:
    """A snapshot in the cache of huggingface_hub, complete or not."""
    repository = hub_cache() / component(f"models--{source.replace('/', '--')}", "model")
    reference = inside(repository, f"refs/{revision}", "revision")
    commit = reference.read_text().strip() if reference.is_file() else revision
    folder = repository / "snapshots" / component(commit, "revision", path=reference)
    return folder if folder.is_dir() else None


def has_head(card: ModelCard, folder: Path) -> bool:
    """Whether the file is there that a card names as its head, if it names one."""
    head = card.head if isinstance(card, Card) else ""
    return not head or any(inside(folder, head + ending, "head").is_file() for ending in HEADS)


def complete(folder: Path) -> bool:
    """A configuration and all weights it speaks of: an interrupted download leaves some shards out."""
    if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
        return False
    for index in folder.glob("*.index.json"):
        try:
            names = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
            shards = [inside(folder, shard, "shard") for shard in names]
        except (ValueError, KeyError, AttributeError, TypeError, OSError, RecursionError, HostileData):
            return False
        if all(shard.is_file() for shard in shards):
            return True
    return any(path.is_file() and "-of-" not in path.name for pattern in WEIGHTS for path in folder.glob(pattern))


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
    patterns = (*HASHED_WEIGHTS, *CODE, *SETTINGS, *(() if fast else SLOW_TOKENIZERS))
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
