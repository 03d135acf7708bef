"""Write docs/first-minutes.svg: the tutorial's first commands in a terminal of 80 columns.

    python tools/terminal_picture.py            # --print: to standard output instead

The commands are run, in a folder of their own; long outputs are cut, and a line says so. All texts are Mini's.
"""

from __future__ import annotations

import sys
import tempfile
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.terminal import OURS, run_all  # noqa: E402

from r2med.core.files import write_bytes  # noqa: E402

TARGET = ROOT / "docs" / "first-minutes.svg"
COLUMNS, CELL, LINE, SIZE, EDGE = 80, 8.4, 18, 14, 16
"""Columns of the terminal; a character's width, a line's height, the size of letters and the margin, in pixels."""

STYLE = f"""
text {{ font: {SIZE}px "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #dfe8ea }}
.typed {{ fill: #8fd6c4; font-weight: bold }}
.cut {{ fill: #8a9ba1 }}
"""


class Step(NamedTuple):
    """A command, and how many lines of its output are shown."""

    command: list[str]
    lines: int


STEPS = (
    Step(["run", "--retriever", "bm25", "--retriever", "bm25-lucene"], 20),
    Step(["compare", "bm25", "bm25-lucene"], 50),
    Step(["search", "salt craving and a tan that stays", "--top", "1"], 20),
)


def recorded(folder: Path) -> list[str]:
    """What somebody sees who types the commands one after the other, without the progress bar."""
    shown = run_all([(COLUMNS, step.command) for step in STEPS], folder)
    lines = []
    for step, seen in zip(STEPS, shown, strict=True):
        typed = " ".join(f'"{word}"' if " " in word else word for word in step.command)
        text = OURS.sub("", seen.raw).replace("\r\n", "\n").rstrip("\n")
        printed = [line.rpartition("\r")[2].rstrip() for line in text.split("\n") if "━" not in line]
        lines += ["", f"$ r2med {typed}", *printed[: step.lines]]
        if len(printed) > step.lines:
            lines.append(f"[{len(printed) - step.lines} more lines]")
    return lines[1:]


def svg(lines: list[str]) -> str:
    """A picture of lines of text, which stay text."""
    width, height = 2 * EDGE + COLUMNS * CELL, 2 * EDGE + len(lines) * LINE
    drawn = []
    for number, line in enumerate(lines):
        kind = ' class="typed"' if line.startswith("$ ") else ' class="cut"' if line.startswith("[") else ""
        drawn.append(f'<text{kind} x="{EDGE}" y="{EDGE + number * LINE + SIZE}">{escape(line)}</text>')
    label = "r2med run, compare and search in a terminal of 80 columns"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img" aria-label="{label}"'
    head += ' xml:space="preserve">'
    ground = f'<rect width="{width:g}" height="{height}" rx="8" fill="#0f1b1f"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", ground, *drawn, "</svg>\n"])


def main() -> None:
    """Record, and write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        picture = svg(recorded(Path(folder)))
    if sys.argv[1:] == ["--print"]:
        print(picture, end="")
    else:
        write_bytes(TARGET, picture.encode())


if __name__ == "__main__":
    main()
