"""`r2med run` as a process, and what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .ray_nodes import QUIET


class Ran:
    """A run under way or over."""

    def __init__(self, home: Path, results: Path, *arguments: str) -> None:
        self.home, self.results = home, results
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "r2med", "run", "--results", str(results), "--json", *arguments],
            env={**environment, **QUIET, "R2MED_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, code: int | None = 0) -> Ran:
        """Wait; the output is then in `out` and `err`."""
        self.out, self.err = self.process.communicate(timeout=120)
        if code is not None:
            assert self.process.returncode == code, self.err[-3000:]
        return self

    def until(self, true: Callable[[], Any], *, seconds: float = 120) -> Any:
        """Wait for something while it runs."""
        end = time.monotonic() + seconds
        while not (found := true()):
            assert self.process.poll() is None, self.process.communicate()[1][-3000:]
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.01)
        return found

    def shards(self) -> list[Path]:
        """Vectors the driver has kept so far."""
        return sorted((self.home / "embeddings").glob("*/*/*.shard"))

    def document(self) -> Any:
        """Its JSON without what differs between any two runs."""
        found = json.loads(self.out)
        for system in found["systems"]:
            for varying in ("seconds", "cold_seconds"):
                system.pop(varying)
        return found

    def files(self) -> dict[str, bytes]:
        """Runs and per-query scores, byte by byte; of result files what is not timing, place or cache."""
        kept = {}
        for path in sorted(self.results.rglob("*")):
            name = path.relative_to(self.results).as_posix()
            if path.name.endswith((".run.gz", ".jsonl")):
                kept[name] = path.read_bytes()
            elif path.suffix == ".json" and not path.name.startswith("."):
                kept[name] = json.dumps(without(json.loads(path.read_bytes()))).encode()
        return kept


VARYING = ("checksum", "seconds", "saved_seconds", "environment", "cache", "cache_hits", "scored")


def without(value: Any) -> Any:
    """Data without the keys whose values no two runs share."""
    if isinstance(value, dict):
        return {key: without(item) for key, item in value.items() if key not in VARYING}
    return [without(item) for item in value] if isinstance(value, list) else value
