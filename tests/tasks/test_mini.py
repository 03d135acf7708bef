"""Mini as a benchmark: what its second edition promises, computed from its judgments and the rankings that ship."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from r2med.judge import open_project
from r2med.judge.final import final_grades
from r2med.judge.summary import summarise
from r2med.pipeline.artefact_checks import find_twins
from r2med.pipeline.artefact_report import ArtefactReport
from r2med.pipeline.artefacts import artefacts
from r2med.pipeline.calibration import read_rankings
from r2med.retrieve import get_retriever
from r2med.scoring.intervals import Settings
from r2med.tasks import load, load_all

ROOT = Path(__file__).parents[2]
PROJECTS = ROOT / "judging" / "mini"
CORPORA = ROOT / "src" / "r2med" / "tasks" / "mini"
TASKS = tuple(task.name for task in load_all("mini"))


@cache
def audited() -> ArtefactReport:
    return artefacts(load_all("mini"))


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
    report = audited()
    for task in report.tasks:
        found = {finding.check: finding for finding in task.findings}
        classifier = found["classifier-judged"]
        assert (classifier.value or 1) <= 0.60, task.task
        assert (found["answer-as-query"].value or 1) <= 0.80, task.task
        for check in ("sort-by-word-length", "sort-by-length", "order"):
            assert found[check].verdict == "passes", "an order that does not read the query gains nothing"
    overall = {finding.check: finding for finding in report.overall}
    assert (overall["classifier-judged"].high or 1) <= 0.60
    assert (overall["answer-as-query"].high or 1) <= 0.80


def test_it_is_as_hard_as_it_should_be_and_tells_systems_apart() -> None:
    calibration = audited().calibration
    assert calibration is not None
    figures = {finding.check: finding for finding in calibration.findings}
    assert 0.15 <= (figures["words-alone"].value or 0) <= 0.40
    assert (figures["pairs-apart"].value or 0) >= 2
    assert (figures["detectable"].value or 1) <= 0.04, "of the pair that needs most, in the mean of tasks"
    assert (figures["unjudged"].value or 1) <= 0.10, "of the system and task with the most"
    assert {finding.verdict for finding in calibration.findings} == {"passes"}
    assert [len(pair.systems) for pair in calibration.pairs] == [2] * 6
    assert len(calibration.systems) >= 10


def test_the_rankings_that_ship_are_those_of_these_texts() -> None:
    for name in TASKS:
        task = load(f"mini/{name}")
        for system in ("bm25", "bm25-lucene"):
            run = get_retriever(system).retrieve(task, depth=10)
            lines = read_rankings(task)[system]
            assert {line.query_id: line.docs for line in lines} == {
                query_id: [hit.doc_id for hit in hits] for query_id, hits in run
            }, f"tools/mini_rankings.py was not run since {name} changed"


def test_no_problem_comes_twice() -> None:
    """Answers may be drugs or outlooks: what each query is about was written down by readers of the queries alone."""
    tasks = [*load_all("mini"), *load_all("mini-dev")]
    assert not find_twins(tasks)
    lines = (ROOT / "judging" / "mini-conditions.jsonl").read_text("utf-8").splitlines()
    conditions = {read["id"]: read["condition"] for read in map(json.loads, lines)}
    assert set(conditions) == {query.id for task in tasks for query in task.queries}
    named = Counter(conditions.values())
    assert [condition for condition, times in named.items() if times > 1] == []


def test_no_query_denies_its_distractors_one_by_one() -> None:
    denied = re.compile(r"(?:\b\w+ no\b[,;.] ?){3,}|(?:\bno \w+[,;] ?){3,}", re.IGNORECASE)
    for name in TASKS:
        for query in (*load(f"mini/{name}").queries, *load(f"mini-dev/{name}").queries):
            assert not denied.search(query.text), query.id


@pytest.mark.parametrize("name", TASKS[:3])
def test_most_posts_have_titles(name: str) -> None:
    posts = [query.text for part in ("mini", "mini-dev") for query in load(f"{part}/{name}").queries]
    titles = [post.partition("\n")[0] for post in posts if "\n" in post]
    assert sum(len(title) <= 100 for title in titles) >= len(posts) / 2


def test_it_takes_little_of_the_wheel() -> None:
    texts = [path.read_bytes() for path in CORPORA.rglob("*.jsonl")]
    assert sum(len(zlib.compress(text)) for text in texts) <= 3_500_000


def test_texts_vary_and_bear_no_answer() -> None:
    corpora = [folder.name for folder in CORPORA.iterdir() if (folder / "corpus.jsonl").exists()]
    assert len(corpora) == 6
    for name in corpora:
        lengths = [len(text.split()) for text in corpus(name)]
        assert np.std(lengths) / np.mean(lengths) >= 0.30, name
    for name in TASKS:
        for query in (*load(f"mini/{name}").queries, *load(f"mini-dev/{name}").queries):
            assert query.answer
            assert query.answer.casefold() not in query.text.casefold()
