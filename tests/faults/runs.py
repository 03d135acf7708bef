"""Real runs in processes of their own, and what they must leave behind."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from r2med.cache import open_shard
from tests.retrieve.encoders.weights import HOME

TASKS = "mini@1/Biology,mini@1/MedQA-Diag,mini@1/IIYi-Clinical"
ONE_TASK = "mini@1/Biology"
SYSTEMS = (
    "--retriever", "bm25", "--retriever", "bge-small:max_length=32", "--fuse", "rrf",
    "--rerank", "msmarco-minilm:max_length=64@3",
)  # fmt: skip
"""Every kind of work on a short leash: lexical, dense, fused and reranked, with cold caches in about five seconds."""
HISTORY = ("checksum", "seconds", "saved_seconds", "environment", "cache", "cache_hits", "scored", "damaged_shards")
"""What a result says about the day it was made rather than about its value."""


class Place(NamedTuple):
    """Where a run keeps its caches and its results."""

    home: Path
    results: Path

    def beside(self, name: str) -> Place:
        """Another place with the same weights."""
        return Place(linked_home(self.home.parent / f"{name}-home"), self.results.parent / f"{name}-results")


def linked_home(home: Path) -> Path:
    """A home of its own whose model folders are those of the person who runs the tests."""
    (home / "models").mkdir(parents=True)
    for folder in (HOME / "models").iterdir() if (HOME / "models").is_dir() else ():
        if folder.is_dir():
            (home / "models" / folder.name).symlink_to(folder.resolve())
    return home


def environment(place: Place, **more: str) -> dict[str, str]:
    return {**os.environ, "R2MED_HOME": str(place.home), "OMP_NUM_THREADS": "1", **more}


def command(place: Place, *more: str, tasks: str = TASKS, systems: tuple[str, ...] = SYSTEMS) -> list[str]:
    return [sys.executable, "-m", "r2med", "run", "--tasks", tasks, "--results", str(place.results), *systems, *more]


def run(place: Place, *more: str, env: dict[str, str] | None = None, **where: Any) -> subprocess.CompletedProcess[str]:
    """A run to its end, however it ends."""
    return subprocess.run(
        command(place, *more, **where), env=environment(place, **(env or {})), capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip


def run_well(place: Place, *more: str, **where: Any) -> None:
    done = run(place, *more, **where)
    assert done.returncode == 0, done.stderr


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The single line a refused run says."""
    said = [line for line in done.stderr.splitlines() if line.strip()]
    assert done.returncode not in (0, -9), done.stderr
    assert "Traceback" not in done.stderr
    last = said[-1]
    assert last.startswith("r2med: "), done.stderr
    return last


def content(results: Path) -> dict[str, bytes]:
    """Every file that counts, by name; results without their history, runs unpacked as they are stored."""
    found = {}
    for path in sorted(results.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            data = path.read_bytes()
            if path.suffix == ".json":
                data = json.dumps(without_history(json.loads(data))).encode()
            found[str(path.relative_to(results))] = data
    return found


def without_history(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_history(v) for k, v in value.items() if k not in HISTORY}
    return [without_history(v) for v in value] if isinstance(value, list) else value


def finished(results: Path) -> dict[Path, tuple[int, int, int]]:
    """Inode, time and size of everything that belongs to a finished result."""
    found = {}
    for path in results.glob("*/*/*.json"):
        for part in (path, path.with_suffix(".run.gz"), path.with_suffix(".queries.jsonl")):
            stat = part.stat()
            found[part] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
    return found


def check_whole(place: Place) -> None:
    """Nothing half-written carries a name that somebody reads."""
    for path in place.results.rglob("*"):
        if not path.is_file() or path.name.endswith(".tmp"):
            continue
        if path.suffix == ".gz":
            gzip.decompress(path.read_bytes())
        elif path.suffix == ".jsonl":
            assert path.read_bytes().endswith(b"\n")
            [json.loads(line) for line in path.read_bytes().splitlines()]
        elif path.suffix == ".json":
            json.loads(path.read_bytes())
    for path in place.home.rglob("*.shard"):
        open_shard(path, check=True)  # raises where a byte is wrong


def rows_and_texts(home: Path) -> tuple[int, int]:
    """Rows in all caches, and different ones: a text that was encoded and kept is never encoded again."""
    rows, different = 0, set()
    for path in home.rglob("*.shard"):
        if ".tmp" not in path.name:
            keys = open_shard(path).keys
            rows += len(keys)
            different |= {(str(path.parent), *key) for key in keys.tolist()}
    return rows, len(different)


def left_behind(place: Place) -> list[Path]:
    return [p for root in place for p in root.rglob("*.tmp")]
