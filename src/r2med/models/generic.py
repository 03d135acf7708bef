"""Cards for models nobody wrote a card for: a folder describes itself, a hub id does once it is in the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core import ModelError
from ._derive import derive
from .card import Card
from .locate import complete, own_folder, snapshot
from .stamp import folder_stamp


def folder_card(path: str | Path) -> Card:
    """A card from a model folder's own configuration; its revision is a stamp of the content."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder")
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder}: no config.json, so not a model folder")
    whole = str(folder.resolve())
    return Card(
        name=str(path),
        source=whole,
        folder=whole,
        revision=folder_stamp(folder),
        licence="unknown",
        **derive(folder),
    )


def generic_card(spec: str) -> Card:
    """A card for `org/name` or `org/name@revision`; generic until the model has been fetched."""
    source, _, revision = spec.partition("@")
    facts: dict[str, Any] = {"name": spec, "source": source, "revision": revision or "main", "licence": "unknown"}
    stub = Card(
        **facts,
        kind="dense",
        summary=f"{source} from the hub; how it pools is known once it is fetched",
        backend="transformers",
        architecture="unknown",
        pooling="mean",
        query_length=512,
        document_length=512,
        dtype="float32",
    )
    own, cached = own_folder(stub), snapshot(source, stub.revision)
    for folder in (own, cached):
        if folder and complete(folder) and (folder / "config.json").is_file():
            if folder == cached:
                facts["revision"] = folder.name  # a branch moves, the commit that was loaded does not
            return Card(**facts, **derive(folder))
    return stub
