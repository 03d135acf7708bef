"""Real weights, where the person who runs the tests has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.core.files import home

HOME = home()  # before the tests get a home of their own


def real_model(name: str, file: str) -> Path:
    """The folder of a fetched model, or a skip that says how to get it."""
    folder = HOME / "models" / name
    if not (folder / file).is_file():
        pytest.skip(f"{name} is not here: r2med models fetch {name}")
    return folder
