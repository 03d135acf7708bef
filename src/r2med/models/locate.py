"""Where a model's files lie on this machine. Looks only; nothing is downloaded or hashed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from ..core import HostileData
from ..core.places import home, hub_cache
from ..core.untrusted import component, inside
from .card import Card, ModelCard

WEIGHTS = ("*.safetensors", "*.bin", "*.onnx", "onnx/*.onnx")
HEADS = (".safetensors", ".pt")
# Endings of the file that a card names as its head, the first that is there.
MARK = "CARRIER.txt"
# File that marks a folder as filled from a carrier, not by the user.


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
