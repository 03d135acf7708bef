"""A stamp for the content of a model folder, so that vectors of an edited model are never taken for the old one's."""

from __future__ import annotations

from pathlib import Path

from ..core import Hasher

WHOLE = 256 << 20
# Bytes up to which a file is read entirely.
SAMPLES = 256
# Blocks read of a larger one, spread evenly with both ends among them: training changes all of a tensor.
BLOCK = 1 << 20


def folder_stamp(folder: Path) -> str:
    """Hash of the names and contents of all files but hidden ones."""
    hasher = Hasher("model-folder")
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        relative = path.relative_to(folder)
        if any(part.startswith(".") for part in relative.parts):
            continue
        hasher.text(relative.as_posix())
        _add(hasher, path)
    return f"local-{hasher.digest()}"


def _add(hasher: Hasher, path: Path) -> None:
    size = path.stat().st_size
    hasher.text(str(size))
    with path.open("rb") as stream:
        if size <= WHOLE:
            while block := stream.read(BLOCK):
                hasher.data(block)
            return
        for sample in range(SAMPLES):
            stream.seek((size - BLOCK) * sample // (SAMPLES - 1))
            hasher.data(stream.read(BLOCK))
