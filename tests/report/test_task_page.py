from __future__ import annotations

import json
from pathlib import Path

import pytest

from r2med.core import UsageError
from r2med.core.table import markdown_text, shortened
from r2med.pipeline.audit import inspect
from r2med.report.group_page import group_page, write_pages
from r2med.report.task_page import task_page
from r2med.report.task_reading import versus
from r2med.tasks import resolve
from r2med.tasks.load import from_path
from r2med.tasks.nano.figures import Contrast, Inspected, group
from tests.pipeline.test_nano_build import build

SECTIONS = [
    "# NanoMini / NanoMiniMedQADiag", "## Overview", "## Details", "### What the data measures",
    "### Observed data profile", "### Evaluation profiles", "#### BM25", "#### Dense", "#### Reranking hybrid",
    "### Metric interpretation", "### Query and relevance tendencies", "### Representative failure modes",
    "### Training data that may help", "### Training and leakage notes", "### Model improvement notes",
    "## Example data", "## Source and reference table", "## Dataset information", "## Candidate subsets", "## Metadata",
]  # fmt: skip
GROUP_SECTIONS = [
    "# NanoMini", "## Overview", "## What the group measures", "## Task families", "## Dataset shape", "## Tasks",
    "## Evaluation profiles", "## Interpretation across tasks", "## Training and leakage", "## Sources",
    "## Metadata summary",
]  # fmt: skip


def headings(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("#")]


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Inspected:
    folder = build(tmp_path_factory.mktemp("pages") / "nano", docs=70)
    (ref,) = from_path(folder)
    return inspect(ref)


def test_a_page_has_its_sections_in_order(looked_at: Inspected) -> None:
    page = task_page(looked_at)
    assert headings(page) == SECTIONS
    assert "None" not in page
    assert "nan" not in page.split()


def test_a_page_says_what_the_figures_say(looked_at: Inspected) -> None:
    page = task_page(looked_at)
    for profile in looked_at.figures.profiles.values():
        assert f"{profile.ndcg_at_10:.4f}" in page
        assert profile.profile in page
    assert looked_at.contrasts
    for contrast in looked_at.contrasts:
        assert versus(contrast) in page
    entry = resolve("mini/MedQA-Diag")[0].entry
    assert entry is not None
    assert entry.description in page
    assert looked_at.task.fingerprint in page
    assert all(f"`{trap.query}`" in page for trap in looked_at.traps)


def test_a_difference_is_called_one_only_where_the_interval_says_so() -> None:
    assert "not significant" not in versus(Contrast("hybrid", "bm25", 0.1, 0.02, 0.2))
    assert "not significant" in versus(Contrast("hybrid", "bm25", 0.1, -0.02, 0.2))


def test_texts_cannot_break_the_page() -> None:
    assert markdown_text("a | b\n# *c* <script>") == r"a \| b \# \*c\* \<script\>"
    assert shortened("word " * 100, 20) == "word word word word …"


def test_files_and_their_json(looked_at: Inspected, tmp_path: Path) -> None:
    written = write_pages("group", [looked_at], tmp_path / "out")
    assert [p.name for p in written] == ["NanoMiniMedQADiag.md", "NanoMiniMedQADiag.json", "index.md", "index.json"]
    data = json.loads(written[1].read_bytes())
    assert data["figures"]["profiles"]["bm25"]["ndcg_at_10"] == looked_at.figures.profiles["bm25"].ndcg_at_10
    assert data["audit"]["findings"]["task"] == looked_at.task.full_name
    index = json.loads(written[3].read_bytes())
    assert set(index["group"]) == {"bm25", "dense", "hybrid"}
    with pytest.raises(UsageError, match="two of the pages"):
        write_pages("group", [looked_at, looked_at], tmp_path / "twice")
    with pytest.raises(UsageError, match="two of the pages would be called 'index'"):
        write_pages("group", [looked_at._replace(split="Index")], tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_the_group_page_links_its_tasks(looked_at: Inspected) -> None:
    page = group_page("NanoMini", group([looked_at.figures], source=""), [looked_at])
    assert headings(page) == GROUP_SECTIONS
    assert "| Task | Family | Language | Queries |" in page
    assert "| Clinical evidence | en |" in page
    assert "[NanoMiniMedQADiag](NanoMiniMedQADiag.md)" in page
    assert "All, by query" in page


def test_a_plain_task_gets_a_page_too() -> None:
    page = task_page(inspect(resolve("mini/Biology")[0]))
    assert page.startswith("# Mini / Biology\n")
    assert "There is no other profile to compare it with." in page
    assert "| BM25 | `bm25` |" in page
    assert "#### Dense" not in page
    assert "| `bm25` | bm25-nano |" in page
