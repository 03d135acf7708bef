"""Fills the stars of `nav` in mkdocs.yml: the pages a pattern fits and that no other entry names."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

INDEX = "index.md"


def on_files(files: Any, config: Any) -> Any:
    """Called by MkDocs once it knows the pages."""
    sources = sorted(file.src_uri for file in files.documentation_pages())
    if not any(source.startswith("reference/") for source in sources):
        raise SystemExit("docs/reference is empty: python tools/docs.py writes it (make docs does both)")
    named = set(_named(config["nav"]))
    config["nav"] = _filled(config["nav"], [s for s in sources if s not in named])
    return files


def _named(entry: Any) -> list[str]:
    """Pages that are named without a star."""
    if isinstance(entry, str):
        return [] if "*" in entry else [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    return [page for part in inner for page in _named(part)]


def _filled(entries: list[Any], free: list[str]) -> list[Any]:
    filled: list[Any] = []
    for entry in entries:
        if not isinstance(entry, dict):
            filled.append(entry)
            continue
        ((title, value),) = entry.items()
        if isinstance(value, list):
            filled.append({title: _filled(value, free)})
        elif "*" not in value:
            filled.append(entry)
        elif fitting := [source for source in free if _fits(source, value)]:
            fitting.sort(key=lambda source: (not source.endswith(INDEX), source))
            filled.append({title: fitting if len(fitting) > 1 else fitting[0]})
    return filled


def _fits(source: str, pattern: str) -> bool:
    """A star stands for no slash."""
    return source.count("/") == pattern.count("/") and fnmatchcase(source, pattern)
