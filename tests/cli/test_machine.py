"""`r2med cache` as a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cache.test_admin import fill


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    fill(tmp_path / "home")
    return tmp_path / "home"


def cache(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "r2med", "cache", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, done.stderr
    return done


def document(*arguments: str, code: int = 0) -> Any:
    return json.loads(cache(*arguments, "--json", code=code).stdout)


def test_what_is_shown(home: Path) -> None:
    shown = document()
    assert (shown["root"], shown["bytes"]) == (str(home), sum(shown["kinds"].values()))
    assert [sorted(shown["kinds"]), len(shown["entries"])] == [["generations", "indexes", "scores", "vectors"], 4]
    for entry in shown["entries"]:
        assert entry.keys() == {"kind", "path", "label", "detail", "about", "bytes", "files", "last_used"}
        assert Path(entry["path"]).exists()
    table = cache().stdout
    rows = [" ".join(line.split()[:4]) for line in table.splitlines()[2:]]
    assert rows == ["vectors bge-small document 1", "scores monobert document 1", "generations replay:test hyde 1",
                    "indexes bm25 mini@1/Biology 1"]  # fmt: skip
    assert "monobert" not in cache("--kind", "vectors").stdout


def test_verifying_and_pruning(home: Path) -> None:
    assert document("verify")["damaged"] == []
    (shard,) = home.glob("embeddings/*/*/*.shard")
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    (damage,) = document("verify", code=1)["damaged"]
    assert (damage["kind"], damage["path"], damage["lost"]) == ("vectors", str(shard), True)
    assert f"{shard}: wrong checksum" in cache("verify", code=1).stdout
    assert document("prune")["damaged"] == 1
    assert document("verify")["damaged"] == []
    assert document("prune", "--max-size", "0")["entries"] == 3
    assert [e["kind"] for e in document()["entries"]] == ["generations"]
    for path in home.rglob("*.jsonl"):
        os.utime(path, (1, 1))
    assert document("prune", "--unused-days", "1")["entries"] == 0
    assert document("prune", "--kind", "generations", "--unused-days", "1")["entries"] == 1


def test_mistakes_are_one_line(home: Path) -> None:
    for arguments in (("prune", "--max-size", "much"), ("--kind", "vector"), ("prune", "--kind", "x")):
        said = cache(*arguments, code=2).stderr
        assert said.startswith("r2med: ")
        assert said.count("\n") == 1
