"""Keys and environment variables: names and whether they are there; a key's value is never read out."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from ..core import UsageError
from ..core.places import hub_cache
from ..llm.load import BASE_URL, KEY, KEY_FILE, read_key
from ..models import cards
from ..retrieve.encoders.api import URL_VARIABLES
from .findings import Secret

SHOWN = (
    *("R2MED_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"),
    *("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "CUDA_VISIBLE_DEVICES"),
)
ADDRESSES = ("HF_ENDPOINT", BASE_URL, *sorted(set(URL_VARIABLES.values()) - {BASE_URL}))


def settings_in_force() -> dict[str, str]:
    """Variables that are set and change what r2med does; of addresses only the server, which may not hold a secret."""
    found = {name: value for name in SHOWN if (value := os.environ.get(name))}
    return found | {name: _server(value) for name in ADDRESSES if (value := os.environ.get(name))}


def _server(address: str) -> str:
    """`scheme://host:port`; an address may hold a user's password."""
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "set, but not an address"
    return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else "set, but not an address"


def keys() -> list[Secret]:
    """Every key a model may ask for, and the hub's token."""
    names = dict.fromkeys([KEY, *(card.key for card in cards() if card.key)])
    return [*(_key(name) for name in names), _token()]


def _key(name: str) -> Secret:
    if os.environ.get(name, "").strip():
        return Secret(name=name, present=True, where="environment")
    from_file = name == KEY and bool(os.environ.get(KEY_FILE)) and _readable()
    return Secret(name=name, present=from_file, where="file" if from_file else "")


def _readable() -> bool:
    try:
        return bool(read_key())
    except UsageError:
        return False


def key_file_problem() -> str:
    """Why the file that should hold a key is of no use; empty where there is none or it is fine."""
    if not os.environ.get(KEY_FILE) or os.environ.get(KEY, "").strip():
        return ""
    try:
        return "" if read_key() else f"{KEY_FILE} names an empty file"
    except UsageError as error:
        return str(error)


def _token() -> Secret:
    if os.environ.get("HF_TOKEN", "").strip():
        return Secret(name="HF_TOKEN", present=True, where="environment")
    file = Path(os.environ.get("HF_TOKEN_PATH") or hub_cache().parent / "token").expanduser()
    try:
        present = file.stat().st_size > 0
    except OSError:
        present = False
    return Secret(name="HF_TOKEN", present=present, where="file" if present else "")
