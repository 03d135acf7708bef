"""What a fuzzed reader is: real inputs to start from, and a function that reads one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from r2med.pipeline import Builder, SystemSpec, run_experiment
from r2med.results import ResultStore
from r2med.tasks import resolve


class Case(NamedTuple):
    """A reader with its seeds. It may raise our own errors and nothing else."""

    seeds: Sequence[bytes]
    read: Callable[[bytes], object]


Maker = Callable[[Path], Case]


def from_file(path: Path, seeds: Sequence[bytes], read: Callable[[Path], object]) -> Case:
    """A reader of files: the input is put where it looks."""
    path.parent.mkdir(parents=True, exist_ok=True)

    def put_and_read(data: bytes) -> object:
        with open(path, "wb", buffering=0) as stream:  # noqa: PTH123 - a third faster, a million times
            stream.write(data)
        return read(path)

    return Case(seeds, put_and_read)


def as_text(seeds: Sequence[str], read: Callable[[str], object]) -> Case:
    """A reader of text: whatever bytes come in, as a lenient server would decode them."""
    return Case([s.encode() for s in seeds], lambda data: read(data.decode("utf-8", "replace")))


def some_results(root: Path) -> None:
    """A results folder made by a real run."""
    builder = Builder()
    systems = [builder.build(SystemSpec.parse(name)) for name in ("bm25", "bm25-lucene")]
    run_experiment(resolve("mini@1/Biology"), systems, ResultStore(root), depth=5)
