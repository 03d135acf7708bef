"""What is installed on this machine, what works, and what is ready to run; changes nothing.

Checks try what a run will do, on two sentences.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core import R2MedError, TextColumn
from ..core.files import free_space, home, nearest_existing
from ..core.keys import key_problem
from ..core.options import show_size
from ..core.plugins import plugins
from ..models import get_card, listing, locate
from ..pipeline.experiment import EMBEDDED, default_systems
from ..pipeline.system import REGISTRIES
from ..retrieve import _native_python, sparse
from ..retrieve.bm25 import BM25Index
from ..tasks import list_tasks
from ..text import english, get_analyzer
from . import here
from .here import SCHEMA, Check, Counted, Diagnosis, Extra, Machine, Place, Status

__all__ = ["Check", "Diagnosis", "Extra", "Place", "Status", "diagnose"]

NEEDED = {"bm25", "native code", "write to results"}
"""Checks without which nothing runs; BM25 alone writes nothing to the home."""
TEXTS = ("Addison's disease: salt craving and dark skin", "Gout: a swollen, painful great toe")
QUESTION = "craving for salt"
LITTLE_SPACE = 1 << 30


def diagnose(results: Path = Path("results")) -> Diagnosis:
    """Look at everything."""
    machine = here.look_at_machine()
    checks = run_checks(results, machine)
    tasks: dict[str, Counted] = {}
    for task in list_tasks():
        known = tasks.get(task.collection, Counted(ready=[], total=0))
        ready = [*known.ready, *([task.name] if task.available else [])]
        tasks[task.collection] = Counted(ready=ready, total=known.total + 1)
    models: dict[str, Counted] = {}
    for row in listing(registries=REGISTRIES):
        before = models.get(row.kind, Counted(ready=[], total=0))
        models[row.kind] = Counted(ready=[*before.ready, *([row.name] if row.ready else [])], total=before.total + 1)
    return Diagnosis(
        schema=SCHEMA,
        ok=all(check.status != "broken" for check in checks),
        versions=here.versions(),
        native=here.native_extensions(),
        extras=here.extras(),
        machine=machine,
        keys=here.keys(),
        settings=here.settings_in_force(),
        places=here.places(results),
        tasks=tasks,
        models=models,
        plugins=[f"{p.name} ({p.kind} of {p.distribution} {p.version})" for p in plugins()],
        checks=checks,
        ready=_ready(tasks, models, checks),
    )


def _ready(tasks: dict[str, Counted], models: dict[str, Counted], checks: list[Check]) -> list[str]:
    """What can be run now, in sentences; a part that is broken is not promised."""
    broken = {check.name for check in checks if check.status == "broken"}
    if stops := [check.name for check in checks if check.name in broken & NEEDED]:
        return [f"`r2med run` cannot run: {', '.join(stops)} (see the checks)"]
    retrievers, fusion, best, missing = default_systems()
    names = [*retrievers, *(["their fusion"] if fusion else []), *([best] if best else [])]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    said = [f"`r2med run` will run {listed} on Mini" + (f"; {missing}" if missing else "")]
    if "embedded model" in broken and fusion:
        said = ["`r2med run -r bm25` will run on Mini; the embedded model is broken (see the checks)"]
    present = [f"{name} ({len(c.ready)} of {c.total})" for name, c in tasks.items() if c.ready]
    said.append(f"Tasks on this machine: {', '.join(present)}")
    kinds = {
        "Dense models ready": ("dense",),
        "Rerankers ready": ("late-interaction", "cross-encoder"),
        "Chat models ready": ("chat",),
    }
    for title, wanted in kinds.items():
        if ready := [name for kind in wanted for name in models[kind].ready]:
            said.append(f"{title}: {', '.join(ready)}")
    return said


class Verdict(NamedTuple):
    """Result of one check."""

    status: Status
    detail: str
    advice: str = ""


def run_checks(results: Path, machine: Machine) -> list[Check]:
    """All trials; one that fails does not keep the others from being made."""
    trials: list[tuple[str, Callable[[], Verdict]]] = [
        ("native code", _native),
        ("bm25", _bm25),
        ("embedded model", _embedded),
        ("write to home", lambda: _writable(home())),
        ("write to results", lambda: _writable(results)),
        ("free disk", _space),
        ("gpu", lambda: _gpu(machine)),
        ("key file", _key_file),
    ]
    return [_try(name, trial) for name, trial in trials]


def _try(name: str, trial: Callable[[], Verdict]) -> Check:
    start = time.perf_counter()
    try:
        verdict = trial()
    except R2MedError as error:
        verdict = Verdict("broken", str(error))
    except Exception as error:  # whatever a broken installation raises, it is what was looked for
        verdict = Verdict("broken", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    return Check(name=name, **verdict._asdict(), seconds=round(time.perf_counter() - start, 3))


def _native() -> Verdict:
    if not (absent := [name for name, built in here.native_extensions().items() if not built]):
        same = get_analyzer("english")(TEXTS[0]) == english.analyze(TEXTS[0])
        return Verdict("ok", "built") if same else Verdict("broken", "the C analyzer and its Python twin disagree")
    advice = "install a C compiler, then reinstall r2med"
    return Verdict("warning", f"{' and '.join(absent)} not built: everything works, more slowly", advice)


def _bm25() -> Verdict:
    """Two documents, ranked by the code in use and by the Python twin: the same bits."""
    index = BM25Index.build(TextColumn.from_texts(TEXTS))
    tie_rank = np.arange(len(TEXTS), dtype=np.int32)
    queries = index.queries(TextColumn.from_texts([QUESTION]))
    found = sparse.search(index.postings, queries, tie_rank, 2)
    twin = np.empty((1, 2), dtype=np.int32), np.empty((1, 2), dtype=np.float32)
    _native_python.search(*index.postings, *queries, tie_rank, *twin)
    if found.docs.tolist() != [[0, -1]] or not np.array_equal(found.scores, twin[1]):
        return Verdict("broken", f"two documents came out as {found.docs.tolist()}", "reinstall r2med")
    return Verdict("ok", "finds the right one of two documents")


def _embedded() -> Verdict:
    if here.installed_version("onnxruntime") is None or here.installed_version("tokenizers") is None:
        return Verdict("warning", "ONNX Runtime is not installed: no embedded model", "pip install 'r2med[onnx]'")
    card = get_card(EMBEDDED)
    if locate(card) is None:
        return Verdict("warning", f"{EMBEDDED} is not on this machine", f"r2med models fetch {EMBEDDED}")
    from ..core.options import Options
    from ..retrieve.encoders import load_encoder

    encoder = load_encoder(card, Options(threads=1))
    (vector,) = encoder.encode([QUESTION], "query")
    if vector.shape != (card.dimension,) or not abs(float(np.linalg.norm(vector)) - 1) < 1e-3:
        return Verdict("broken", f"{EMBEDDED} gives no unit vector", f"r2med models fetch {EMBEDDED} --force")
    return Verdict("ok", f"{EMBEDDED} loads and encodes")


def _writable(folder: Path) -> Verdict:
    """Write and remove a file; a folder that is not there yet is tried by the one it would be made in."""
    place = nearest_existing(folder)
    advice = "choose another with R2MED_HOME" if folder == home() else "choose another with --results"
    if not place.is_dir():
        return Verdict("broken", f"{place} is not a folder", advice)
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(b"r2med")
    except OSError as error:
        return Verdict("broken", f"{place} cannot be written ({error.strerror or error})", advice)
    return Verdict("ok", f"{folder} can be written" if place == folder.absolute() else f"{folder} can be made")


def _space() -> Verdict:
    free = free_space(home())
    if free is None:
        return Verdict("warning", "the disk does not say")
    if free < LITTLE_SPACE:
        return Verdict("warning", f"only {show_size(free)} left for {home()}", "r2med cache prune, or move R2MED_HOME")
    return Verdict("ok", show_size(free))


def _gpu(machine: Machine) -> Verdict:
    if not machine.gpus:
        return Verdict("ok", "none; everything runs on the CPU")
    if machine.torch is None:
        return Verdict("warning", f"{len(machine.gpus)} there, but no PyTorch", "pip install 'r2med[torch]'")
    if machine.torch.endswith("+cpu"):
        return Verdict("warning", f"PyTorch {machine.torch} cannot use them", "install a CUDA build of PyTorch")
    return Verdict("ok", f"{len(machine.gpus)} there, PyTorch {machine.torch}")


def _key_file() -> Verdict:
    if problems := [problem for name in here.key_variables() if (problem := key_problem(name))]:
        return Verdict("broken", "; ".join(problems), "mend or unset the variable")
    return Verdict("ok", "every key file that is named can be read")
