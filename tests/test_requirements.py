"""The lock files: every package at one version with its hashes, and nothing about where they came from."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "requirements"
IMAGE = ("onnx", "api", "hub", "parquet", "zstd", "plots", "view")


class Lock(NamedTuple):
    """A lock file, and what of pyproject.toml it stands for."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    torch: bool = False


LOCKS = {
    "dev": Lock(("all", "torch", "ray"), ("test", "docs", "lint")),
    "run": Lock(("onnx",)),
    "docs": Lock(groups=("docs",)),
    "portable": Lock(groups=("portable",)),
    "cpu": Lock(IMAGE),
    "cuda": Lock((*IMAGE, "torch"), torch=True),
}


def locked(name: str) -> dict[str, list[str]]:
    """Versions of each package; several where a marker chooses."""
    found: dict[str, list[str]] = {}
    text = (FOLDER / f"{name}.txt").read_text("utf-8")
    for block in re.split(r"\n(?=\S)", text.strip()):
        lines = [line for line in block.splitlines() if not line.strip().startswith("#")]
        match = re.fullmatch(r"([\w.-]+)==([\w.+!]+)( ; .+)? \\", lines[0])
        assert match, lines[0]
        assert lines[1:], f"{lines[0]} has no hash"
        for line in lines[1:]:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line), line
        found.setdefault(canonicalize_name(match[1]), []).append(match[2])
    return found


def wanted(project: dict[str, Any], lock: Lock) -> list[Requirement]:
    """What pyproject.toml asks for."""
    optional = project["project"]["optional-dependencies"]
    texts = [*project["project"]["dependencies"], *(text for extra in lock.extras for text in optional[extra])]
    texts += [text for group in lock.groups for text in project["dependency-groups"][group]]
    found = []
    for one in map(Requirement, texts):
        if one.name == "r2med":
            found += [Requirement(text) for extra in sorted(one.extras) for text in optional[extra]]
        else:
            found.append(one)
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_what_the_project_asks_for(name: str) -> None:
    """A dependency that was added or raised without writing the locks again is noticed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    lock, versions = LOCKS[name], locked(name)
    for requirement in wanted(project, lock):
        if requirement.name == "torch" and not lock.torch:
            continue
        if requirement.marker is not None and name in ("cpu", "cuda"):
            continue  # the images have one Python
        have = versions.get(canonicalize_name(requirement.name), [])
        assert any(requirement.specifier.contains(version, prereleases=True) for version in have), requirement
    assert ("torch" in versions) == lock.torch
    assert any(package.startswith("nvidia-") for package in versions) == lock.torch


def test_the_locks_agree() -> None:
    development = locked("dev")
    for name in ("run", "cpu", "docs", "portable"):
        for package, versions in locked(name).items():
            assert set(versions) <= set(development[package]), package


@pytest.mark.parametrize("name", ["build", "release", *LOCKS])
def test_a_lock_names_no_place(name: str) -> None:
    text = (FOLDER / f"{name}.txt").read_text("utf-8")
    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE), "an option, such as the address of an index"
    assert locked(name)


def test_development_installs_with_hashes() -> None:
    """All but PyTorch, whose build the index chooses, and r2med itself."""
    for line in (ROOT / "Makefile").read_text("utf-8").splitlines():
        if re.search(r"\$\(PIP\) install|pip .*install", line) and "--require-hashes" not in line:
            allowed = r"torch==2\.13\.0$|--no-deps --no-build-isolation --editable \.$|--group bench$"
            assert re.search(allowed, line), line
