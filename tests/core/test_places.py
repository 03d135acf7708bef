from __future__ import annotations

from pathlib import Path

import pytest

from r2med.core.places import home, hub_cache


def test_places_follow_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home().name == "r2med"
    monkeypatch.delenv("R2MED_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert home() == tmp_path / "r2med"
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    assert hub_cache() == tmp_path / "hf" / "hub"
    monkeypatch.delenv("HF_HOME")
    assert hub_cache() == tmp_path / "huggingface" / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "c"))
    assert hub_cache() == tmp_path / "c"
