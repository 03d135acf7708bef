"""Mini as a benchmark: what its second edition promises, computed from its judgments and the runs behind its pool."""

from __future__ import annotations

import json
import zlib
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from r2med.judge import open_project
from r2med.judge.final import final_grades
from r2med.judge.summary import summarise
from r2med.pipeline.artefacts import artefacts
from r2med.retrieve import get_retriever
from r2med.scoring import MAIN, Measure, score
from r2med.scoring.intervals import Settings
from r2med.scoring.measures import Float64
from r2med.tasks import load, load_all

ROOT = Path(__file__).parents[2]
PROJECTS = ROOT / "judging" / "mini"
CORPORA = ROOT / "src" / "r2med" / "tasks" / "mini"
TASKS = tuple(task.name for task in load_all("mini"))
SYSTEMS = ("bm25", "bge-small", "minilm", "bm25+bge-small.rrf")


@cache
def scores(system: str) -> list[Float64]:
    """nDCG@10 of the test queries of each task, from the ranking that was pooled."""
    runs = (open_project(PROJECTS / name).runs()[system] for name in TASKS)
    return [score(run, load(f"mini/{name}"), [MAIN]).per_query[MAIN] for name, run in zip(TASKS, runs, strict=True)]


def macro(of_tasks: list[Float64]) -> float:
    return float(np.mean([task.mean() for task in of_tasks]))


def standard_error(one: str, two: str, *, by_query: bool = False) -> float:
    """Of the difference of two systems: of the mean of tasks, or of the mean of all queries."""
    gaps = [a - b for a, b in zip(scores(one), scores(two), strict=True)]
    queries = sum(map(len, gaps))
    weights = [len(gap) / queries if by_query else 1 / len(gaps) for gap in gaps]
    return float(np.sqrt(sum(w**2 * gap.var(ddof=1) / len(gap) for w, gap in zip(weights, gaps, strict=True))))


def corpus(name: str) -> list[str]:
    lines = (CORPORA / name / "corpus.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def test_sizes() -> None:
    documents = {name: len(corpus(name)) for name in ("encyclopaedia", *TASKS[:3])}
    assert documents["encyclopaedia"] >= 900
    assert min(documents.values()) >= 220
    assert all(len(load(f"mini/{name}").documents) >= 150 for name in ("PMC-Clinical", "IIYi-Clinical"))
    for name in TASKS:
        dev, test = load(f"mini-dev/{name}"), load(f"mini/{name}")
        assert len(dev.queries) == 8
        assert len(dev.queries) + len(test.queries) >= 30
        assert not set(dev.query_ids) & set(test.query_ids)
        assert dev.documents.fingerprint == test.documents.fingerprint
        assert len({q.body_system for q in (*dev.queries, *test.queries)}) == 12


@pytest.mark.parametrize("name", TASKS)
def test_judges_agree_and_nothing_is_open(name: str) -> None:
    project = open_project(PROJECTS / name)
    (pair,) = summarise(project, intervals=Settings(resamples=1000)).pairs
    assert (pair.kappa["linear"].value or 0) >= 0.6
    final = final_grades(project)
    assert not final.open
    published = {(q, d): g for split in ("mini", "mini-dev") for q, d, g in load(f"{split}/{name}").qrels}
    assert all(final.grades[slot] == grade for slot, grade in published.items())


def test_documents_cannot_be_told_relevant_without_the_query() -> None:
    report = artefacts(load_all("mini"))
    for task in report.tasks:
        found = {finding.check: finding for finding in task.findings}
        classifier = found["classifier-judged"]
        assert (classifier.value or 1) <= 0.60
        assert (classifier.low or 1) <= 0.60
        assert (found["answer-as-query"].value or 1) <= 0.80
        for check in ("sort-by-word-length", "sort-by-length"):
            assert found[check].verdict == "passes", "an order that does not read the query gains nothing"
    overall = {finding.check: finding for finding in report.overall}
    assert (overall["classifier-judged"].high or 1) <= 0.60
    assert (overall["answer-as-query"].high or 1) <= 0.80
    assert overall["twins"].verdict == "passes"


def test_words_alone_find_some_and_not_most() -> None:
    assert 0.15 <= macro(scores("bm25")) <= 0.40


def test_systems_are_told_apart() -> None:
    apart = [
        (one, two)
        for one, two in combinations(SYSTEMS, 2)
        if abs(macro(scores(one)) - macro(scores(two))) > 1.96 * standard_error(one, two)
    ]
    assert len(apart) >= 2
    pairs = list(combinations(SYSTEMS, 2))
    by_query = [2.8 * standard_error(*pair, by_query=True) for pair in pairs]
    assert median(by_query) <= 0.04, "of two systems, four times in five, in the mean of all queries"
    by_task = [2.8 * standard_error(*pair) for pair in pairs]
    assert median(by_task) <= 0.04, "in the mean of tasks"


def test_hardly_anything_in_a_top_ten_is_unjudged() -> None:
    judged = Measure.parse("judged@10")
    outside = get_retriever("bm25-lucene")
    for name in TASKS:
        task = load(f"mini/{name}")
        runs = {**open_project(PROJECTS / name).runs(), "bm25-lucene": outside.retrieve(task, depth=10)}
        for system, run in runs.items():
            assert score(run, task, [judged]).mean(judged) >= 0.90, f"{system} on {name}"


def test_it_takes_little_of_the_wheel() -> None:
    texts = [path.read_bytes() for path in CORPORA.rglob("*.jsonl")]
    assert sum(len(zlib.compress(text)) for text in texts) <= 3_500_000


def test_texts_vary_and_bear_no_answer() -> None:
    for name in ("encyclopaedia", *TASKS[:3]):
        lengths = [len(text.split()) for text in corpus(name)]
        assert np.std(lengths) / np.mean(lengths) >= 0.30
    for name in TASKS:
        for query in (*load(f"mini/{name}").queries, *load(f"mini-dev/{name}").queries):
            assert query.answer
            assert query.answer.casefold() not in query.text.casefold()
