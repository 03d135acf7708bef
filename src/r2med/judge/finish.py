"""A judged project becomes a task in R2MED's layout, with a datasheet of how it was made.

    corpus.jsonl, query.jsonl, qrels.jsonl   the task
    README.md                                the datasheet
    judging.json                             the same for programs, with the canary string

Two calls on the same project write the same bytes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from textwrap import fill

import msgspec

from ..core import DataError, Task, UsageError
from ..core.files import atomic_folder, exists
from ..core.table import NONE, Table, markdown_text
from ..tasks import write_task
from . import Project
from .agreement import Measured, group_agreement
from .check import Check, JudgeRow, check_project
from .final import Final, counting, final_grades, final_judgments, pooled_corpus, read_judges, sort_queries
from .journal import Slot
from .summary import agreement_of_pairs

SCHEMA = 1
METADATA, DATASHEET = "judging.json", "README.md"
_NAMESPACE = uuid.UUID("6f1d0b52-7d0a-4f0e-9a53-0f6a4f2f9b1e")


KINDS = {"person": "person", "llm": "LLM", "adjudicator": "adjudicator"}


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is, and what was left out."""

    queries: int
    documents: int
    judgments: int
    relevant: int
    copies: int  # judgments that a copy has from its passage
    pairs: int  # that were pooled, of all queries
    graded: int  # of those, with a final grade
    left_out_without_relevant: int
    left_out_open: int  # queries of which a passage has no final grade


class Kappa(msgspec.Struct, frozen=True, kw_only=True):
    """Cohen's κ with linear weights of two judges."""

    first: str
    second: str
    pairs: int  # that both graded
    linear: Measured


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How far the judges whose grades count agree."""

    pairs: int  # that two or more graded
    equal: int
    alpha: Measured  # Krippendorff's, ordinal, of all of them
    kappa: list[Kappa]


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a finished task: `judging.json`."""

    schema: int
    canary: str
    name: str
    description: str
    language: str
    licence: str
    project: str  # its identity
    corpus_fingerprint: str
    fingerprint: str  # of the task
    question: str
    grades: tuple[str, ...]
    relevant_from: int
    rule: str
    final_grades: dict[str, int]  # how many came about in each way
    pooled: str  # when
    first_judgment: str
    last_judgment: str
    systems: list[str]
    depth: int
    sample: int
    near: float
    judges: list[JudgeRow]
    agreement: Agreement
    counts: Counts
    check: Check


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
        check=check_project(project, documents=task.documents, published=task.query_ids),
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


def datasheet(found: Metadata) -> str:
    """The whole page."""
    text = [
        f"# {markdown_text(found.name)}",
        *_what(found),
        *_judging(found),
        *_pooling(found),
        *_limits(found),
        *_use(found),
    ]
    return "\n\n".join(text) + "\n"


def _what(found: Metadata) -> Iterator[str]:
    counts = found.counts
    if found.description:
        yield _wrapped(markdown_text(found.description))
    facts = {
        "Queries": f"{counts.queries:,}",
        "Documents": f"{counts.documents:,}",
        "Judgments": f"{counts.judgments:,}, of which {counts.relevant:,} are relevant and {counts.copies:,} are "
        "copies' of a judged passage",
        "Language": markdown_text(found.language) or "not said",
        "Licence": markdown_text(found.licence) or "not said",
        "Pooled": found.pooled[:10] or "not said",
        "Judged": _between(found.first_judgment[:10], found.last_judgment[:10]),
    }
    yield "\n".join(_item(f"{title}: {value}") for title, value in facts.items())
    yield _wrapped(
        "Benchmark data must not appear in training corpora. The canary string of this set is "
        f"`{found.canary}`; it stands here and in `judging.json`, and in no passage."
    )


def _between(first: str, last: str) -> str:
    return "not said" if not first else first if first == last else f"{first} to {last}"


