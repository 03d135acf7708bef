"""Mini as a benchmark: what its second edition promises, computed from its judgments and the runs behind its pool."""

from __future__ import annotations

import json
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from r2med.judge import open_project
from r2med.judge.final import final_grades
from r2med.judge.summary import summarise
from r2med.pipeline.artefacts import artefacts
from r2med.scoring import MAIN, Measure, score
from r2med.scoring.hits import Float64
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


def standard_error(one: str, two: str) -> float:
    gaps = [a - b for a, b in zip(scores(one), scores(two), strict=True)]
    return float(np.sqrt(sum(gap.var(ddof=1) / len(gap) for gap in gaps)) / len(gaps))


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
    (pair,) = summarise(project).pairs
    assert (pair.kappa["linear"].value or 0) >= 0.6
    final = final_grades(project)
    assert not final.open
    published = {(q, d): g for split in ("mini", "mini-dev") for q, d, g in load(f"{split}/{name}").qrels}
    assert all(final.grades[slot] == grade for slot, grade in published.items())


def test_documents_cannot_be_told_relevant_without_the_query() -> None:
    report = artefacts(load_all("mini"))
    of_task = [{finding.check: finding for finding in task.findings} for task in report.tasks]
    for found in of_task:
        assert (found["classifier-judged"].value or 1) <= 0.60
        for check in ("sort-by-word-length", "sort-by-length"):
            assert found[check].verdict == "passes", "an order that does not read the query gains nothing"
    overall = {finding.check: finding for finding in report.overall}
    assert (overall["answer-as-query"].value or 1) <= 0.80
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
    detectable = sorted(2.8 * standard_error(one, two) for one, two in combinations(SYSTEMS, 2))
    assert detectable[0] <= 0.04, "what a system and a fusion with it show four times in five"
    assert detectable[len(detectable) // 2] <= 0.055, "what the median pair shows"


def test_hardly_anything_in_a_top_ten_is_unjudged() -> None:
    judged = Measure.parse("judged@10")
    for name in TASKS:
        for system, run in open_project(PROJECTS / name).runs().items():
            assert score(run, load(f"mini/{name}"), [judged]).mean(judged) >= 0.90, f"{system} on {name}"


def test_texts_vary_and_bear_no_answer() -> None:
    for name in ("encyclopaedia", *TASKS[:3]):
        lengths = [len(text.split()) for text in corpus(name)]
        assert np.std(lengths) / np.mean(lengths) >= 0.30
    for name in TASKS:
        for query in (*load(f"mini/{name}").queries, *load(f"mini-dev/{name}").queries):
            assert query.answer
            assert query.answer.casefold() not in query.text.casefold()
