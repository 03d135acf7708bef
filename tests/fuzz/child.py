"""Feeds one reader with broken inputs, in a process of its own: `python -m tests.fuzz.child READER COUNT SEED FOLDER`.

A crash of native code, a hang or a gluttonous read ends this process and nobody else's. The input that is being read
lies in FOLDER/input, so that whoever started it can look at what did it. Prints one JSON document.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from r2med.core import MissingExtra, R2MedError
from tests.fuzz.mutate import Mutator
from tests.fuzz.native_readers import BUILT
from tests.fuzz.readers import READERS, Case

SECONDS = 60.0
"""For one input: a hang. Thousands a second is the rule; a busy machine must not make this fail."""
MEMORY = 6 << 30
"""Address space: Arrow reserves gigabytes it never touches."""
GROWTH = 400 << 20
"""Bytes of memory a reader may take over what it had after its first inputs."""
WARM = 200


class Hang(BaseException):
    """An input that takes too long; no reader may catch it."""


def on_alarm(number: int, frame: FrameType | None) -> None:
    raise Hang


def feed(case: Case, data: bytes, outcomes: Counter[str]) -> None:
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        case.read(data)
        outcomes["read"] += 1
    except R2MedError as error:
        if "\n" in str(error).strip() or not str(error).strip():
            raise AssertionError(f"not one line: {str(error)!r}") from error
        outcomes[type(error).__name__] += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Report(NamedTuple):
    """What came of one reader."""

    outcomes: Counter[str]
    slowest: float
    grown: int
    problem: dict[str, object] | None = None


def fuzz(reader: str, count: int, seed: int, folder: Path) -> Report:
    """Feed one reader until it breaks or the inputs are used up."""
    folder.mkdir(exist_ok=True)
    case = READERS[reader](folder)
    outcomes: Counter[str] = Counter()
    slowest, base = 0.0, 0
    with (folder / "input").open("wb", buffering=0) as kept:
        for number, data in enumerate(itertools.islice(Mutator(case.seeds, seed), count)):
            kept.seek(0)
            kept.truncate()
            kept.write(data)
            begin = time.perf_counter()
            try:
                feed(case, data, outcomes)
            except BaseException as error:
                return Report(outcomes, slowest, 0, describe(reader, data, error))
            slowest = max(slowest, time.perf_counter() - begin)
            if number == WARM:
                base = peak_memory()
    grown = max(0, peak_memory() - base) if base else 0
    greedy: dict[str, object] = {
        "reader": reader,
        "error": f"memory grew by {grown >> 20} MB",
        "input": "",
        "place": "",
        "trace": "",
    }
    return Report(outcomes, slowest, grown, greedy if grown > GROWTH else None)


def describe(reader: str, data: bytes, error: BaseException) -> dict[str, object]:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return {
        "reader": reader,
        "input": data.hex(),
        "error": f"{type(error).__name__}: {str(error)[:300]}",
        "place": f"{last.filename}:{last.lineno}",
        "trace": traceback.format_exc()[-3000:],
    }


def main(reader: str, count: int, seed: int, folder: Path) -> int:
    """One reader, or `all` of those whose libraries are here."""
    faulthandler.enable()
    warnings.simplefilter("ignore")  # a library may warn about broken input; it is about to be refused
    signal.signal(signal.SIGALRM, on_alarm)
    if BUILT not in os.environ:  # a sanitizer reserves terabytes of addresses for its books
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    total, slowest, grown = 0, 0.0, 0
    for number, name in enumerate(READERS if reader == "all" else [reader]):
        try:
            report = fuzz(name, count, seed, folder if reader != "all" else folder / str(number))
        except (ImportError, MissingExtra):
            if reader != "all":
                raise
            continue
        if report.problem is not None:
            print(json.dumps({"problem": report.problem}))
            return 1
        total += sum(report.outcomes.values())
        slowest, grown = max(slowest, report.slowest), max(grown, report.grown)
    print(json.dumps({"inputs": total, "slowest_ms": round(1000 * slowest, 1), "grown_mb": grown >> 20}))
    return 0


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
