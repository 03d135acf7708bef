"""What there is on this machine: software, hardware, keys, settings, folders. Nothing is imported to find out.

The structs are the document that `r2med doctor --json` prints.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import time
from importlib.metadata import PackageNotFoundError, metadata, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from .._version import __version__
from ..core.files import free_space, home, hub_cache
from ..core.keys import key_place
from ..core.portable import total_memory
from ..models import cards, chat_cards
from ..results.schema import environment
from ..retrieve.sparse import available_cores

SCHEMA = 1
Status = Literal["ok", "warning", "broken"]
CORE = ("numpy", "msgspec", "click", "rich")
NVIDIA = Path("/proc/driver/nvidia/gpus")
SHOWN = (
    *("R2MED_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"),
    *("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "CUDA_VISIBLE_DEVICES"),
)
PATIENCE = 0.4  # Seconds after which a folder is large enough to be called `at least`.
_MEBIBYTES = re.compile(r"(\d+) MiB")
_REQUIREMENT = re.compile(
    r"""(?P<name>[\w.-]+)\s*(\[(?P<inner>[^\]]*)\])?[^;]*;.*\bextra\s*==\s*['"](?P<extra>[^'"]+)['"]"""
)


class Extra(msgspec.Struct, frozen=True, kw_only=True):
    """One optional capability of the package."""

    name: str
    installed: bool
    packages: dict[str, str | None]  # Package to its version, null where it is not installed.
    get: str  # The command that installs it; empty when it is.


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where r2med runs."""

    platform: str
    processor: str
    cores: int  # Those this process may use.
    memory_bytes: int | None
    gpus: list[str]
    torch: str | None
    # Version of PyTorch, whose suffix names the devices it was built for; null where it is not installed.


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """A key or token: whether it is there, never what it is."""

    name: str
    present: bool
    where: str  # `environment`, `file`, or empty.


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A folder r2med reads or writes."""

    name: str
    path: str
    exists: bool
    bytes: int
    complete: bool  # Whether everything was counted; a very large folder is not waited for.
    free_bytes: int | None = None


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a kind are ready here, and which."""

    ready: list[str]
    total: int


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was tried."""

    name: str
    status: Status
    detail: str
    advice: str = ""  # What to do about it.
    seconds: float = 0.0


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All findings."""

    schema: int
    ok: bool  # Nothing is broken; warnings do not count.
    versions: dict[str, str]
    native: dict[str, bool]  # C extension to whether it is built; where it is not, its Python twin works.
    extras: list[Extra]
    machine: Machine
    keys: list[Secret]
    settings: dict[str, str]  # Environment variables that change what r2med does, where they are set.
    places: list[Place]
    tasks: dict[str, Counted]
    models: dict[str, Counted]
    plugins: list[str]  # What other packages offer by entry points, with kind and package.
    checks: list[Check]
    ready: list[str]  # What can be run now, in words.


def versions() -> dict[str, str]:
    """Python, r2med and what it cannot do without."""
    found = {"python": platform.python_version(), "r2med": __version__}
    return found | {name: installed for name in CORE if (installed := installed_version(name)) is not None}


