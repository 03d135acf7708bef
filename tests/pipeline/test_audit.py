"""Audits with the scores of stored runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.core import DataError
from r2med.pipeline.audit import audit_tasks
from r2med.tasks.load import from_path
from tests.builders import beir_folder


def test_runs_of_one_name_are_told_apart_and_runs_of_other_queries_refused(tmp_path: Path) -> None:
    """Both stood there as `sys`; a run that shares no query with the task scored 0 without a word."""
    refs = from_path(beir_folder(tmp_path / "data", test="q1\td1\t1\n"))
    paths = [tmp_path / name for name in ("good.run", "bad.run", "other.run")]
    for path, line in zip(paths, ("q1 Q0 d1 1 2 sys", "q1 Q0 d3 1 2 sys", "x9 Q0 d1 1 2 own"), strict=True):
        path.write_text(f"{line}\n")
    (scored,) = audit_tasks(refs, runs=paths[:2]).scores
    assert [(one.system, (one.all.measures or {})["ndcg_at_10"]) for one in scored] == [
        (f"sys ({paths[0]})", 1.0),
        (f"sys ({paths[1]})", 0.0),
    ]
    ((alone,),) = audit_tasks(refs, runs=paths[:1]).scores
    assert alone.system == "sys"
    with pytest.raises(DataError, match="ranks no judged query of data"):
        audit_tasks(refs, runs=paths[2:])
