"""This machine, as functions: models are listed and fetched, the cache is shown, verified and pruned."""

from __future__ import annotations

from pathlib import Path

from ..cache import entries as cache_entries
from ..cache import prune as prune_cache
from ..cache import verify as verify_cache
from ..core import ModelError
from ..doctor import diagnose as check_installation
from ..models import fetch as fetch_model
from ..models import find_any_card, locate
from ..models import listing as list_models

__all__ = [
    "cache_entries",
    "check_installation",
    "fetch_model",
    "list_models",
    "model_folder",
    "prune_cache",
    "verify_cache",
]


def model_folder(name: str) -> Path:
    """The folder of a model that is on this machine."""
    path = locate(find_any_card(name))
    if path is None:
        raise ModelError(f"{name} is not on this machine: r2med models fetch {name}")
    return path
