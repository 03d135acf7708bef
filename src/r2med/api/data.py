"""The data, as functions: tasks are fetched, checked, measured, converted and audited; Nano tasks are built.

A task is named as on the command line: `mini`, `r2med/MedQA-Diag`, a folder, a collection of one's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..core import UsageError
from ..core.options import Options
from ..scoring import MAIN, Measure
from ..tasks import Stats, find_tasks, list_tasks, load, resolve_all
from ..tasks import convert as convert_refs
from ..tasks import stats as stats_of
from ..tasks.catalogue import is_catalogue_name
from ..tasks.download import Downloaded, download_all
from ..tasks.load import Converted, add_folders, from_path, given_path
from ..tasks.own import Added, find_own
from ..tasks.own import remove as remove_own

if TYPE_CHECKING:
    from ..pipeline.audit import ScoredAudit
    from ..pipeline.nano_build import Built, Fidelity
    from ..pipeline.training import TrainingReport
    from ..retrieve import Retriever
    from ..tasks.nano import Fill
    from ..tasks.nano.figures import Inspected, NanoProfile
    from ..tasks.validate import Report

__all__ = [
    "add_collection",
    "audit",
    "build_nano",
    "convert",
    "download",
    "export_training",
    "list_tasks",
    "nano_fidelity",
    "nano_profile",
    "remove_collection",
    "stats",
    "validate",
    "write_pages",
]
Step = Callable[[str, str], None]
"""Told what is being done: the name of a task, and `begun` or `done`."""


def _quiet(task: str, what: str) -> None:
    """Say nothing."""


def download(*names: str, force: bool = False, notify: Step | None = None) -> list[Downloaded]:
    """Get tasks from the Hugging Face hub: pinned revisions, resumed, hashes and counts checked.

    A name is a collection (`nano`, `r2med`) or a task (`r2med/MedQA-Diag`); `force` fetches again what is there. One of
    several that fails has an `error` and the others are fetched; where all fail, the first error is raised.
    Without `notify` the hub's client shows its own progress on a terminal.
    """
    if own := next((name for name in names if not is_catalogue_name(name) and find_own(name)), None):
        raise UsageError(f"{own} is a collection of your own: there is nothing to download")
    return download_all((entry for name in names for entry in find_tasks(name)), force=force, notify=notify)


def add_collection(name: str, *folders: str | Path) -> list[Added]:
    """Make folders a collection of one's own: `load("mine/task")` and `r2med run --tasks mine` find them from then on.

    A folder is given as `FOLDER`, as `FOLDER@dev` for the judgments of a split, or as `TASK=FOLDER` for another name
    than the folder's. Those that the collection has already stay; one of them that is given again is read anew. Kept
    under `R2MED_HOME` are names, places and fingerprints, not the texts.
    """
    return add_folders(name, [str(folder) for folder in folders])


def remove_collection(*names: str) -> list[str]:
    """Forget collections of one's own, or single tasks of them (`mine/task`); folders and results stay.

    Returns the full names of the tasks.
    """
    if not names:
        raise UsageError("no collection is given")
    return [full_name for name in names for full_name in remove_own(name)]


def validate(*tasks: str) -> list[Report]:
    """Check tasks for errors."""
    from ..tasks.validate import validate as validate_ref

    return [validate_ref(ref) for ref in resolve_all(tasks or ("mini",))]


def stats(*tasks: str) -> list[Stats]:
    """The figures people quote about tasks."""
    return [stats_of(ref.load()) for ref in resolve_all(tasks or ("mini",))]


def convert(
    source: str, destination: str | Path, *, to: str, compress: Literal["none", "gz", "zst"] = "none"
) -> list[Converted]:
    """Write a task in the layout `to`; ids and texts survive byte for byte."""
    return convert_refs(resolve_all([source]), Path(destination), to=to, compress=compress)


def audit(
    *tasks: str,
    against: Iterable[Path] = (),
    few_shot: Iterable[Path] = (),
    retrievers: Sequence[str] = (),
    runs: Sequence[Path] = (),
    threshold: float = 0.8,
    width: int = 5,
    artefacts: bool = False,
    seed: int = 0,
    options: Options | None = None,
) -> ScoredAudit:
    """Look for leaks and copies, and score retrievers and stored runs with and without the flagged queries.

    `against` are files or folders of training data, `few_shot` examples used in prompts. A near copy shares at least
    `threshold` of its runs of `width` words. With `artefacts`, also measure whether documents can be told relevant
    without the query; `seed` divides the queries and draws the resamples of that.
    """
    from ..pipeline.audit import audit_tasks
    from ..tasks.audit import AuditSettings

    settings = AuditSettings(threshold=threshold, width=width)
    return audit_tasks(
        resolve_all(tasks),
        against=against,
        few_shot=few_shot,
        retrievers=retrievers,
        runs=runs,
        settings=settings,
        artefacts=artefacts,
        seed=seed,
        options=options,
    )


class NanoBuild(NamedTuple):
    """Nano tasks that were built, the model behind their dense candidates, and the pages that were written."""

    tasks: list[Built]
    dense: str | None
    pages: list[Path]


def build_nano(
    *tasks: str,
    out: str | Path,
    docs: int = 10_000,
    fill: Fill = "source-order",
    seed: int = 0,
    safeguard: Literal["first", "random"] = "first",
    bm25: str | Retriever = "bm25-nano",
    dense: str = "auto",
    name: str = "",
    title: str = "",
    language: str = "",
    description: str = "",
    licence: str = "",
    options: Options | None = None,
    notify: Step = _quiet,
) -> NanoBuild:
    """Make Nano tasks: every positive, a fixed number of documents, ranked candidates. One seed gives the same bytes.

    `fill` says what fills the pool behind the positives: the first documents, what retrievers mistake for relevant, or
    any documents.
    `dense` names the retriever of the dense profile; `none` for none, `auto` for the first of the usual ones that runs
    here. `safeguard` says which positive a hybrid list without one gets: the first judged, or one drawn by the seed.
    The pages of the group and of its tasks lie in `pages`; `write_pages` adds the audit to them.
    """
    from ..pipeline.audit import inspect
    from ..pipeline.nano_build import build_nano as build
    from ..pipeline.nano_profile import Safeguard, dense_retriever
    from ..report.group_page import write_pages as write_inspected
    from ..retrieve import get_retriever
    from ..tasks.nano import PoolSettings

    refs, ranked_by = resolve_all(tasks), dense_retriever(dense, options)
    settings = PoolSettings(docs=docs, fill=fill, seed=seed)
    built = build(
        refs,
        Path(out),
        settings,
        bm25=get_retriever(bm25, options),
        dense=ranked_by,
        safeguard=Safeguard(safeguard, seed),
        name=name,
        title=title,
        language=language,
        description=description,
        licence=licence,
        notify=notify,
    )
    group = [inspect(ref, audited=False) for ref in from_path(Path(out))]
    pages = write_inspected(title or Path(out).resolve().name, group, Path(out) / "pages")
    return NanoBuild(built, None if ranked_by is None else ranked_by.name, pages)


def nano_profile(*tasks: str, published: bool = False, bm25: str | Retriever = "") -> NanoProfile:
    """The table of a Nano group: counts, the nDCG@10 of its candidates, and the means over all queries.

    With `published`, the figures that NanoR2MED publishes. With `bm25`, the BM25 profile is that of a retriever run
    now, also on a task without candidates; the other profiles stay those of the folder.
    """
    from ..pipeline.nano_profile import profile, published_profile
    from ..retrieve import get_retriever

    if published == bool(tasks):
        raise UsageError("give a Nano folder, or ask for the published figures")
    if published:
        if bm25:
            raise UsageError("the published figures have their own BM25; --bm25 goes with a folder")
        return published_profile()
    chosen = get_retriever(bm25) if bm25 else None
    return profile(resolve_all(tasks), source=", ".join(tasks), bm25=chosen)


def nano_fidelity(
    full: str, nano: str, *retrievers: str | Retriever, measure: Measure | str = MAIN, options: Options | None = None
) -> Fidelity:
    """Rank the same systems on a full task and on its Nano, and say how well the two orders agree."""
    from ..pipeline.nano_build import SYSTEMS
    from ..pipeline.nano_build import compare as compare_orders

    return compare_orders(load(full), load(nano), list(retrievers or SYSTEMS), Measure.parse(measure), options=options)


class Pages(NamedTuple):
    """Pages that were written, and what they show."""

    folder: Path
    tasks: list[Inspected]
    files: list[Path]


def write_pages(
    *tasks: str, out: str | Path | None = None, against: Iterable[Path] = (), html: bool = False, notify: Step = _quiet
) -> Pages:
    """Write a page per task and one for the group, from data: figures, failures, leakage, examples.

    They go to `out`, else to `pages` in the first folder given, or here for the name of a collection; with `html`, as
    linked HTML with pictures, too.
    """
    from ..pipeline.audit import inspect
    from ..report.group_page import write_pages as write_inspected
    from ..tasks.audit import read_outside

    refs, given = resolve_all(tasks), given_path(tasks[0])
    first = given[0] if given else None
    folder = Path(out) if out else first / "pages" if first and first.is_dir() else Path("pages")
    outside = [read_outside(path) for path in against]
    looked_at = []
    for ref in refs:
        notify(ref.full_name, "begun")
        looked_at.append(inspect(ref, against=outside))
        notify(ref.full_name, "done")
    name = first.resolve().name if first else tasks[0]
    return Pages(folder, looked_at, write_inspected(name, looked_at, folder, html=html))


def export_training(
    source: str,
    out: str | Path,
    *,
    retrievers: Sequence[str] = ("bm25",),
    negatives: int = 7,
    depth: int = 100,
    skip: int = 0,
    protect: Sequence[str] = (),
    drop_overlap: bool = False,
    options: Options | None = None,
    notify: Callable[[str], None] = lambda what: None,
) -> TrainingReport:
    """Write training data with hard negatives: JSON lines with all positives, and rows for sentence-transformers.

    Negatives are mined in the ranks `skip` to `depth` of each retriever. Whatever overlaps an evaluation task (those
    of the catalogue on this machine, and `protect`) is refused, or left out with `drop_overlap`.
    """
    from ..pipeline.training import MiningSettings, evaluation_refs, protected
    from ..pipeline.training import export_training as write_training
    from ..retrieve import get_retriever

    notify("reading evaluation tasks")
    return write_training(
        load(source),
        Path(out),
        [get_retriever(name, options) for name in retrievers],
        protected([*evaluation_refs(), *resolve_all(protect)]),
        MiningSettings(negatives=negatives, depth=depth, skip=skip),
        drop_overlap=drop_overlap,
        notify=notify,
    )
