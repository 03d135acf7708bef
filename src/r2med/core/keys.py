"""Keys of services: from the environment or from a file it names, never from an argument, which others could list."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import UsageError


def read_key(variable: str) -> str:
    """The value of `variable`, else the content of the file that `variable`_FILE names, else nothing."""
    if key := os.environ.get(variable, "").strip():
        return key
    if not (path := os.environ.get(f"{variable}_FILE")):
        return ""
    try:
        return Path(path).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{variable}_FILE: {path} cannot be read ({why})") from None
