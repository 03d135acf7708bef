"""The folders that several rooms share. Nothing is imported or touched to find out."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`R2MED_HOME`, or `r2med` in the XDG cache folder."""
    if explicit := os.environ.get("R2MED_HOME"):
        return Path(explicit).expanduser()
    return _xdg_cache() / "r2med"


def hub_cache() -> Path:
    """The cache of huggingface_hub, found as it finds it itself."""
    if explicit := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(explicit).expanduser()
    root = os.environ.get("HF_HOME")
    return (Path(root).expanduser() if root else _xdg_cache() / "huggingface") / "hub"


def _xdg_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