def _judging(found: Metadata) -> Iterator[str]:
    yield "## Who judged"
    yield Table(
        ["Judge", "Kind", "Model", "Graded", "Skipped", "Seconds each"], [_judge(row) for row in found.judges], "", 3
    ).markdown()
    yield _wrapped(f"Each passage was judged by itself: {markdown_text(found.question)}")
    yield "\n".join(_item(f"{grade}: {markdown_text(meaning)}") for grade, meaning in enumerate(found.grades))
    if found.relevant_from > 1:
        yield _wrapped(f"Grades below {found.relevant_from} do not count as relevant and are published as 0.")
    agreed = found.agreement
    if agreed.pairs:
        share = 100 * agreed.equal / agreed.pairs
        yield _wrapped(
            f"Two or more judges graded {agreed.pairs:,} pairs, and gave {agreed.equal:,} of them ({share:.0f} %) "
            f"equal grades. Krippendorff's α (ordinal): {_measured(agreed.alpha)}."
        )
        yield "\n".join(
            _item(f"{markdown_text(k.first)} and {markdown_text(k.second)}, {k.pairs:,} pairs: "
                  f"κ (Cohen's, linear weights) {_measured(k.linear)}")
            for k in agreed.kappa if k.pairs
        )  # fmt: skip
    else:
        yield "No pair was graded by two judges: nothing is known about their agreement."
    ways = ", ".join(f"{how} {count:,}" for how, count in found.final_grades.items())
    yield _wrapped(f"The final grade follows the rule *{found.rule}* ({ways}).")


def _measured(of: Measured) -> str:
    if of.value is None:
        return "none, since nothing can be told apart"
    bounds = "" if of.low is None or of.high is None else f" ({of.low:.2f} to {of.high:.2f})"
    return f"{of.value:.2f}{bounds}"


def _judge(row: JudgeRow) -> list[str]:
    by = {"adjudicator": "LLM, " if row.spec else "person, "}.get(row.kind, "")
    kind = by + KINDS.get(row.kind, row.kind) + ("" if row.finished or row.kind != "person" else ", not finished")
    seconds = NONE if row.seconds is None else f"{row.seconds:.0f}"
    return [row.name, kind, row.spec or NONE, f"{row.graded:,}", f"{row.skipped:,}", seconds]


def _pooling(found: Metadata) -> Iterator[str]:
    yield "## What was judged"
    sample = f", and {found.sample} drawn at random" if found.sample else ""
    yield _wrapped(
        f"For each query the first {found.depth} passages of these systems{sample}. Copies, and texts at least "
        f"{100 * found.near:.0f} % alike, were judged once and share the grade. Everything else is unjudged."
    )
    rows = [
        [s.system, f"{100 * s.ndcg:.2f}", _percent(s.ndcg_outside, 2), _percent(s.judged_outside, 0)]
        for s in found.check.systems
    ]
    yield Table(
        ["System", "nDCG@10", "As if not pooled", "Judged@10 then, %"],
        rows,
        "On the published queries that have a relevant passage.",
    ).markdown()


def _percent(value: float | None, digits: int) -> str:
    return NONE if value is None else f"{100 * value:.{digits}f}"


def _limits(found: Metadata) -> Iterator[str]:
    yield "## Known limits"
    counts, limits = found.counts, [remark.text for remark in found.check.verdicts if remark.level == "warning"]
    if counts.left_out_open:
        limits.append(f"{counts.left_out_open} queries were left out: not all their passages have a final grade.")
    if counts.left_out_without_relevant:
        limits.append(f"{counts.left_out_without_relevant} queries were left out: nothing relevant was found for them.")
    by_model = [judge for judge in found.judges if judge.kind == "llm" or judge.spec]
    if by_model and len(by_model) == len(found.judges):
        limits.append("All judges were language models; no clinician judged.")
    elif by_model:
        limits.append("An LLM is among the judges; the table above says which.")
    yield "\n".join(_item(markdown_text(limit)) for limit in limits) or "None that `r2med judge check` knows of."
    yield "Not for clinical decisions."


def _use(found: Metadata) -> Iterator[str]:
    yield "## Use"
    yield "    r2med data validate FOLDER\n    r2med run --tasks FOLDER"
    yield "\n".join(
        [
            f"- Fingerprint of the task: `{found.fingerprint}`",
            f"- Fingerprint of the corpus: `{found.corpus_fingerprint}`",
            f"- Judging project: `{found.project}`",
        ]
    )


def _item(text: str) -> str:
    return fill(text, 80, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _wrapped(text: str) -> str:
    return fill(text, 80, break_long_words=False, break_on_hyphens=False)
