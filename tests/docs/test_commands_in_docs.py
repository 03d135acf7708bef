"""Every command in the documentation: it exists, and where it can run here it does what the page says."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.docs.command_lines import calls, problem
from tests.docs.pages import README, ROOT, SHELLS, Block, blocks, commands, matches, pages

HOME = Path(os.environ.get("R2MED_HOME", ""))
REASONS = (
    *(
        "hub",
        "package index",
        "paid API",
        "key",
        "server",
        "GPU",
        "two machines",
        "Slurm",
        "Kubernetes",
        "data",
        "weights",
    ),
    *("environment of its own", "until it is stopped", "a file of yours", "wheels of step 1", "container engine"),
)
_INLINE = re.compile(r"`(r2med [^`]+)`")
_INDENTED = re.compile(r"^ {4}(r2med (?:[a-z]+)(?: [-./<\w].*)?)$(?<!\.)", re.MULTILINE)


def each(paths: list[Path]) -> pytest.MarkDecorator:
    """A test a page."""
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.name)


def shell_blocks(path: Path) -> list[Block]:
    return [block for block in blocks(path) if block.language in (*SHELLS, "setup")]


def runnable(path: Path, *, slow: bool) -> list[Block]:
    """What a test carries out: commands, Python, and files the page shows by name."""
    return [
        block
        for block in blocks(path)
        if not block.not_run
        and (slow or not block.slow)
        and (block.title or block.language in (*SHELLS, "setup", "python"))
    ]


FAST = [path for path in pages() if runnable(path, slow=False)]
SLOW = [path for path in pages() if any(block.slow for block in runnable(path, slow=True))]


@each(pages())
def test_every_command_exists(path: Path) -> None:
    for block in shell_blocks(path):
        for line in (line for command in commands(block) for line in command.line.replace("\\\n", " ").splitlines()):
            for arguments in calls(line):
                assert not problem(arguments), f"{path.name}:{block.line}: {line}: {problem(arguments)}"


@each(pages())
def test_commands_in_sentences_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    mentioned = [*_INLINE.findall(text), *(_INDENTED.findall(text) if path == README else [])]
    for line in mentioned:
        first, *others = _alternatives(line)
        for arguments in (a for one in (first, *others) for a in calls(one)):
            assert not problem(arguments, whole=False), f"{path.name}: {line}: {problem(arguments, whole=False)}"


def _alternatives(line: str) -> list[str]:
    """`r2med data validate|stats FOLDER` stands for two lines; `…` and brackets stand for what is left out."""
    line = re.sub(r"…|\[[^\]]*\]", "", line)
    if found := re.search(r" (\w[\w-]*(?:\|\w[\w-]*)+)", line):
        return [line.replace(found[1], word) for word in found[1].split("|")]
    return [line]


@each(pages())
def test_what_is_not_run_says_why(path: Path) -> None:
    for block in blocks(path):
        if block.not_run:
            assert any(reason in block.not_run for reason in REASONS), f"{path.name}:{block.line}: {block.not_run}"
        if block.language == "python":
            ast.parse(block.text)


def test_most_commands_are_run() -> None:
    run = sum(len(commands(b)) for path in pages() for b in shell_blocks(path) if not b.not_run)
    left = sum(len(commands(b)) for path in pages() for b in shell_blocks(path) if b.not_run)
    print(f"{run} commands are run, {left} cannot be run here")
    assert run > 1.5 * left


def test_commands_stand_in_fences() -> None:
    for path in pages():
        if path != README:
            assert not _INDENTED.findall(path.read_text("utf-8")), f"{path.name}: use a console block, it is tested"


@each(FAST)
def test_the_page_does_what_it_says(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out(path, runnable(path, slow=False), tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.skipif(not (HOME / "models" / "bge-small").is_dir(), reason="the embedded model is not in R2MED_HOME")
@each(SLOW)
def test_the_page_does_what_it_says_with_models(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = re.findall(r'find_card\("([\w-]+)"\)', path.read_text("utf-8"))
    if missing := [name for name in named if not (HOME / "models" / name).is_dir()]:
        pytest.skip(f"{missing[0]} is not in R2MED_HOME")
    home = Path(os.environ["R2MED_HOME"])
    home.mkdir(parents=True)
    (home / "models").symlink_to(HOME / "models")
    carry_out(path, runnable(path, slow=True), tmp_path, monkeypatch)


def carry_out(path: Path, todo: list[Block], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go down the page in an empty folder, offline, with this environment's own `r2med`."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("OPENAI_API_KEY", "OPENAI_API_KEY_FILE", "OPENAI_BASE_URL", "VOYAGE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    work = folder / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    names: dict[str, Any] = {"__name__": "page"}
    for block in todo:
        where = f"{path.name}:{block.line}"
        if block.title:
            (work / block.title).parent.mkdir(parents=True, exist_ok=True)
            (work / block.title).write_text(block.text, "utf-8")
        elif block.language == "python":
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("default")
                exec(compile(block.text, where, "exec"), names)
        else:
            for command in commands(block):
                done = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", command.line],
                    capture_output=True, text=True, timeout=300, check=False,
                )  # fmt: skip
                output = done.stdout + done.stderr
                assert done.returncode == 0, f"{where}: {command.line}\n{output}"
                if command.expected:
                    assert matches(command.expected, output), f"{where}: {command.line}\n{output}"


def test_generated_pages_hold_commands_that_exist(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "docs.py"), str(tmp_path / "reference")],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = sorted((tmp_path / "reference").rglob("*.md"))
    assert len(made) > 60
    checked = 0
    for path in made:
        for block in shell_blocks(path):
            assert block.not_run, path
            for command in commands(block):
                for arguments in calls(command.line):
                    assert not problem(arguments), f"{path}: {command.line}: {problem(arguments)}"
                    checked += 1
    assert checked > 40


def test_a_wrong_command_is_found() -> None:
    assert problem(["run", "--retreiver", "bm25"])
    assert problem(["rnu"])
    assert problem(["data", "convert", "a"])
    assert problem(["run", "--rest", "perhaps"])
    assert problem(["run", "--depth", "many"])
    assert not problem(["run", "-r", "bm25", "--rest", "drop", "--depth", "10"])
    assert list(calls("A=1 r2med run -r bm25 # why\n")) == [["run", "-r", "bm25"]]
    assert list(calls("r2med tasks | head; r2med models")) == [["tasks"], ["models"]]
    assert matches(("a ... b", "...", "end"), "a x b\nmore\n\nend\n")
    assert not matches(("a", "end"), "a\nmore\nend\n")


def test_the_extras_are_those_of_the_package() -> None:
    section = (ROOT / "pyproject.toml").read_text("utf-8").partition("[project.optional-dependencies]\n")[2]
    declared = dict(re.findall(r"^([\w-]+) = \[(.*)\]", section.partition("\n\n")[0], re.MULTILINE))
    rows = re.findall(r"^\| (`[^|]+`) \| (.+) \|$", README.read_text("utf-8").partition("| extra |")[2], re.MULTILINE)
    named = {name: text for names, text in rows for name in re.findall(r"`([\w-]+)`", names)}
    table = {name: text for name, text in named.items() if not name.startswith("bm25")}
    assert table.keys() == declared.keys()
    inside = set(re.findall(r"[\w-]+", declared["all"])) - {"r2med"}
    assert {*re.findall(r"`([\w-]+)`", table["all"])} == declared.keys() - inside - {"all"}


def test_front_pages_fit_a_terminal() -> None:
    for path in (README, ROOT / "CONTRIBUTING.md"):
        prose = re.sub(r"^```diff.*?^```|^\|.*?$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert not [line for line in prose.splitlines() if len(line) > 80], path.name
