"""Which weights these are: hashes of a model's files, found without reading gigabytes twice.

A cache keyed by a path gives one model's vectors to another that was later put in its place; a cache keyed by a hub
name does so when the repository moves on. The content is the identity.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec

from ...core import ModelError, ResultError
from ...core.atomic import write_bytes
from ...core.places import home

SMALL = 64 << 20
"""Files up to this size are hashed anew by every process: it takes less than a tenth of a second."""
_SEEN: dict[str, str] = {}

WEIGHTS = ("*.safetensors", "*.onnx", "*.onnx_data", "*.bin", "*.pt", "*.pth")
SETTINGS = ("config.json", "modules.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "tokenizer.model")


def file_hash(path: Path) -> str:
    """SHA-256 of a file; that of a large one is remembered under its path, size and time."""
    target = path.resolve()
    # The hub cache names what it downloaded by its SHA-256.
    if target != path and len(target.name) == 64 and set(target.name) <= set("0123456789abcdef"):
        return target.name
    try:
        stat = target.stat()
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror or error})") from None
    key = f"{target}:{stat.st_size}:{stat.st_mtime_ns}"
    if key not in _SEEN:
        _SEEN[key] = _sha256(target) if stat.st_size <= SMALL else _large_hash(target, key)
    return _SEEN[key]


def _large_hash(target: Path, key: str) -> str:
    memory = home() / "models" / ".hashes.json"
    known = _remembered(memory)
    if key not in known:
        known[key] = _sha256(target)
        with suppress(ResultError):  # a read-only home costs the hash again, nothing else
            write_bytes(memory, msgspec.json.encode(known, order="sorted"))
    return known[key]


def folder_hashes(folder: Path) -> dict[str, str]:
    """Hashes of everything in a model folder that changes its vectors, by relative name."""
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a model folder")
    files = {p for pattern in WEIGHTS for p in folder.glob(f"**/{pattern}")}
    files |= {p for name in SETTINGS for p in folder.glob(f"**/{name}")}
    return {p.relative_to(folder).as_posix(): file_hash(p) for p in sorted(files)}


def _remembered(memory: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(memory.read_bytes(), type=dict[str, str])
    except (OSError, ValueError, RecursionError):
        return {}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
