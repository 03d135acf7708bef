"""The table of rooms in docs/architecture.md: what each holds and which others it may import.

`python tools/rooms.py` prints the table, `python tools/rooms.py --write` writes it into the page. The words are those
of each room's docstring; the imports are those that `tests/test_architecture.py` allows.
"""

from __future__ import annotations

import sys
from importlib import import_module

from marked import ROOT, write_block

from r2med.core.registry import first_sentence
from r2med.core.table import Table

sys.path.insert(0, str(ROOT))
from tests.test_architecture import ROOMS

PAGE = ROOT / "docs" / "architecture.md"


def table() -> str:
    """The table in Markdown."""
    rows = [[f"`{room}`", f"{first_sentence(import_module(f'r2med.{room}'))}.", _imports(room)] for room in ROOMS]
    return Table(["Room", "What it holds", "May import"], rows, left=3).markdown(ready=True)


def _imports(room: str) -> str:
    """The rooms it may import; those it may not where that is shorter."""
    others = [name for name in ROOMS if name != room]
    barred = [name for name in others if name not in ROOMS[room]]
    if len(barred) < 5:
        return f"all but {', '.join(barred)}"
    return ", ".join(name for name in others if name in ROOMS[room]) or "nothing of ours"


def main() -> None:
    if sys.argv[1:] == ["--write"]:
        write_block(PAGE, "rooms", table())
    else:
        print(table())


if __name__ == "__main__":
    main()
