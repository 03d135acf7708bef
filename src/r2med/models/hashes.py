"""Which weights these are: hashes of a model's files, found without reading gigabytes twice.

A cache keyed by a path gives one model's vectors to another that was later put in its place; a cache keyed by a hub
name does so when the repository moves on. The content is the identity, and what a card says of a carrier's content is
compared with it before a file is used.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from ..core import ModelError, ResultError
from ..core.atomic import write_bytes
from ..core.files import sha256_of
from ..core.places import home
from .card import ModelCard
from .locate import from_carrier

SMALL = 1 << 20
"""Files up to this size are hashed anew by every process; hashes of larger ones are remembered."""
_SEEN: dict[str, str] = {}

WEIGHTS = ("*.safetensors", "*.onnx", "*.onnx_data", "*.bin", "*.pt", "*.pth")
CODE = ("*.py",)
SETTINGS = ("config.json", "modules.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "tokenizer.model")
SLOW_TOKENIZERS = ("vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json", "*.model")
"""What a tokenizer is made from where there is no tokenizer.json."""


def file_hash(path: Path) -> str:
    """SHA-256 of a file's content; that of a large one is remembered under its path, size and times."""
    target = path.resolve()
    try:
        facts = target.stat()
        key = f"{target}:{facts.st_size}:{facts.st_mtime_ns}:{facts.st_ctime_ns}"
        if key not in _SEEN:
            _SEEN[key] = sha256_of(target) if facts.st_size <= SMALL else _large_hash(target, key)
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror or error})") from None
    return _SEEN[key]


def folder_hashes(folder: Path) -> dict[str, str]:
    """Hashes of everything in a model folder that changes what it computes, by relative name."""
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a model folder")
    fast = (folder / "tokenizer.json").is_file()
    patterns = (*WEIGHTS, *CODE, *SETTINGS, *(() if fast else SLOW_TOKENIZERS))
    files = {path for pattern in patterns for path in folder.glob(f"**/{pattern}") if path.is_file()}
    return {path.relative_to(folder).as_posix(): file_hash(path) for path in sorted(files)}


def verified(card: ModelCard, folder: Path) -> Path:
    """The folder, if the files of a carrier in it are those its card names; others cannot be compared."""
    if card.carrier is not None and from_carrier(card, folder):
        for file in card.carrier.files:
            if file_hash(folder / file.name) != file.sha256:
                raise ModelError(
                    f"{folder / file.name} is not the file that the card of {card.name} names: it was damaged or "
                    f"changed after it was fetched; r2med models fetch {card.name} --force"
                )
    return folder


def _large_hash(target: Path, key: str) -> str:
    memory = home() / "models" / ".hashes.json"
    known = _remembered(memory)
    if key not in known:
        known = {k: v for k, v in known.items() if not k.startswith(f"{target}:")}
        known[key] = sha256_of(target)
        with suppress(ResultError):  # a read-only home costs the hash again, nothing else
            write_bytes(memory, msgspec.json.encode(known, order="sorted"))
    return known[key]


def _remembered(memory: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(memory.read_bytes(), type=dict[str, str])
    except (OSError, ValueError, RecursionError):
        return {}
