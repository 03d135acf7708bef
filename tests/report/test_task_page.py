from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

import r2med
from r2med.core import UsageError
from r2med.core.table import markdown_text, shortened
from r2med.pipeline.audit import inspect
from r2med.report.group_page import across_tasks, group_page, write_pages
from r2med.report.task_page import task_page
from r2med.report.task_reading import versus
from r2med.tasks import resolve
from r2med.tasks.load import from_path
from r2med.tasks.nano.figures import Contrast, Inspected, group
from tests.builders import lines
from tests.pipeline.test_nano_build import build

SECTIONS = [
    r"# Nano mini@1 / NanoMini\_1MedQADiag", "## Overview", "## Details", "### What the data measures",
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
    entry = resolve("mini@1/MedQA-Diag")[0].entry
    assert entry is not None
    assert entry.description in page
    assert looked_at.task.fingerprint in page
    assert all(f"`{trap.query}`" in page for trap in looked_at.traps)


def test_a_difference_is_called_one_only_where_the_test_says_so() -> None:
    assert "not significant" not in versus(Contrast("hybrid", "bm25", 0.1, 0.02, 0.2, True))
    assert "not significant on these queries" in versus(Contrast("hybrid", "bm25", 0.1, -0.02, 0.2, False))
    assert "not significant, with all lists compared" in versus(Contrast("hybrid", "bm25", 0.1, 0.01, 0.2, False))


def test_the_columns_are_those_of_the_files(tmp_path: Path) -> None:
    """In a group, a task has the columns that any of them has; the page named those that its own content needs."""
    r2med.build_nano("mini@1/MedQA-Diag", written(tmp_path / "bare"), out=tmp_path / "nano", dense="none")
    pages = [task_page(inspect(ref)) for ref in from_path(tmp_path / "nano")]
    assert len(pages) == 2
    for config in ("corpus", "queries", "qrels"):
        lines = [next(line for line in page.splitlines() if line.startswith(f"| `{config}` | `")) for page in pages]
        shown = [re.findall(r"`([^`]+)`", line)[1:] for line in lines]
        assert shown[0] == shown[1]
        for file in (tmp_path / "nano" / config).glob("*.parquet"):
            assert parquet.read_schema(file).names == shown[0]


def written(folder: Path) -> str:
    """A task with nothing but what it must have, though its query has a grade of 1 only and no title."""
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_bytes(lines([{"_id": f"d{i}", "text": f"fever and sign{i}"} for i in range(4)]))
    (folder / "queries.jsonl").write_bytes(lines([{"_id": "q", "text": "what is sign2?"}]))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td2\t1\n")
    return str(folder)


def test_texts_cannot_break_the_page() -> None:
    assert markdown_text("a | b\n# *c* <script>") == r"a \| b \# \*c\* \<script\>"
    assert shortened("word " * 100, 20) == "word word word word …"


def test_files_and_their_json(looked_at: Inspected, tmp_path: Path) -> None:
    written = write_pages("group", [looked_at], tmp_path / "out")
    assert [p.name for p in written] == ["NanoMini_1MedQADiag.md", "NanoMini_1MedQADiag.json", "index.md", "index.json"]
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
    assert r"[NanoMini\_1MedQADiag](NanoMini_1MedQADiag.md)" in page
    assert "All, by query" in page


def test_a_group_says_of_the_best_profile_only_what_was_tested(looked_at: Inspected) -> None:
    """A better-than on one of two tasks read as if the other had been tested and failed."""
    pages = [
        looked_at._replace(
            split=split, contrasts=[Contrast(best, other, 0.1, low, 0.2, low > 0) for other, low in others]
        )
        for split, best, others in (
            ("a", "dense", [("bm25", 0.05), ("hybrid", -0.1)]),
            ("b", "hybrid", [("bm25", 0.05), ("dense", 0.01)]),
            ("c", "dense", [("bm25", 0.02), ("hybrid", -0.2)]),
        )
    ]
    said = across_tasks(pages)
    assert said[:2] == [
        "On `a` and `c`, the dense list is best: it is significantly better than BM25 but not significantly better "
        "than the hybrid list (5 % for each task).",
        "On `b`, the hybrid list is best: it is significantly better than BM25 and the dense list (5 % for each task).",
    ]
    level = looked_at._replace(split="d", contrasts=[Contrast("bm25", "hybrid", 0.0, -0.1, 0.1, False)])
    assert across_tasks([level])[0] == (
        "On `d`, no list is better than BM25: it is not significantly better than the hybrid list (5 % for each task)."
    )


def test_a_plain_task_gets_a_page_too() -> None:
    page = task_page(inspect(resolve("mini@1/Biology")[0]))
    assert page.startswith("# Mini, first edition / Biology\n")
    assert "to compare it with" not in page
    assert "| Config | Columns |" not in page  # there are no such files
    assert "Its only candidates are those of BM25, with an nDCG@10 of" in page
    assert "The nDCG@10, " in page
    assert "any profile" not in page
    assert "| BM25 | `bm25` |" in page
    assert "#### Dense" not in page
    assert "| `bm25` | bm25-nano |" in page
