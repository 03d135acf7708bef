"""Versions, C extensions and extras. Packages are looked up, not imported."""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, metadata, version
from importlib.util import find_spec

from .._version import __version__
from .findings import Extra

CORE = ("numpy", "msgspec", "click", "rich")
EXTENSIONS = ("_fast", "_sparse")
_REQUIREMENT = re.compile(
    r"""(?P<name>[\w.-]+)\s*(\[(?P<inner>[^\]]*)\])?[^;]*;.*\bextra\s*==\s*['"](?P<extra>[^'"]+)['"]"""
)


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
    """Whether each C extension was built."""
    return {name: find_spec(f"r2med.{name}") is not None for name in EXTENSIONS}


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
    return [_extra(name, needed) for name, needed in packages.items()]


def _extra(name: str, needed: dict[str, str | None]) -> Extra:
    installed = all(needed.values())
    return Extra(
        name=name, installed=installed, packages=needed, get="" if installed else f"pip install 'r2med[{name}]'"
    )
