"""Lines and files of Python per room, before the second edition and now.

`python tools/count.py` prints the table, `python tools/count.py --write` writes it into CONTRIBUTING.md.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from marked import ROOT, write_block

import r2med
from r2med.core.table import Table

PACKAGE = Path(r2med.__file__).parent
PAGE = ROOT / "CONTRIBUTING.md"
TOP = "at the top"
JOINED = {"upstream": "integrations"}
"""Modules at the top that belong to a room."""


class Size(NamedTuple):
    """How large a room is."""

    lines: int = 0
    files: int = 0


BEFORE = {
    "api": Size(278, 2),  # api.py, notebook.py
    "cli": Size(2598, 27),
    "core": Size(1774, 19),
    "doctor": Size(610, 8),
    "expand": Size(2695, 28),
    "fuse": Size(346, 5),
    "integrations": Size(1633 + 572, 19 + 9),  # with upstream
    "llm": Size(2259, 16),
    "models": Size(1239, 13),
    "pipeline": Size(3901, 36),
    "report": Size(2360 + 3543, 23 + 41),  # with view
    "rerank": Size(2372, 26),
    "results": Size(955, 12),
    "retrieve": Size(5357, 50),
    "scoring": Size(2094, 17),
    "tasks": Size(3303, 34),
    "text": Size(1129, 10),
    TOP: Size(103, 4),
}
"""At commit d8a1855, the last of the first edition."""


def sizes(package: Path = PACKAGE) -> dict[str, Size]:
    """Rooms of the package as they are now."""
    found: dict[str, Size] = defaultdict(Size)
    for path in package.rglob("*.py"):
        name = path.relative_to(package).parts[0].removesuffix(".py")
        room = TOP if name.startswith("_") else JOINED.get(name, name)
        lines, files = found[room]
        found[room] = Size(lines + len(path.read_text("utf-8").splitlines()), files + 1)
    return dict(found)


def table(now: dict[str, Size]) -> str:
    """The table in Markdown."""
    rooms = [*sorted({*BEFORE, *now} - {TOP}), TOP]
    rows = [[room, *_shown(BEFORE.get(room)), *_shown(now.get(room))] for room in rooms]
    whole = [_sum(BEFORE), _sum(now)]
    rows.append(["all", *(cell for size in whole for cell in _shown(size))])
    return Table(["Room", "Lines before", "Files before", "Lines now", "Files now"], rows, left=1).markdown()


def _sum(rooms: dict[str, Size]) -> Size:
    return Size(sum(size.lines for size in rooms.values()), sum(size.files for size in rooms.values()))


def _shown(size: Size | None) -> list[str]:
    return ["–", "–"] if size is None else [f"{size.lines:,}", f"{size.files:,}"]


def main() -> None:
    text = table(sizes())
    if sys.argv[1:] == ["--write"]:
        write_block(PAGE, "count", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
