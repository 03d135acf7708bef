"""How a number was made: versions, machine, commit."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .._version import __version__
from ..core import DataError
from ..core.untrusted import inside

PACKAGES = ("numpy", "onnxruntime", "tokenizers", "torch", "transformers", "sentence-transformers")


def environment() -> dict[str, object]:
    """The machine and the software now; packages that were not imported so far are not listed."""
    versions = {"r2med": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        if package.replace("-", "_") in sys.modules:
            try:
                versions[package] = version(package)
            except PackageNotFoundError:
                continue
    return {
        "versions": versions,
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "commit": _commit(),
        "native": "r2med._fast" in sys.modules and "r2med._sparse" in sys.modules,
    }


@cache
def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open() as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@cache
def _commit() -> str | None:
    """Commit of the checkout r2med runs from; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    head = root / ".git" / "HEAD"
    try:
        content = head.read_text().strip()
        if not content.startswith("ref: "):
            return content
        return inside(root / ".git", content.removeprefix("ref: "), "branch").read_text().strip()
    except (OSError, DataError):
        return None
