"""Shared by the benchmarks: processes of their own, seconds, peak memory, ratios with targets, texts to work on."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from r2med.core import Task

DATA = Path(__file__).parents[2] / "shared" / "data"
"""Real test collections beside the clone; a benchmark does without where they are missing."""
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Cost(NamedTuple):
    """What a whole process took."""

    cpu: float
    wall: float
    megabytes: float


def measure(arguments: list[str], *, repeat: int = 3) -> Cost:
    """Median CPU and wall time and the peak memory of `python arguments`, imports and start-up counted.

    Modules may be kept compiled, as they are for everybody who does not forbid it.
    """
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    costs = []
    for _ in range(repeat):
        start = os.times().elapsed
        process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, env=given)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(arguments)} failed with {process.returncode}")
        costs.append(Cost(usage.ru_utime + usage.ru_stime, os.times().elapsed - start, usage.ru_maxrss / 1024))
    return Cost(*(statistics.median(c[i] for c in costs) for i in range(3)))


def seconds(
    work: Callable[[], object], repeat: int = 5, *, clock: Callable[[], float] = time.process_time
) -> list[float]:
    """Each of several times that some work took: CPU seconds of all threads, or those of another clock.

    `min` of them is what the machine can do when nobody is in the way, `statistics.median` what it mostly does.
    """
    taken = []
    for _ in range(repeat):
        start = clock()
        work()
        taken.append(clock() - start)
    return taken


def contender(
    script: str, *arguments: str, one_core: bool = False, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a script beside this one measured in a process of its own: the JSON of its last line."""
    command = [sys.executable, here(script), *arguments]
    if one_core and shutil.which("taskset"):
        command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]
    given = {**os.environ, **(ONE_THREAD if one_core else {}), **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=given)
    if done.returncode:
        raise SystemExit(f"{arguments[0]} failed:\n{done.stderr}")
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def report(name: str, value: float, target: float, *, at_least: bool = True) -> bool:
    """Print one ratio with its target; says whether it is met."""
    met = value >= target if at_least else value <= target
    sign = "≥" if at_least else "≤"
    print(f"{'ok  ' if met else 'MISS'} {name}: {value:.2f} (target {sign} {target:g})")
    return met


def skipped(what: str, why: str) -> bool:
    """Say that something was not measured; that misses no target."""
    print(f"--   {what}: {why}")
    return True


def first_queries(task: Task, count: int) -> Task:
    """The same documents with only the first queries and their judgments."""
    from r2med.core import Qrels

    kept = task.queries[:count]
    ids = {query.id for query in kept}
    return replace(task, queries=kept, qrels=Qrels.from_judgments(j for j in task.qrels if j.query_id in ids))


def english_like(rng: np.random.Generator, texts: int, words: int) -> list[str]:
    """Texts with the statistics of English prose: Zipf frequencies, the words of Mini, invented rare terms."""
    import r2med

    tokens: list[str] = []
    for task in r2med.load_all("mini"):
        for text in task.documents.texts:
            tokens.extend(text.split())
    vocabulary, counts = np.unique(np.array(tokens), return_counts=True)
    common = vocabulary[np.argsort(-counts)]
    stems = ["neuro", "cardi", "hepat", "gluc", "immun", "derm", "oste", "nephr", "pulmon", "gastr", "cyt", "vascul"]
    ends = ["itis", "osis", "emia", "ation", "ology", "pathic", "genesis", "ectomy", "ated", "ating", "al", "ic"]
    rare = [
        f"{a}{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{b}"
        for i in range(500)
        for a in stems
        for b in ends[: 8 + i % 4]
    ]
    everything = np.concatenate((common, np.array(rare)))
    weight = 1.0 / (np.arange(len(everything)) + 2.7)
    drawn = rng.choice(len(everything), size=(texts, words), p=weight / weight.sum())
    return [" ".join(row) for row in everything[drawn]]


def write_texts(path: Path, texts: int, words: int, *, seed: int) -> str:
    """Write JSON lines of such texts, in a process of its own: a child inherits its parent's peak memory."""
    subprocess.run([sys.executable, __file__, str(path), str(texts), str(words), str(seed)], check=True)
    return str(path)


def here(name: str) -> str:
    """Path of a script beside this one."""
    return str(Path(__file__).parent / name)


def _main(path: str, *numbers: str) -> None:
    import msgspec

    texts, words, seed = map(int, numbers)
    drawn = english_like(np.random.default_rng(seed), texts, words)
    lines = (msgspec.json.encode({"id": f"d{i:06d}", "text": text}) + b"\n" for i, text in enumerate(drawn))
    Path(path).write_bytes(b"".join(lines))


if __name__ == "__main__":
    _main(*sys.argv[1:])
