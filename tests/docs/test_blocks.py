"""The blocks of pages that scripts of `tools` write."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import r2med
from tests.docs.pages import DOCS, ROOT

HOME = Path(os.environ.get("R2MED_HOME", ""))
PACKAGE = Path(r2med.__file__).parent


def printed(script: str, *arguments: str, **environment: str) -> str:
    """What a script of `tools` prints."""
    command = [sys.executable, str(ROOT / "tools" / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def block(page: Path, name: str) -> str:
    """What stands on a page between the marks of a name."""
    (found,) = re.findall(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", page.read_text("utf-8"), re.DOTALL)
    return str(found).strip()


def drawn(text: str) -> set[str]:
    """The files that a drawing of a walk names."""
    found, room = set(), ""
    for line in text.splitlines():
        if match := re.match(r"[├└]─ (\S+)", line):
            room = match[1]
            found |= {room} if room.endswith(".py") else set()
        if line[:1] in "├└│ " and not room.endswith(".py"):
            found |= {f"{room}/{name}" for name in re.findall(r"[\w/]+\.py", line)}
    return found


def test_the_table_of_rooms_is_the_one_that_is_tested() -> None:
    assert block(DOCS / "architecture.md", "rooms") == printed("rooms.py")


def test_the_drawn_files_exist() -> None:
    text = block(DOCS / "architecture.md", "walk")
    files = drawn(text)
    assert not [name for name in files if not (PACKAGE / name).is_file()], "python tools/walk.py --markdown"
    assert f"{len(files)} of " in text
    assert {"cli/run.py", "fuse.py", "retrieve/bm25.py", "expand/generated.py", "rerank/similarity.py"} <= files


@pytest.mark.slow
@pytest.mark.skipif(not (HOME / "models" / "bge-small").is_dir(), reason="the embedded model is not in R2MED_HOME")
def test_the_drawn_walk_is_the_measured_one() -> None:
    assert drawn(block(DOCS / "architecture.md", "walk")) == drawn(printed("walk.py", "--print", R2MED_HOME=str(HOME)))


def test_the_picture_of_the_first_minutes_is_what_the_commands_print(tmp_path: Path) -> None:
    made = printed("terminal_picture.py", "--print", R2MED_HOME=str(tmp_path))
    assert (DOCS / "first-minutes.svg").read_text("utf-8").strip() == made, "python tools/terminal_picture.py"


def test_the_count_has_every_room_and_adds_up() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed("count.py").splitlines()[2:]]
    numbers = {row[0]: [int(cell.replace(",", "").replace("–", "0")) for cell in row[1:]] for row in rows}
    total = numbers.pop("all")
    assert [sum(column) for column in zip(*numbers.values(), strict=True)] == total
    assert total[:2] == [39121, 399]
    assert total[3] == sum(1 for _ in PACKAGE.rglob("*.py"))
    written = block(ROOT / "CONTRIBUTING.md", "count")
    assert all(f"| {room} |" in written for room in numbers)
