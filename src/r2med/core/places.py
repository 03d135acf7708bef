"""The folders that several rooms share, and looking at what lies at a path."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import BinaryIO

from .errors import UsageError


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


def typed_path(text: str) -> Path:
    """A path as somebody typed it, with `~` resolved."""
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"{text!r} is no path here ({error})") from None


def exists(path: Path) -> bool:
    """Whether something is there; a name that no file system takes is not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def open_regular(path: Path) -> BinaryIO:
    """A plain file for reading; a pipe, a device or a folder, which may never answer, is an `OSError`."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return os.fdopen(handle, "rb", buffering=1 << 18)


def free_space(path: Path) -> int | None:
    """Free bytes on the disk that holds a folder, or would hold it; None where it does not say."""
    try:
        return shutil.disk_usage(nearest_existing(path)).free
    except OSError:
        return None


def nearest_existing(path: Path) -> Path:
    """The folder itself or the closest one above it that is there."""
    path = path.absolute()
    return next((place for place in (path, *path.parents) if place.exists()), path)


def _xdg_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