def installed_version(package: str) -> str | None:
    """The version of a package, or None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def native_extensions() -> dict[str, bool]:
    """Whether each C extension was built; every one has a stub file beside it."""
    stubs = sorted(path.stem for path in Path(__file__).parents[1].glob("_*.pyi"))
    return {name: find_spec(f"r2med.{name}") is not None for name in stubs}


def extras() -> list[Extra]:
    """Every extra the installed package declares; none where it was never installed."""
    try:
        about = metadata("r2med")
    except PackageNotFoundError:
        return []
    packages = {name: dict[str, str | None]() for name in about.get_all("Provides-Extra") or ()}
    nested: dict[str, list[str]] = {}
    for line in about.get_all("Requires-Dist") or ():
        if not (found := _REQUIREMENT.match(line)) or found["extra"] not in packages:
            continue
        if found["name"] == "r2med":
            nested[found["extra"]] = [name.strip() for name in (found["inner"] or "").split(",")]
        else:
            packages[found["extra"]][found["name"]] = installed_version(found["name"])
    for name, inner in nested.items():
        for other in inner:
            packages[name] |= packages.get(other, {})
    return [
        Extra(name=name, installed=all(needed.values()), packages=needed,
              get="" if all(needed.values()) else f"pip install 'r2med[{name}]'")
        for name, needed in packages.items()
    ]  # fmt: skip


def look_at_machine() -> Machine:
    """Cores, memory and GPUs; PyTorch is not imported to find them, which would take seconds."""
    return Machine(
        platform=platform.platform(),
        processor=str(environment()["processor"]),
        cores=available_cores(),
        memory_bytes=total_memory(),
        gpus=_gpus(),
        torch=installed_version("torch"),
    )


def _gpus() -> list[str]:
    """Names of the NVIDIA GPUs, from their driver; Apple's own where the machine is theirs."""
    if program := shutil.which("nvidia-smi"):
        query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
        try:
            done = subprocess.run(query, capture_output=True, text=True, timeout=5, check=False)
        except (OSError, subprocess.TimeoutExpired):
            done = None
        if done is not None and done.returncode == 0:
            return [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if NVIDIA.is_dir():
        return [_model(folder / "information") for folder in sorted(NVIDIA.iterdir())]
    return ["Apple GPU (mps)"] if (platform.system(), platform.machine()) == ("Darwin", "arm64") else []


def gpu_memory() -> int:
    """Bytes of the largest GPU here, as its driver says; 0 where there is none, or it does not say."""
    sizes = [int(found[1]) << 20 for gpu in _gpus() if (found := _MEBIBYTES.search(gpu))]
    return max(sizes, default=0)


def _model(information: Path) -> str:
    try:
        lines = information.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("Model:")), "NVIDIA GPU")


def settings_in_force() -> dict[str, str]:
    """Variables that are set and change what r2med does; of addresses only the server, which may not hold a secret."""
    addresses = ("HF_ENDPOINT", *sorted({card.url_variable for card in (*cards(), *chat_cards()) if card.is_api}))
    found = {name: value for name in SHOWN if (value := os.environ.get(name))}
    return found | {name: _server(value) for name in addresses if (value := os.environ.get(name))}


def _server(address: str) -> str:
    """`scheme://host:port`; an address may hold a user's password."""
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "set, but not an address"
    return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else "set, but not an address"


def key_variables() -> list[str]:
    """Environment variables of all keys a model may ask for."""
    return list(dict.fromkeys(card.key for card in (*chat_cards(), *cards()) if card.key))


def keys() -> list[Secret]:
    """Every key a model may ask for and the hub's token: whether they are there, never what they are."""
    token = Path(os.environ.get("HF_TOKEN_PATH") or hub_cache().parent / "token").expanduser()
    stored = "file" if token.is_file() and token.stat().st_size else ""
    found: dict[str, str] = {name: key_place(name) for name in key_variables()}
    found["HF_TOKEN"] = "environment" if os.environ.get("HF_TOKEN", "").strip() else stored
    return [Secret(name=name, present=bool(where), where=where) for name, where in found.items()]


def places(results: Path) -> list[Place]:
    """The home with each of its caches, the hub's cache, and the results."""
    root = home()
    try:
        inside = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError:
        inside = []
    return [
        look_at("home", root, free=True),
        *(look_at(f"home/{path.name}", path) for path in inside),
        look_at("hub cache", hub_cache()),
        look_at("results", results, free=True),
    ]


def look_at(name: str, path: Path, *, free: bool = False) -> Place:
    """One folder; it need not exist."""
    (size, complete), room = size_of(path), free_space(path) if free else None
    return Place(name=name, path=str(path), exists=path.is_dir(), bytes=size, complete=complete, free_bytes=room)


def size_of(path: Path, patience: float = PATIENCE) -> tuple[int, bool]:
    """Bytes of all files below, each counted once though linked, and whether there was time to see all of them."""
    until, total, waiting, seen = time.monotonic() + patience, 0, [str(path)], set[tuple[int, int]]()
    while waiting:
        if time.monotonic() > until:
            return total, False
        try:
            with os.scandir(waiting.pop()) as inside:
                for entry in inside:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        facts = entry.stat(follow_symlinks=False)
                        identity = (facts.st_dev, facts.st_ino)
                        total += 0 if identity in seen else facts.st_size
                        seen |= {identity} if facts.st_ino else set()  # Windows does not say it here
        except OSError:
            continue  # gone meanwhile, or not ours to read
    return total, True
