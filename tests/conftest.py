"""Settings and places that all tests share."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent.parent))  # `from tests.builders import …`, however pytest is started

# Hundreds of tests start r2med as a process of its own: without compiled modules each would compile all of it again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell lets what it starts in the background ignore interrupts, and processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ("tests.browser",)

SHARED_DATA = Path(__file__).parent.parent.parent / "shared" / "data"

settings.register_profile(
    "r2med", deadline=None, database=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("r2med")


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the caches of the person who runs it."""
    home = tmp_path_factory.mktemp("home")
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("R2MED_HOME", str(home / "r2med"))
    monkeypatch.setenv("HF_HOME", str(home / "huggingface"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real test collections beside the repository; tests that need them skip where they are not."""
    if not SHARED_DATA.is_dir():
        pytest.skip("no real collections in ../shared/data")
    return SHARED_DATA


@pytest.fixture(scope="session")
def shared_runs() -> Path:
    """Published runs beside the repository."""
    runs = SHARED_DATA.parent / "runs"
    if not runs.is_dir():
        pytest.skip("no published runs in ../shared/runs")
    return runs
