"""The build steps of the images, run for real in a copy of what an image is built from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="a shell script")


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """The build context: what .dockerignore lets through."""
    folder = tmp_path / "context"
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            source, target = ROOT / line[1:], folder / line[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=ignore)
            else:
                shutil.copy2(source, target)
    return folder


def step(context: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        ["sh", "docker/steps.sh", *arguments],
        cwd=context, env=settings | {"PYTHON": sys.executable, **environment},
        capture_output=True, text=True, timeout=550, check=False,
    )  # fmt: skip


def test_a_wrong_call_says_what_is_right(context: Path, tmp_path: Path) -> None:
    for arguments in ((), ("wheel",), ("instal", "a", "b")):
        done = step(context, *arguments)
        assert done.returncode == 1
        assert done.stderr.startswith("steps.sh: usage: ")
    empty = tmp_path / "empty"
    empty.mkdir()
    done = step(context, "install", str(tmp_path / "prefix"), str(empty), "requirements/cpu.txt")
    assert done.returncode == 1, "a step that fails stops the build"
    assert "no wheel" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler")
def test_from_sources_to_a_checked_environment(context: Path, tmp_path: Path) -> None:
    """All of the CPU image but its base: needs the package index, as building an image does."""
    reached = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path / "probe"), "click"],
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    if reached.returncode:
        pytest.skip("the package index cannot be reached")
    prefix = tmp_path / "prefix"
    for arguments in (
        ("wheel", str(tmp_path / "wheels")),
        ("install", str(prefix), str(tmp_path / "wheels"), "requirements/cpu.txt"),
        ("check", str(prefix)),
    ):
        done = step(context, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (tmp_path / "wheels").glob("r2med-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (r"r2med/_sparse.*\.so", r"r2med/_fast.*\.so", r"r2med/tasks/mini1/Biology/corpus\.jsonl",
                   r"r2med/models/cards/bge-small\.toml", r"r2med/doctor/checks\.py"):  # fmt: skip
        assert any(re.fullmatch(wanted, name) for name in names), wanted
    assert "r2med, version" in done.stdout
    assert "nDCG@10" in done.stdout
    assert "Ready" in done.stdout
    assert step(context, "check-cuda", str(prefix)).returncode != 0, "there is no PyTorch in it"
