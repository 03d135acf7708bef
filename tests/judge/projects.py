"""Small projects to judge in, and judges who write in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from r2med.core import Document, Query
from r2med.judge import Entry, JudgeKind, Pooled, Project, Settings, create_project
from r2med.judge.journal import Slot, now

SYSTEMS = ("Nervous", "Skin")


def small_project(
    folder: Path, *, queries: int = 6, passages: int = 4, known: int | None = None, **asked: Any
) -> Project:
    """Queries q0, q1 … with passages d0, d1 … of their own each, and nothing that found them."""
    settings = Settings(name="small", depth=passages, source="", corpus_fingerprint="f", documents=passages, **asked)
    names = [(f"q{q}", f"q{q}d{d}") for q in range(queries) for d in range(passages)]
    return create_project(
        folder,
        settings,
        queries=[Query(f"q{q}", f"why does it hurt, number {q}", None, SYSTEMS[q % 2]) for q in range(queries)],
        passages=[Document(doc, f"Salt is craved. Passage {doc} says so. It ends here.") for _, doc in names],
        pool=[Pooled(query_id=query, doc_id=doc, known=known) for query, doc in names],
        runs={},
    )


def slots(project: Project) -> list[Slot]:
    """Everything that is judged."""
    return [(pooled.query_id, pooled.doc_id) for pool in project.pool.values() for pooled in pool]


def judges(
    project: Project,
    judge: str,
    grades: Mapping[Slot, int | None],
    *,
    kind: JudgeKind = "person",
    finished: bool = True,
) -> None:
    """Let a judge write grades; None is a passage that was skipped."""
    journal = project.journal(judge, kind)
    for number, ((query_id, doc_id), grade) in enumerate(grades.items()):
        entry = Entry(
            id=f"{judge} {number}", at=now(), query_id=query_id, doc_id=doc_id, grade=grade, skipped=grade is None,
            seconds=float(number),
        )  # fmt: skip
        journal.save(entry)
    if finished:
        journal.save(Entry(id=f"{judge} done", at=now(), finished=True))
    journal.close()
