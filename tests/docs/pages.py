"""Reading the documentation as a program: which blocks there are, what is to be done with each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
SHELLS = ("console", "bash", "sh")
_FENCE = re.compile(r"^( *)(`{3,})\s*(\{[^}]*\}|[\w-]*)\s*(.*)$")
_MARK = re.compile(r"<!--\s*(not run|slow):\s*(.+?)\s*-->")
_PROMPT = re.compile(r"[\w-]*\$ +")
_TITLE = re.compile(r'title="([^"]+)"')


class Block(NamedTuple):
    """A fenced block, or commands hidden in a comment (`setup`)."""

    language: str
    lines: tuple[str, ...]
    line: int
    title: str = ""
    not_run: str = ""
    slow: str = ""

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


class Command(NamedTuple):
    """A line for the shell, and the output the page shows for it, if any."""

    line: str
    expected: tuple[str, ...] = ()


def pages() -> list[Path]:
    """All pages people wrote, those of the front page included."""
    return [README, *sorted(DOCS.glob("*.md"))]


def blocks(path: Path) -> Iterator[Block]:
    """The blocks of a page, in order, with the marks that stand right before them."""
    lines = path.read_text("utf-8").split("\n")
    marks: dict[str, str] = {}
    number = 0
    while number < len(lines):
        line = lines[number]
        if line.startswith("<!-- setup"):
            end = next(i for i in range(number, len(lines)) if lines[i].strip().endswith("-->"))
            yield Block("setup", tuple(lines[number + 1 : end]), number + 1)
            number = end + 1
            continue
        if mark := _MARK.search(line):
            marks = {mark[1]: mark[2]}
        elif fence := _FENCE.match(line):
            indent, ticks, language, rest = fence.groups()
            end = next(i for i in range(number + 1, len(lines)) if lines[i].strip() == ticks)
            body = tuple(text.removeprefix(indent) for text in lines[number + 1 : end])
            title = _TITLE.search(rest)
            yield Block(
                language, body, number + 1, title[1] if title else "", marks.get("not run", ""), marks.get("slow", "")
            )
            marks, number = {}, end
        elif line.strip():
            marks = {}
        number += 1


def commands(block: Block) -> list[Command]:
    """The commands of a shell block."""
    if block.language != "console":  # a script: one after the other in one shell
        return [Command(block.text)]
    found: list[Command] = []
    for line in block.lines:
        if prompt := _PROMPT.match(line):
            found.append(Command(line[prompt.end() :]))
        elif found and found[-1].line.endswith("\\"):  # a command on several lines
            found[-1] = Command(f"{found[-1].line}\n{line}")
        elif found:
            found[-1] = Command(found[-1].line, (*found[-1].expected, line))
    return found


def matches(expected: tuple[str, ...], output: str) -> bool:
    """Whether output is as shown; `...` stands for anything, over several lines where it stands alone."""
    pattern = "".join(
        r"(?:.*\n)*" if line.strip() == "..." else re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + r"[ ]*\n"
        for line in expected
    )
    text = "".join(f"{line.rstrip()}\n" for line in output.splitlines())
    return re.fullmatch(pattern, text) is not None
