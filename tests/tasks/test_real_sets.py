"""The real collections beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.tasks import convert, load
from r2med.tasks.load import from_path
from r2med.tasks.validate import validate

# queries, documents, judgments as their README says
COUNTS = {
    "scifact": (300, 5_183, 339),
    "bioasq-snippets": (600, 29_182, 7_055),
    "liveqa-med": (104, 17_273, 2_311),
    "evidence": (300, 30_000, 375),
    "vignettes": (154, 63_080, 582),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(shared_data: Path, name: str) -> None:
    task = load(shared_data / name)
    assert (len(task.queries), len(task.documents), len(task.qrels)) == COUNTS[name]
    assert task.extra["layout"] == "beir"


def test_scifact_is_valid(shared_data: Path) -> None:
    (ref,) = from_path(shared_data / "scifact")
    report = validate(ref)
    assert report.errors == []
    assert (report.queries, report.documents, report.judgments) == COUNTS["scifact"]


def test_scifact_goes_to_every_layout_and_back(shared_data: Path, tmp_path: Path) -> None:
    source = from_path(shared_data / "scifact")
    fingerprint = source[0].load().fingerprint
    for to in ("r2med", "nano"):
        convert(source, tmp_path / to, to=to)
        (back,) = convert(from_path(tmp_path / to), tmp_path / f"{to}-beir", to="beir")
        assert back.fingerprint == fingerprint
        assert load(tmp_path / f"{to}-beir").fingerprint == fingerprint
