"""Results as strangers may see them: without the paths of the machine they were made on, without the queries' texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..core import DataError, UsageError
from ..core.places import open_regular
from .beside import Expansion
from .schema import TaskResult
from .store import sealed

_PATH = re.compile(r"(/|~|[A-Za-z]:[\\/])")
_INSIDE = re.compile(r"""(?<![\w.:/\\~-])(?:~?/|[A-Za-z]:[\\/])(?:[^\s/\\:'"<>|,;()]+[\\/])+([^\s/\\:'"<>|,;()]*)""")
"""A path from the root on inside a sentence, and the last part of it."""


def public(result: TaskResult) -> TaskResult:
    """A result without the paths of the machine it was made on: of each, only the last part stays."""
    if _PATH.match(result.system.name):
        raise UsageError(
            f"system {result.system.name!r} shows a path of this machine: run it again under a name or from a "
            "relative folder"
        )
    return sealed(msgspec.convert(_public(msgspec.to_builtins(result)), TaskResult))


def _public(value: Any) -> Any:
    if isinstance(value, dict):
        return {_public(k): _public(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_public(v) for v in value]
    if not isinstance(value, str):
        return value
    if _PATH.match(value) and "\n" not in value:
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return without_paths(value)


def without_paths(text: str) -> str:
    """A sentence in which only the last part of a path from the root on stays."""
    return _INSIDE.sub(r"\1", text)


def public_expansions(path: Path) -> Iterator[bytes]:
    """The lines of a file of expansions: what was made of each query, without the query itself."""
    try:
        with open_regular(path) as stream:
            for line in stream:
                yield msgspec.json.encode(msgspec.json.decode(line, type=Expansion)) + b"\n"
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read ({error})", path=path) from None
