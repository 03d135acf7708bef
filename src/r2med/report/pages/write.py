"""Pages on disk: Markdown to read, JSON to compute with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...core import IdTable, UsageError
from ...core.atomic import write_bytes
from ...tasks.nano.figures import Inspected, group
from .group import group_page
from .task import description, task_page


def write_pages(name: str, tasks: Sequence[Inspected], folder: Path) -> list[Path]:
    """Write a page and a JSON file per task, and `index.md` and `index.json` for the group."""
    if repeated := IdTable(page.split for page in tasks).duplicates():
        raise UsageError(f"two of the tasks are called {repeated[0]!r}; write their pages into a folder each")
    profile = group([page.figures for page in tasks], source=name)
    written = []
    for page in tasks:
        written += [
            _save(folder / f"{page.split}.md", task_page(page).encode()),
            _save(folder / f"{page.split}.json", _json(metadata(page))),
        ]
    return [
        *written,
        _save(folder / "index.md", group_page(name, profile, tasks).encode()),
        _save(folder / "index.json", _json(profile)),
    ]


def metadata(page: Inspected) -> dict[str, Any]:
    """All figures of a page as plain data."""
    return {
        "schema": 1,
        "task": page.task.full_name,
        "split": page.split,
        "description": description(page),
        "fingerprint": page.task.fingerprint,
        "figures": page.figures,
        "contrasts": [c._asdict() for c in page.contrasts],
        "tendencies": page.tendencies,
        "terciles": [t._asdict() for t in page.terciles],
        "failures": page.traps,
        "audit": {"settings": page.audit_settings, "findings": page.audit, "scores": page.scores},
    }


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _save(path: Path, data: bytes) -> Path:
    write_bytes(path, data)
    return path
