"""The web app with 500 systems × 876 queries: CPU of the server per page, and its peak memory.

Results are made up, the server is real: a process of its own, asked over loopback. Lists of 1,000 documents are written
for the systems whose queries are looked at; those of 500 systems would fill a disk, and nobody opens them all.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
from common import english_like, report

from r2med.core import Document, Documents, IdTable, Qrels, Query, Run, Task
from r2med.pipeline.stages import task_info
from r2med.results import SCHEMA, ResultStore, SystemInfo, TaskResult
from r2med.scoring import STANDARD, Evaluation
from r2med.scoring.evaluation import ByMeasure
from r2med.tasks import write_task
from r2med.tasks.load import from_path

SYSTEMS = int(os.environ.get("SYSTEMS", "500"))
QUERIES = (103, 77, 88, 97, 118, 150, 114, 129)  # R2MED's eight tasks: 876 in all
DOCUMENTS, DEPTH, WITH_RUNS = 3000, 1000, 4


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        query = make(root)
        sys.exit(0 if measure(root, query) else 1)


def make(root: Path) -> str:
    """Tasks and results; returns the address of a query."""
    rng = np.random.default_rng(0)
    texts = english_like(rng, DOCUMENTS * len(QUERIES), 220)
    store, address = ResultStore(root / "results"), ""
    for number, count in enumerate(QUERIES):
        name = f"Task-{number + 1}"
        part = texts[number * DOCUMENTS : (number + 1) * DOCUMENTS]
        ids = [f"{name}-d{i:05d}" for i in range(DOCUMENTS)]
        made = Task(
            name,
            tuple(Query(f"{name}-q{i:03d}", " ".join(part[i].split()[:120])) for i in range(count)),
            Documents.of(map(Document, ids, part)),
            Qrels.from_judgments(
                (f"{name}-q{i:03d}", ids[int(d)], 1)
                for i in range(count)
                for d in rng.choice(DOCUMENTS, 4, replace=False)
            ),
        )
        write_task(made, root / "tasks" / name, to="r2med")
        task = from_path(root / "tasks" / name)[0].load()
        for system in range(SYSTEMS):
            write_result(store, task, system, rng)
        address = f"/query/own/{name}/{name}-q010"
    return address


def write_result(store: ResultStore, task: Task, system: int, rng: np.random.Generator) -> None:
    queries = IdTable(q.id for q in task.queries)
    depth = DEPTH if system < WITH_RUNS else 1
    docs = np.stack([rng.permutation(DOCUMENTS)[:depth] for _ in range(len(queries))]).astype(np.int32)
    scores = np.tile(np.linspace(1, 0.1, depth, dtype=np.float32), (len(queries), 1))
    run = Run(queries, task.documents.ids, docs, scores, name=f"system-{system:03d}")
    skill = 0.6 - 0.001 * system
    columns = {m: np.clip(rng.normal(skill, 0.25, len(queries)), 0, 1).round(12) for m in STANDARD}
    evaluation = Evaluation(task.qrels.query_ids, ByMeasure(columns), (), 0, {})
    result = TaskResult(
        schema=SCHEMA,
        fingerprint="0" * 32,
        system=SystemInfo(name=run.name, kind=("lexical", "dense", "fused")[system % 3], description={}),
        task=task_info(task),
        measures=evaluation.to_dict(),
        depth=depth,
        missing_queries=0,
        queries_without_positives=0,
        seconds={"retrieve": float(rng.uniform(0.1, 90))},
    )
    store.write(result, run, evaluation)


def measure(root: Path, query: str) -> bool:
    command = "from r2med.cli.browse import view; view()"
    tasks = [argument for n in range(len(QUERIES)) for argument in ("--tasks", str(root / "tasks" / f"Task-{n + 1}"))]
    arguments = [sys.executable, "-c", command, str(root / "results"), "--no-open", "--port", "0", *tasks]
    started = time.perf_counter()
    server = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        base = server.stdout.readline().strip().rstrip("/")
        while b"data-waiting" in get(base + "/board/own"):  # intervals are computed in the background
            time.sleep(0.5)
        print(f"ready after {time.perf_counter() - started:.1f} s, {cpu(server.pid):.1f} s of CPU")

        def page(path: str) -> float:
            before = cpu(server.pid)
            get(base + path)
            return 1000 * (cpu(server.pid) - before)

        board = float(np.median([page("/") for _ in range(5)]))
        cold = page(query)
        systems = "?" + "&".join(f"s=system-{n:03d}" for n in range(3))
        unread = page(query + systems)
        warm = float(np.median([page(query.replace("q010", f"q{n:03d}") + systems) for n in range(20, 30)]))
        print(f"     inspector with three lists still unread: {unread:.0f} ms")
        for name, path in (
            ("task page", "/task/own/Task-8"),
            ("comparison", "/compare/own"),
            ("trade-offs", "/tradeoffs/own"),
        ):
            print(f"     {name}: {page(path):.0f} ms, again {page(path):.0f} ms")
        peak = int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())[0]) / 1024
        met = [
            report("leaderboard, ms of server CPU", board, 300, at_least=False),
            report("inspector page, first of its task, ms of server CPU", cold, 100, at_least=False),
            report("inspector page, ms of server CPU", warm, 100, at_least=False),
            report("peak memory, MiB", peak, 500, at_least=False),
        ]
        return all(met)
    finally:
        server.terminate()
        server.wait()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=300) as answer:
        return bytes(answer.read())


def cpu(pid: int) -> float:
    """Seconds of CPU a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
