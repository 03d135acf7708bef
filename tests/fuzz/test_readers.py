"""A million broken inputs: every reader answers with data or with one line of our own, in time and in bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.readers import READERS

ROOT = Path(__file__).parent.parent.parent
PARQUET = [name for name in READERS if "parquet" in name]
SHORT, LONG = 40, 17_000
SLOW = 6_000
"""Inputs for readers that take a millisecond each."""
SLOW_READERS = {*PARQUET, "addresses of the app", *(n for n in READERS if n.startswith(("index ", "bundle")))}


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where there is such a place: millions of small files are nothing for a disk."""
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None, prefix="r2med-fuzz-") as made:
        yield Path(made)


def fuzz(reader: str, inputs: int, seed: int, folder: Path, **env: str) -> dict[str, Any]:
    """One reader in a process of its own; what breaks it is shown in full."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.child", reader, str(inputs), str(seed), str(folder)],
        cwd=ROOT, env={**os.environ, "R2MED_HOME": str(folder / "home"), **env}, capture_output=True, text=True,
        check=False, timeout=1800,
    )  # fmt: skip
    try:
        report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = (folder / "input").read_bytes() if (folder / "input").exists() else b""
        pytest.fail(f"{reader} ended with {done.returncode} over {last[:500]!r}\n{done.stderr[-3000:]}")
    if problem := report.get("problem"):
        data = bytes.fromhex(problem["input"])
        pytest.fail(f"{reader}: {problem['error']} at {problem['place']}\ninput: {data[:500]!r}\n{problem['trace']}")
    assert report["inputs"] == inputs
    return report


def needs(reader: str) -> None:
    if reader in PARQUET:
        pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    if ".zst" in reader:
        pytest.importorskip("zstandard", reason="the extra `zstd` is not installed")
    if "app" in reader:
        pytest.importorskip("jinja2", reason="the extra `view` is not installed")
    if reader == "chat completion bodies":
        pytest.importorskip("httpx", reason="the extra `api` is not installed")
    if reader.startswith("C "):
        for name in ("_fast", "_sparse", "_dots"):
            pytest.importorskip(f"r2med.{name}", reason="built without the C extensions")


@pytest.mark.faults
@pytest.mark.parametrize("reader", READERS)
def test_a_reader(reader: str, folder: Path, record_property: Callable[[str, object], None]) -> None:
    needs(reader)
    report = fuzz(reader, SLOW if reader in SLOW_READERS else LONG, 20_261_115, folder)
    record_property(f"count: inputs ({report['slowest_ms']} ms at most, +{report['grown_mb']} MB)", report["inputs"])


def test_every_reader_for_a_moment(folder: Path) -> None:
    """The same for the default suite: one process for all, a few dozen inputs each."""
    command = [sys.executable, "-m", "tests.fuzz.child", "all", str(SHORT), "7", str(folder)]
    env = {**os.environ, "R2MED_HOME": str(folder / "home")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert json.loads(done.stdout.strip().splitlines()[-1])["inputs"] >= SHORT * (len(READERS) - 12)


def test_the_same_seed_makes_the_same_inputs() -> None:
    from itertools import islice

    from tests.fuzz.mutate import Mutator

    seeds = [b"q1 Q0 d1 1 0.5 tag\n", b"{}"]
    first, second, other = (list(islice(Mutator(seeds, s), 500)) for s in (1, 1, 2))
    assert first == second != other
    assert len(set(first)) > 300
