"""Experiments that come with r2med, by name: `r2med run @grouprank-32b`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from ..core import DataError, UnknownName
from ..core.files import parse_toml
from .experiment import Experiment

FOLDER = "experiments"


class Shipped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a shipped experiment says about itself beside what it runs."""

    name: str
    title: str
    published: float  # The average over R2MED's eight tasks that its source states, × 100.
    source: str  # Of the ledger.
    figure: str = ""  # What the ledger calls the system, where that is not the spec.
    differs: list[str] = []  # How it differs from what was published, as far as that is known.


class ShippedFile(Experiment, kw_only=True, forbid_unknown_fields=True):
    """A shipped experiment: an experiment file with a table `[about]`."""

    about: Shipped


@cache
def shipped() -> dict[str, ShippedFile]:
    """All of them, best published score first."""
    found = {}
    for entry in files(__package__).joinpath(FOLDER).iterdir():
        if entry.name.endswith(".toml"):
            data: dict[str, Any] = parse_toml(entry.read_text("utf-8"))
            try:
                data["about"]["name"] = entry.name[:-5]
                found[entry.name[:-5]] = msgspec.convert(data, ShippedFile)
            except (KeyError, ValueError) as error:
                raise DataError(f"is no experiment ({error})", path=entry.name) from None
    return dict(sorted(found.items(), key=lambda pair: (-pair[1].about.published, pair[0])))


def get_shipped(name: str) -> ShippedFile:
    """One of them; an unknown name is answered with all."""
    if name not in shipped():
        hint = f"(there are: {', '.join(f'@{known}' for known in shipped())})"
        raise UnknownName("experiment", name, shipped(), hint=hint)
    return shipped()[name]


def experiment_for(system: str) -> str:
    """The name of the shipped experiment that runs a system and nothing else; empty where there is none."""
    return next((name for name, file in shipped().items() if [table.spec for table in file.system] == [system]), "")
