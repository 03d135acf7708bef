"""The web app: CPU of the server per page with 500 systems × 876 queries, its peak memory; Try it; the one-file report.

    python benchmarks/view.py [pages] [try] [report]

Results are made up, the server is real: a process of its own, asked over loopback. Lists of 1,000 documents are written
for the systems whose queries are looked at; those of 500 systems would fill a disk, and nobody opens them all. Try it
searches 63,080 real passages where they are at hand; the documents' vectors are random, the query's are the model's.
The report of 876 queries is made of real passages too, with rankings that have nothing in common: the most it can hold.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from common import DATA, english_like, report, skipped

import r2med
from r2med.cache import EmbeddingCache, text_keys
from r2med.core import Document, Documents, IdTable, Qrels, Query, Run, Task
from r2med.core.files import home as here
from r2med.models.prompts import names_of
from r2med.pipeline import SystemSpec
from r2med.pipeline.experiment import default_systems
from r2med.pipeline.stages import task_info
from r2med.pipeline.typed import names_here
from r2med.results import SCHEMA, ResultStore, SystemInfo, TaskResult
from r2med.retrieve import get_retriever
from r2med.retrieve.dense import DenseRetriever
from r2med.retrieve.embed import identity
from r2med.scoring import STANDARD, Evaluation
from r2med.scoring.evaluation import ByMeasure
from r2med.tasks import write_task
from r2med.tasks.load import from_path

SYSTEMS = int(os.environ.get("SYSTEMS", "500"))
QUERIES = (103, 77, 88, 97, 118, 150, 114, 129)  # R2MED's eight tasks: 876 in all
DOCUMENTS, DEPTH, WITH_RUNS = 3000, 1000, 5
PASSAGES, TYPED = 60_000, 20


def main() -> None:
    parts = {"pages": measure_pages, "try": measure_try, "report": measure_report}
    met = []
    for name in sys.argv[1:] or parts:
        with tempfile.TemporaryDirectory() as folder:
            met.append(parts[name](Path(folder)))
    sys.exit(0 if all(met) else 1)


def measure_pages(root: Path) -> bool:
    query = make(root, SYSTEMS)
    return measure(root, query)


def make(root: Path, systems: int, texts: Sequence[str] = (), most: int = 10_000) -> str:
    """Tasks and results; returns the address of a query, which is the beginning of a document."""
    rng = np.random.default_rng(0)
    texts = texts or english_like(rng, DOCUMENTS * len(QUERIES), 220)
    store, address = ResultStore(root / "results"), ""
    for number, count in enumerate(QUERIES):
        name = f"Task-{number + 1}"
        part = texts[number * DOCUMENTS : (number + 1) * DOCUMENTS]
        ids = [f"{name}-d{i:05d}" for i in range(DOCUMENTS)]
        made = Task(
            name,
            tuple(Query(f"{name}-q{i:03d}", " ".join(part[i].split()[:120])[:most]) for i in range(count)),
            Documents.of(map(Document, ids, part)),
            Qrels.from_judgments(
                (f"{name}-q{i:03d}", ids[int(d)], 1)
                for i in range(count)
                for d in rng.choice(DOCUMENTS, 4, replace=False)
            ),
        )
        write_task(made, root / "tasks" / name, to="r2med")
        task = from_path(root / "tasks" / name)[0].load()
        for system in range(systems):
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


@contextmanager
def serving(*arguments: str, home: Path | None = None) -> Iterator[tuple[str, int]]:
    """The app in a process of its own: its address and the number of the process."""
    command = [
        sys.executable,
        "-c",
        "from r2med.cli.browse import view; view()",
        *arguments,
        "--no-open",
        "--port",
        "0",
    ]
    environment = {**os.environ, **({"R2MED_HOME": str(home)} if home else {})}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip().rstrip("/"), server.pid
    finally:
        server.terminate()
        server.wait()


def measure(root: Path, query: str) -> bool:
    tasks = [argument for n in range(len(QUERIES)) for argument in ("--tasks", str(root / "tasks" / f"Task-{n + 1}"))]
    started = time.perf_counter()
    with serving(str(root / "results"), *tasks) as (base, pid):
        while b"data-waiting" in get(base + "/board/own"):  # intervals are computed in the background
            time.sleep(0.5)
        print(f"ready after {time.perf_counter() - started:.1f} s, {cpu(pid):.1f} s of CPU")

        def page(path: str) -> float:
            return 1000 * cpu_of(pid, lambda: get(base + path))

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
        peak = peak_memory(pid)
        met = [
            report("leaderboard, ms of server CPU", board, 300, at_least=False),
            report("inspector page, first of its task, ms of server CPU", cold, 100, at_least=False),
            report("inspector page, ms of server CPU", warm, 100, at_least=False),
            report("peak memory, MiB", peak, 500, at_least=False),
        ]
        return all(met)


def measure_try(root: Path) -> bool:
    """CPU per typed query on a task of 60,000 passages whose vectors and index are there."""
    folder = root / "passages"
    if (DATA / "vignettes").is_dir():
        shutil.copytree(DATA / "vignettes", folder)
    else:
        texts = english_like(np.random.default_rng(0), PASSAGES, 130)
        documents = Documents.of(Document(f"d{i:05d}", text) for i, text in enumerate(texts))
        queries = tuple(Query(f"q{i:03d}", " ".join(texts[i].split()[:150])) for i in range(40))
        judgments = Qrels.from_judgments((query.id, documents[i].id, 1) for i, query in enumerate(queries))
        write_task(Task("passages", queries, documents, judgments), folder, to="beir")
    task, home = from_path(folder)[0].load(), root / "home"
    r2med.run("bm25", tasks=str(folder), results=root / "results")
    systems = [["bm25"], ["bm25", "bm25-lucene", "bm25-nano"]]
    if (models := here() / "models").is_dir() and "bge-small" in names_here():
        home.mkdir()
        (home / "models").symlink_to(models)
        place_vectors(task, home)
        systems.append(["bm25", "bge-small", "bm25+bge-small.rrf"])
    expansion, met = task.documents[1000].text, list[bool]()
    length = np.mean([len(query.text.split()) for query in task.queries])
    print(f"Try it: {len(task.documents):,} passages, queries of {length:.0f} words")
    with serving(str(root / "results"), "--tasks", str(folder), home=home) as (base, pid):
        for chosen in systems:
            for words, more in ((30, ""), (30, expansion), (1000, ""), (1000, expansion)):
                texts = [" ".join(query.text.split()[:words]) for query in task.queries[:TYPED]]
                taken = try_it(base, pid, chosen, texts, more)
                what = "30 words" if words == 30 else "whole query"
                said = f"Try it, {' '.join(chosen)}, {what}{' and expansion' if more else ''}, ms of server CPU"
                if "bge-small" in chosen and (words > 30 or more):
                    print(f"     {said}: {taken:.0f} (mostly the model's work on long texts)")
                else:
                    met.append(report(said, taken, 150, at_least=False))
        print(f"     the form alone: {1000 * cpu_of(pid, lambda: get(base + '/try')):.0f} ms")
        print(f"     peak memory: {peak_memory(pid):.0f} MiB")
    return all(met)


def place_vectors(task: Task, home: Path) -> None:
    """Random vectors in the cache, as those of the documents: encoding 60,000 passages would take hours."""
    os.environ["R2MED_HOME"] = str(home)
    retriever = get_retriever("bge-small")
    assert isinstance(retriever, DenseRetriever)
    encoder, prefix = retriever.encoder, retriever.instruction("document", *names_of(task))
    shards = EmbeddingCache().open(identity(encoder, "document", prefix), encoder.max_length("document"))
    _, first = np.unique(keys := text_keys(task.documents.contents), axis=0, return_index=True)
    vectors = np.random.default_rng(0).standard_normal((len(first), 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    shards.append(keys[first], np.full(len(first), 200, dtype=np.int32), vectors)


def try_it(base: str, pid: int, systems: list[str], texts: list[str], expansion: str) -> float:
    """Milliseconds of CPU for a query, the mean of several; the first one, which prepares, is not counted."""

    def ask(text: str) -> bytes:
        fields = [("task", "own/passages"), ("text", text), ("expansion", expansion), *(("s", s) for s in systems)]
        return get(f"{base}/try", urllib.parse.urlencode(fields).encode())

    while b"data-again" in (answer := ask("x")):
        time.sleep(0.5)
    assert b'class="hit' in answer or b"found nothing" in answer
    return 1000 * cpu_of(pid, lambda: [ask(text) for text in texts]) / len(texts)


def measure_report(root: Path) -> bool:
    """The size of the one-file report: Mini with the default systems, and 876 queries with five systems."""
    met = [mini_report(root)]
    texts = []
    for name in ("evidence", "vignettes"):
        if (DATA / name).is_dir():
            texts += list(from_path(DATA / name)[0].load().documents.contents)
    rng = np.random.default_rng(0)
    chosen = [texts[i] for i in rng.permutation(len(texts))[: DOCUMENTS * len(QUERIES)].tolist()]
    make(root / "large", 5, chosen, most=900)
    met.append(written(root / "large" / "results", root, "876 queries × 5 systems", 20, root / "large" / "tasks"))
    return all(met)


def mini_report(root: Path) -> bool:
    chosen = default_systems()
    if chosen.missing:
        return skipped("the report of Mini", chosen.missing)
    r2med.run(*chosen.retrievers, fuse=chosen.fusion, results=root / "mini")
    r2med.run(SystemSpec.parse(chosen.best), results=root / "mini")
    return written(root / "mini", root, "Mini with the default systems", 3)


def written(results: Path, root: Path, what: str, target: float, tasks: Path | None = None) -> bool:
    folders = sorted(tasks.iterdir()) if tasks else []
    begun = time.process_time()
    made = r2med.write_report(root / "report.html", results, tasks=folders, max_bytes=100_000_000)
    print(f"     {made.pages} pages, {made.queries} of {made.of_queries} queries")
    print(f"     written in {time.process_time() - begun:.0f} s of CPU")
    return report(f"report, {what}, MB", made.bytes / 1e6, target, at_least=False)


def get(url: str, form: bytes | None = None) -> bytes:
    """A page, or the answer to a form that the page of the same server sends."""
    origin = {"Origin": "/".join(url.split("/")[:3])} if form else {}
    with urllib.request.urlopen(urllib.request.Request(url, form, origin), timeout=300) as answer:
        return bytes(answer.read())


def cpu_of(pid: int, work: Callable[[], object]) -> float:
    """Seconds of CPU that a process takes for some work."""
    before = cpu(pid)
    work()
    return cpu(pid) - before


def peak_memory(pid: int) -> float:
    """In MiB."""
    return int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) / 1024


def cpu(pid: int) -> float:
    """Seconds of CPU a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
