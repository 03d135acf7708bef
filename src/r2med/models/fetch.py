"""Getting a model: from the hub, or from its carrier where the hub cannot be reached; what is here is checked."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..core import MissingExtra, ModelError, Unavailable, UsageError
from ..core.atomic import scratch_folder
from ..core.files import wrong_files
from . import carrier, hub
from .card import ModelCard
from .locate import MARK, from_carrier, locate, own_folder, parts, ready
from .registry import find_card, find_chat_card


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is now on this machine."""

    name: str
    path: str
    # Folder of the model; of its query encoder where it has two.
    fetched: bool
    # False: it was here already.
    origin: str
    # "hub", "carrier", or "folder" for what a user put there.
    verified: bool
    # Content was compared with known hashes.
    bytes: int
    # Size on disk, all parts.


def find_any_card(name: str) -> ModelCard:
    """The card of a model of any kind."""
    return find_chat_card(name) or find_card(name)


def fetch(
    model: str | ModelCard, *, force: bool = False, allow_pickle: bool = False, progress: bool = False
) -> Fetched:
    """Make a model ready, or say in one line why that cannot be."""
    card = find_any_card(model) if isinstance(model, str) else model
    if card.is_api:
        how = f"export {card.key}=…" if card.key else f"set {card.url_variable} to the URL of a server that has it"
        raise UsageError(f"{card.name} runs at an API and has nothing to fetch: {how}")
    if card.folder:
        raise UsageError(f"{card.name} is a folder on this machine; there is nothing to fetch")
    if ready(card) and not force:
        return _check(card)
    if card.carrier and card.carrier.only:
        return _from_carrier(card, force=force, progress=progress)
    verified = True
    try:
        for part in parts(card):
            if force or locate(card, part.name) is None:
                done = hub.fetch_from_hub(card, part, allow_pickle=allow_pickle, progress=progress, force=force)
                verified &= done.verified
    except (Unavailable, MissingExtra) as why:
        if card.carrier:
            return _from_carrier(card, force=force, progress=progress, because=f"{why}; and ")
        if isinstance(why, MissingExtra):
            raise
        raise Unavailable(f"{why}; or put its files into {own_folder(card)}") from None
    return _result(card, fetched=True, verified=verified)


def _from_carrier(card: ModelCard, *, force: bool, progress: bool, because: str = "") -> Fetched:
    target = own_folder(card)
    replaceable = force or (target / MARK).is_file()
    if target.is_dir() and any(target.iterdir()) and not replaceable:
        raise UsageError(f"{target} exists and is not a complete {card.name}: r2med models fetch {card.name} --force")
    try:
        with scratch_folder(target) as scratch:
            new = carrier.fetch_from_carrier(card, scratch, progress=progress)
            if target.exists():
                target.replace(scratch / "old")
            new.replace(target)
    except Unavailable as why:
        raise Unavailable(f"{because}{why}") from None
    return _result(card, fetched=True, verified=True)


def _check(card: ModelCard) -> Fetched:
    """Compare a model that is here with what its hashes say; nothing is known of files a user put there."""
    compared = True
    for part in parts(card):
        folder = locate(card, part.name)
        assert folder is not None
        origin, bad = _origin(card, folder), list[str]()
        if origin == "hub":
            bad = wrong_files(folder)
        elif origin == "carrier" and card.carrier:
            bad = carrier.damaged(card.carrier, folder)
        compared &= origin != "folder"
        if bad:
            more = f" (and {len(bad) - 1} more)" if bad[1:] else ""
            raise ModelError(f"{folder / bad[0]} is damaged{more}: r2med models fetch {card.name} --force")
    return _result(card, fetched=False, verified=compared)


def _origin(card: ModelCard, folder: Path) -> str:
    if own_folder(card) not in (folder, folder.parent):
        return "hub"
    return "carrier" if from_carrier(card, own_folder(card)) else "folder"


def _result(card: ModelCard, *, fetched: bool, verified: bool) -> Fetched:
    folders = [folder for part in parts(card) if (folder := locate(card, part.name))]
    if len(folders) != len(parts(card)):
        raise ModelError(f"{card.name} was downloaded but is not complete: no configuration or not all weights")
    return Fetched(
        name=card.name,
        path=str(folders[0]),
        fetched=fetched,
        origin=_origin(card, folders[0]),
        verified=verified,
        bytes=sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()),
    )
