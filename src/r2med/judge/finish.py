"""A judged project becomes a task in R2MED's layout, with a datasheet of how it was made.

    corpus.jsonl, query.jsonl, qrels.jsonl   the task
    README.md                                the datasheet
    judging.json                             the same for programs, with the canary string

Two calls on the same project write the same bytes.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from ..core import DataError, Task, UsageError
from ..core.atomic import atomic_folder
from ..core.places import exists
from ..tasks import write_task
from .agreement import group_agreement
from .check import JudgeRow, check_project
from .datasheet import Agreement, Counts, Kappa, Metadata, datasheet
from .final import Final, counting, final_grades, read_judges
from .journal import Slot
from .judgments import final_judgments, pooled_corpus, sort_queries
from .project import Project
from .summary import agreement_of_pairs

SCHEMA = 1
METADATA, DATASHEET = "judging.json", "README.md"
_NAMESPACE = uuid.UUID("6f1d0b52-7d0a-4f0e-9a53-0f6a4f2f9b1e")


def finish_project(
    project: Project,
    out: Path,
    *,
    corpus: str | None = None,
    keep_empty: bool = False,
    partial: bool = False,
) -> Metadata:
    """Write the task that the final grades give; `corpus` is where the documents lie now.

    Queries of which a passage has no final grade are left out unless `partial`, those without a relevant passage
    unless `keep_empty`.
    """
    if exists(out) and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} already exists and is not an empty folder")
    final = final_grades(project)
    chosen, left_empty, left_open = _chosen(project, final.grades, keep_empty=keep_empty, partial=partial)
    documents = pooled_corpus(project, corpus)
    judged = final_judgments(project, final.grades, chosen)
    if strange := next((doc_id for doc_id in judged.qrels.doc_ids if doc_id not in documents.ids), None):
        raise DataError(f"names {strange!r}, which is not in the corpus", path=project.folder / "pool.jsonl")
    queries = tuple(project.queries[query_id] for query_id in chosen)
    task = Task(name=project.settings.name, queries=queries, documents=documents, qrels=judged.qrels)
    passages = sum(
        (query_id, pooled.doc_id) in final.grades for query_id in chosen for pooled in project.pool[query_id]
    )
    counts = Counts(
        queries=len(queries),
        documents=len(documents),
        judgments=len(judged.qrels),
        relevant=judged.qrels.positives,
        copies=len(judged.qrels) - passages,
        pairs=sum(map(len, project.pool.values())),
        graded=len(final.grades),
        left_out_without_relevant=left_empty,
        left_out_open=left_open,
    )
    found = _metadata(project, final, task, counts)

    with atomic_folder(out) as folder:
        write_task(task, folder, to="r2med")
        (folder / METADATA).write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        (folder / DATASHEET).write_text(datasheet(found), "utf-8")
    return found


def _chosen(
    project: Project, grades: Mapping[Slot, int], *, keep_empty: bool, partial: bool
) -> tuple[list[str], int, int]:
    """The queries that are published, and how many are left out because nothing is relevant, or something open."""
    sorted_ = sort_queries(project, grades)
    judged = {*sorted_.usable, *sorted_.without_relevant}
    complete = judged if partial else judged - {*sorted_.open}
    kept = complete if keep_empty else complete - {*sorted_.without_relevant}
    chosen = [query_id for query_id in project.queries if query_id in kept]
    left_open = len(project.queries) - len(complete)
    if not any(query_id in kept for query_id in sorted_.usable):
        open_ = f": {left_open} have passages without a final grade (--partial takes them as they are)" * bool(
            left_open
        )
        raise UsageError(f"no query can be published{open_}")
    return chosen, len(complete) - len(kept), left_open


def _metadata(project: Project, final: Final, task: Task, counts: Counts) -> Metadata:
    settings = project.settings
    times: list[str] = []
    for journal in project.journals():
        with closing(journal):
            times += [entry.at for entry in journal.entries() if entry.grade is not None]
    times.sort()
    return Metadata(
        schema=SCHEMA,
        canary=str(uuid.uuid5(_NAMESPACE, project.identity)),
        name=settings.name,
        description=settings.description,
        language=settings.language,
        licence=settings.licence,
        project=project.identity,
        corpus_fingerprint=settings.corpus_fingerprint,
        fingerprint=task.fingerprint,
        question=settings.question,
        grades=settings.grades,
        relevant_from=settings.relevant_from,
        rule=settings.rule,
        final_grades=final.counts(),
        pooled=settings.created,
        first_judgment=times[0] if times else "",
        last_judgment=times[-1] if times else "",
        systems=[system.name for system in settings.systems],
        depth=settings.depth,
        sample=settings.sample,
        near=settings.near,
        judges=[JudgeRow.of(judge) for judge in read_judges(project)],
        agreement=_agreement(project, final),
        counts=counts,
        check=check_project(project, documents=task.documents),
    )


def _agreement(project: Project, final: Final) -> Agreement:
    """Of the judges whose grades count."""
    grades = {j.name: j.grades for j in read_judges(project) if j.finished and j.kind in counting(project)}
    both = [given for v in final.verdicts if len(given := {j: g for j, g in v.judges.items() if j in grades}) > 1]
    return Agreement(
        pairs=len(both),
        equal=sum(len(set(given.values())) == 1 for given in both),
        alpha=group_agreement(grades).alpha["ordinal"],
        kappa=[Kappa(first=p.first, second=p.second, pairs=p.pairs, linear=p.kappa["linear"])
               for p in agreement_of_pairs(project, grades)],
    )  # fmt: skip
