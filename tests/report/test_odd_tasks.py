"""Tasks out of the ordinary: each gets a right page, or one clear line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import r2med
from r2med.core import R2MedError
from tests.builders import lines
from tests.pipeline.test_nano_build import build
from tests.report.test_page_html import Balanced


def written(folder: Path, texts: Sequence[str], queries: Sequence[str], judged: Sequence[tuple[int, int, int]]) -> str:
    """A task in BEIR's layout, with ids that hold slashes and bars."""
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_bytes(lines([{"_id": f"d/{i}|x", "text": t} for i, t in enumerate(texts)]))
    (folder / "queries.jsonl").write_bytes(lines([{"_id": f"q/{i}|x", "text": t} for i, t in enumerate(queries)]))
    rows = "".join(f"q/{q}|x\td/{d}|x\t{g}\n" for q, d, g in judged)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return str(folder)


NINE = [f"passage {i} about fever, rash and sign{i}" for i in range(9)]


def pages_of(source: str, tmp_path: Path) -> dict[str, str]:
    """Build and write everything; give the Markdown by name."""
    r2med.build_nano(source, out=tmp_path / "nano", dense="none")
    made = r2med.write_pages(str(tmp_path / "nano"), html=True)
    for path in made.files:
        if path.suffix == ".html":
            Balanced(path.read_text("utf-8"))
        if path.suffix == ".json":
            json.loads(path.read_bytes())
    return {path.stem: path.read_text("utf-8") for path in made.files if path.suffix == ".md"}


def test_one_query(tmp_path: Path) -> None:
    page = pages_of(written(tmp_path / "one", NINE, ["what is sign3?"], [(0, 3, 1)]), tmp_path)["one"]
    assert "puts 1 query to 9 documents; 1 judgment is positive" in page
    assert "1 of 1 query (100 %) has a positive among the first ten." in page
    assert "nan" not in page.lower().split()


def test_nine_documents_and_ids_with_slashes(tmp_path: Path) -> None:
    queries = [f"what is sign{i}?" for i in range(4)] + ["nothing of the sort"]
    pages = pages_of(written(tmp_path / "nine", NINE, queries, [(i, i, 1) for i in range(5)]), tmp_path)
    assert "puts 5 queries to 9 documents" in pages["nine"]
    assert "1 query has no candidate at all from it." in pages["nine"]
    assert "`q/4|x`" in pages["nine"]
    assert "# nine\n" in pages["index"]


def test_queries_without_judgments_are_not_counted_as_failures(tmp_path: Path) -> None:
    """Of a task that is no Nano: there, a query may have no judgment."""
    source = written(tmp_path / "some", NINE, [f"what is sign{i}?" for i in range(6)], [(i, i, 1) for i in range(3)])
    made = r2med.write_pages(source, out=tmp_path / "out")
    page = made.files[0].read_text("utf-8")
    assert "3 of 3 queries (100 %) have a positive among the first ten." in page
    assert "over 3 judged queries" in page
    assert "Every query has one positive" not in page
    about = json.loads(made.files[1].read_bytes())
    assert about["sources"] == [{"title": source, "type": "source of the task", "year": None, "address": None}]
    assert "no positive among the first ten of any profile" not in page


def test_text_that_is_not_english(tmp_path: Path) -> None:
    """Its page called queries of six signs one word long, and saw no question in 什么引起皮疹？."""
    texts = [f"{'发热和皮疹的原因有很多' * 2}：病毒{'甲乙丙丁戊己庚辛壬'[i]}" for i in range(9)]
    queries = [f"什么引起皮疹{'甲乙丙丁戊己庚辛壬'[i]}？" for i in range(9)]
    page = pages_of(written(tmp_path / "zh", texts, queries, [(i, i, 1) for i in range(9)]), tmp_path)["zh"]
    assert "| Language | not stated |" in page
    assert "发热" in page
    assert "Queries of 8 characters in the median ask for passages of 26" in page
    assert "Every query holds a question mark; at least half have 8 characters." in page
    assert "0 deep at most" not in page
    assert "9 queries have no candidate at all from it." in page


def test_one_third_of_the_queries_is_no_table(tmp_path: Path) -> None:
    """All queries share as many terms with their positives: the table had one row, called the fewest."""
    queries = [f"what is sign{i}?" for i in range(9)]
    page = pages_of(written(tmp_path / "even", NINE, queries, [(i, i, 1) for i in range(9)]), tmp_path)["even"]
    assert "| Terms shared with the best positive |" not in page


def test_a_query_without_a_single_latin_letter_has_no_candidate(tmp_path: Path) -> None:
    texts, queries = ["皮疹", "发热", "fever"], ["什么?", "fever"]
    page = pages_of(written(tmp_path / "zh", texts, queries, [(0, 0, 1), (1, 2, 1)]), tmp_path)["zh"]
    assert "1 query has no candidate at all from it." in page


@pytest.mark.parametrize("judged", [[], [(0, 0, 0)]])
def test_no_positives(tmp_path: Path, judged: list[tuple[int, int, int]]) -> None:
    source = written(tmp_path / "none", NINE, ["a query"], judged)
    for call in (lambda: r2med.build_nano(source, out=tmp_path / "nano", dense="none"),
                 lambda: r2med.write_pages(source, out=tmp_path / "out")):  # fmt: skip
        with pytest.raises(R2MedError) as caught:
            call()
        assert "\n" not in str(caught.value)
        assert "positive" in str(caught.value) or "judg" in str(caught.value)
    assert not (tmp_path / "nano").exists()
    assert not (tmp_path / "out").exists()


def test_a_dense_profile_from_another_corpus(tmp_path: Path) -> None:
    one, other = build(tmp_path / "one"), build(tmp_path / "other", "mini@1/Biology")
    (config,) = (p for p in one.iterdir() if p.name not in ("corpus", "queries", "qrels", "bm25", "reranking_hybrid")
                 and p.is_dir() and p.name != "metadata")  # fmt: skip
    (mine,), (foreign,) = (list((folder / config.name).iterdir()) for folder in (one, other))
    mine.write_bytes(foreign.read_bytes())
    with pytest.raises(R2MedError) as caught:
        r2med.write_pages(str(one))
    assert "\n" not in str(caught.value)
    assert config.name in str(caught.value)
