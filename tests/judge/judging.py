"""Judges for tests: they grade a whole project by a function."""

from __future__ import annotations

from collections.abc import Callable

from r2med.judge import Entry, JudgeKind, Pooled, Project
from r2med.judge.journal import now


def judge_all(
    project: Project,
    name: str,
    grade: Callable[[Pooled], int | None],
    *,
    kind: JudgeKind = "person",
    finished: bool = True,
    at: str = "",
) -> None:
    """Grade what a function gives a grade to."""
    journal = project.journal(name, kind)
    for query_id in project.queries:
        for pooled in project.shown_to(name, query_id):
            given = grade(pooled)
            if given is not None:
                made = f"{name}-{query_id}-{pooled.doc_id}"
                entry = Entry(
                    id=made, at=at or now(), query_id=query_id, doc_id=pooled.doc_id, grade=given, seconds=7.0
                )
                project.check_entry(entry)
                journal.save(entry)
    if finished:
        journal.save(Entry(id=f"{name}-finished", at=at or now(), finished=True))
    journal.close()
