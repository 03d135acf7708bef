"""What the doctor writes down: the document `r2med doctor --json` prints."""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA = 1
Status = Literal["ok", "warning", "broken"]


class Extra(msgspec.Struct, frozen=True, kw_only=True):
    """One optional capability of the package."""

    name: str
    installed: bool
    packages: dict[str, str | None]
    # Package to its version, null where it is not installed.
    get: str
    # The command that installs it; empty when it is.


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where r2med runs."""

    platform: str
    processor: str
    cores: int
    # Those this process may use.
    memory_bytes: int | None
    gpus: list[str]
    torch: str | None
    # Version of PyTorch, whose suffix names the devices it was built for; null where it is not installed.


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """A key or token: whether it is there, never what it is."""

    name: str
    present: bool
    where: str
    # `environment`, `file`, or empty.


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A folder r2med reads or writes."""

    name: str
    path: str
    exists: bool
    bytes: int
    complete: bool
    # Whether everything was counted; a very large folder is not waited for.
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
    advice: str = ""
    # What to do about it.
    seconds: float = 0.0


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All findings."""

    schema: int
    ok: bool
    # Nothing is broken; warnings do not count.
    versions: dict[str, str]
    native: dict[str, bool]
    # C extension to whether it is built; where it is not, its Python twin works.
    extras: list[Extra]
    machine: Machine
    keys: list[Secret]
    settings: dict[str, str]
    # Environment variables that change what r2med does, where they are set.
    places: list[Place]
    tasks: dict[str, Counted]
    models: dict[str, Counted]
    plugins: list[str]
    # What other packages offer by entry points, with kind and package.
    checks: list[Check]
    ready: list[str]
    # What can be run now, in words.
