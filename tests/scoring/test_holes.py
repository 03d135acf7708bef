from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from r2med.core import DataError, Judgment, Qrels, ResultError, Run, UsageError
from r2med.scoring import Measure, score
from r2med.scoring.holes import (
    PoolEntry,
    build_pool,
    condensed,
    hole_report,
    hole_shares,
    read_labels,
    score_bounds,
    unjudged,
    with_labels,
    write_pool,
)
from tests.builders import small_task

MEASURES = [Measure("ndcg", 10), Measure("ndcg", 3), Measure("map", 5), Measure("precision", 3), Measure("mrr", 10)]
documents = [f"d{i}" for i in range(6)]
judged = st.dictionaries(st.sampled_from([*documents, "elsewhere"]), st.integers(0, 1), min_size=1, max_size=5)
ranked = st.lists(st.sampled_from(documents), min_size=1, unique=True)


def run_of(**rankings: list[str]) -> Run:
    return Run.from_rankings({q: [(d, float(len(of) - i)) for i, d in enumerate(of)] for q, of in rankings.items()})


def test_holes_are_what_nobody_judged() -> None:
    qrels = Qrels.from_judgments([("a", "x", 1), ("a", "y", 0), ("b", "x", 1), ("c", "z", 1)])
    run = run_of(a=["x", "y", "n1", "n2"], b=["y", "x"], extra=["x"])
    assert [(qrels.query_ids[query], rank, doc_id) for query, rank, doc_id in unjudged(run, qrels, 10)] == [
        ("a", 2, "n1"),
        ("a", 3, "n2"),
        ("b", 0, "y"),
    ]
    assert hole_shares(run, qrels, 10).tolist() == [0.5, 0.5, 0.0]
    assert hole_shares(run, qrels, 3).tolist() == pytest.approx([1 / 3, 0.5, 0.0])
    with pytest.raises(UsageError, match="depth"):
        unjudged(run, qrels, 0)


def test_adding_judgments() -> None:
    qrels = Qrels.from_judgments([("a", "x", 1), ("b", "y", 2)])
    more = with_labels(qrels, [(1, "n", 3), (0, "y", 3)])
    assert (more.of("a"), more.of("b")) == ({"x": 1, "y": 3}, {"y": 2, "n": 3})
    assert qrels.of("a") == {"x": 1}


@given(judged, ranked)
def test_bounds_are_the_extremes_over_every_way_to_judge(grades: dict[str, int], ranking: list[str]) -> None:
    qrels = Qrels.from_judgments(("q", d, g) for d, g in grades.items())
    run, holes = run_of(q=ranking), [d for d in ranking if d not in grades]
    for measure in MEASURES:
        values = []
        for relevant in product((0, 1), repeat=len(holes)):
            trial = grades | dict(zip(holes, relevant, strict=True))
            judgments = Qrels.from_judgments(("q", d, g) for d, g in trial.items())
            values.append(score(run, judgments, [measure]).mean(measure))
        low, as_judged, high = (float(v[0]) for v in score_bounds(run, qrels, measure))
        assert low == pytest.approx(min(values))
        assert high == pytest.approx(max(values))
        assert low <= as_judged <= high


@given(judged, ranked, st.sets(st.sampled_from([*documents, "x", "y"]), max_size=3))
def test_bounds_are_the_extremes_over_every_labelling_of_the_pool(
    grades: dict[str, int], ranking: list[str], pooled: set[str]
) -> None:
    """Holes of other systems lengthen the ideal ranking, too."""
    qrels = Qrels.from_judgments(("q", d, g) for d, g in grades.items())
    run = run_of(q=ranking)
    pool = {(0, d) for d in pooled if d not in grades}
    holes = sorted({d for _, d in pool} | {d for d in ranking[:3] if d not in grades})
    for measure in MEASURES:
        values = []
        for relevant in product((0, 1), repeat=len(holes)):
            trial = grades | dict(zip(holes, relevant, strict=True))
            judgments = Qrels.from_judgments(("q", d, g) for d, g in trial.items())
            values.append(score(run, judgments, [measure]).mean(measure))
        low, _, high = (float(v[0]) for v in score_bounds(run, qrels, measure, depth=3, pool=pool))
        assert low == pytest.approx(min(values))
        assert high == pytest.approx(max(values))


GRADED = st.dictionaries(st.sampled_from([*documents, "elsewhere"]), st.sampled_from([0, 1, 2, 3]), max_size=4)


@given(GRADED, ranked, st.sets(st.sampled_from([*documents, "x"]), max_size=2))
@example({"d4": 3, "d1": 1}, ["d1", "d3", "d5", "d4", "d0", "d2"], {"d2"})  # 0.8378 with grades 3 and 1, "most" 0.8367
def test_bounds_are_the_extremes_over_every_grade(grades: dict[str, int], ranking: list[str], pooled: set[str]) -> None:
    """Holes may have different grades: with one grade for all of them, the most was too little."""
    grades = grades | {"sure": 1}
    qrels, run = Qrels.from_judgments(("q", d, g) for d, g in grades.items()), run_of(q=ranking)
    pool = {(0, d) for d in pooled if d not in grades}
    holes = sorted({d for _, d in pool} | {d for d in ranking[:2] if d not in grades})
    levels = sorted({0, *grades.values()})
    for measure in (Measure("ndcg", 3), Measure("ndcg", 10), Measure.parse("AP(rel=2)")):
        values = []
        for labels in product(levels, repeat=len(holes)):
            judgments = Qrels.from_judgments(
                ("q", d, g) for d, g in (grades | dict(zip(holes, labels, strict=True))).items()
            )
            values.append(score(run, judgments, [measure]).mean(measure))
        low, _, high = (float(v[0]) for v in score_bounds(run, qrels, measure, depth=2, pool=pool))
        if measure.family == "ndcg" or max(levels) >= 2:
            assert (low, high) == pytest.approx((min(values), max(values))), measure


def test_many_holes_are_gone_through_with_one_grade_each() -> None:
    qrels = Qrels.from_judgments([("q", "a", 3), ("q", "b", 2), ("q", "c", 1)])
    run = run_of(q=["a", *(f"z{i:02d}" for i in range(40)), "b"])
    low, judged, high = (float(v[0]) for v in score_bounds(run, qrels, Measure("ndcg", 30), depth=30))
    assert 0 < low < judged < high <= 1


def test_measures_of_judged_documents_have_no_range() -> None:
    qrels = Qrels.from_judgments([("q", "a", 1)])
    with pytest.raises(UsageError, match="judged documents only"):
        score_bounds(run_of(q=["a", "b"]), qrels, Measure("bpref"))


@given(
    st.lists(st.lists(st.sampled_from(documents), min_size=2, unique=True), min_size=2, max_size=4),
    st.dictionaries(st.sampled_from([*documents, "elsewhere"]), st.integers(0, 3), min_size=1, max_size=5),
)
def test_what_would_be_if_all_were_relevant_lies_between_the_bounds(
    rankings: list[list[str]], grades: dict[str, int]
) -> None:
    """It lay outside "Could be" for 740 of 1,208 systems."""
    qrels = Qrels.from_judgments(("q", d, g) for d, g in grades.items())
    runs = {f"s{i}": run_of(q=ranking) for i, ranking in enumerate(rankings)}
    for report in hole_report(runs, qrels, depth=3):
        assert report.low - 1e-12 <= report.if_relevant <= report.high + 1e-12
        assert report.low - 1e-12 <= report.judged <= report.high + 1e-12
        assert report.best_rank <= report.rank <= report.worst_rank
        assert report.best_rank <= report.rank_if_relevant <= report.worst_rank


@given(st.dictionaries(st.sampled_from([*documents, "elsewhere"]), st.integers(0, 3), min_size=1, max_size=5), ranked)
def test_condensed_lists_are_trec_evals(grades: dict[str, int], ranking: list[str]) -> None:
    """trec_eval -J: only judged documents are looked at."""
    import pytrec_eval

    qrels, run = Qrels.from_judgments(("q", d, g) for d, g in grades.items()), run_of(q=ranking)
    names = {"nDCG@10": "ndcg_cut_10", "AP": "map", "P@5": "P_5", "RR": "recip_rank", "R@10": "recall_10"}
    asked = {"ndcg_cut.10", "map", "P.5", "recip_rank", "recall.10"}
    evaluator = pytrec_eval.RelevanceEvaluator({"q": grades}, asked, judged_docs_only_flag=True)
    theirs = evaluator.evaluate({"q": {d: float(len(ranking) - i) for i, d in enumerate(ranking)}})
    ours = score(condensed(run, qrels), qrels, list(names))
    for measure, name in names.items():
        assert ours.mean(measure) == pytest.approx(theirs.get("q", {}).get(name, 0.0), abs=1e-12), measure


def test_all_relevant_can_be_less_than_as_judged() -> None:
    qrels = Qrels.from_judgments([("q", "a", 1)])
    run = run_of(q=["a", *(f"z{i}" for i in range(9))])
    zeros = Qrels.from_judgments([("q", "a", 1), *(("q", f"z{i}", 0) for i in range(8))])
    bounds = score_bounds(run, zeros)
    assert bounds.judged[0] == 1.0
    assert bounds.low[0] < 1.0  # the hole at rank 10 makes the ideal longer by more than it adds
    assert score_bounds(run, qrels).high[0] == 1.0


def test_ranks_that_could_change_and_ranks_that_could_not() -> None:
    judgments = [("q", "good", 1), *(("q", f"bad{i}", 0) for i in range(10))]
    runs = {
        "sure": run_of(q=["good", "bad0", "bad1"]),
        "open": run_of(q=["new", "bad2"]),
        "hopeless": run_of(q=["bad3", "bad4"]),
    }
    sure, unsure, hopeless = hole_report(runs, Qrels.from_judgments(judgments))
    assert (sure.holes, unsure.holes, hopeless.holes) == (0.0, 0.5, 0.0)
    assert (sure.rank, unsure.rank, hopeless.rank) == (1, 2, 2)
    lengthened = pytest.approx(1 / (1 + 1 / np.log2(3)))  # with another system's hole in the ideal ranking
    assert sure.low == lengthened
    assert sure.high == 1.0
    assert unsure.low == 0.0
    assert unsure.high == pytest.approx(1 / (1 + 1 / np.log2(3)))
    assert (sure.best_rank, sure.worst_rank) == (1, 2)  # both at the same score if the hole is relevant
    assert (unsure.best_rank, unsure.worst_rank) == (1, 3)
    assert (hopeless.best_rank, hopeless.worst_rank) == (2, 3)
    assert unsure.if_relevant == pytest.approx(sure.if_relevant)
    assert unsure.rank_if_relevant == 1


def test_holes_are_relevant_with_the_least_grade_that_a_measure_asks_for() -> None:
    """With R(rel=2) and the like, holes of grade 1 counted as wrong: the score stood under "If relevant" unchanged."""
    qrels = Qrels.from_judgments([("q", "good", 2), ("q", "fair", 1)])
    runs = {"old": run_of(q=["good"]), "new": run_of(q=["n1", "n2", "n3"])}
    for measure, expected in (("R(rel=2)@10", (1 / 4, 3 / 4)), ("AP(rel=2)", (1 / 4, 3 / 4)), ("R@10", (1 / 5, 3 / 5))):
        old, new = hole_report(runs, qrels, Measure.parse(measure))
        assert (old.if_relevant, new.if_relevant) == pytest.approx(expected), measure
        assert (old.rank, new.rank, old.rank_if_relevant, new.rank_if_relevant) == (1, 2, 2, 1), measure


def test_a_run_without_documents_has_no_holes() -> None:
    """It stopped the report on all other systems: a depth of 0 shows nothing."""
    found = {report.system: report for report in hole_report(RUNS | {"none": Run.from_rankings({"q1": []})}, QRELS)}
    assert (found["none"].holes, found["none"].judged, found["none"].high) == (0.0, 0.0, 0.0)


def test_a_published_run(shared_runs: Path) -> None:
    from r2med.tasks import read_qrels, read_run

    run = read_run(shared_runs / "e5-mistral.IIYi-Clinical.run.gz")
    qrels = read_qrels(shared_runs / "IIYi-Clinical.qrels")
    (report,) = hole_report({"e5": run}, qrels)
    assert report.judged == pytest.approx(0.2137, abs=5e-5)
    assert report.low <= report.judged < report.high <= 1.0
    found = score(run, qrels, [Measure("precision", 10)]).mean("P@10")
    assert report.holes == pytest.approx(1.0 - found)  # this task judges positives only


QRELS = Qrels.from_judgments([("q1", "d1", 1), ("q2", "d3", 1)])
RUNS = {
    "one": Run.from_rankings({"q1": [("d1", 3.0), ("d2", 2.0), ("d3", 1.0)], "q2": [("d1", 1.0)]}),
    "two": Run.from_rankings({"q1": [("d3", 3.0), ("d2", 2.0)]}),
}


def test_the_pool_holds_each_hole_once() -> None:
    pool = build_pool(RUNS, QRELS, task=small_task())
    assert [(e.query_id, e.doc_id, e.best_rank, e.systems) for e in pool] == [
        ("q1", "d3", 1, ["one", "two"]),
        ("q1", "d2", 2, ["one", "two"]),
        ("q2", "d1", 1, ["one"]),
    ]
    assert (pool[0].task, pool[0].query, pool[0].passage) == ("small", "why does it hurt", "third\none")
    assert [e.doc_id for e in build_pool(RUNS, QRELS, depth=1)] == ["d3", "d1"]


@pytest.mark.parametrize("name", ["pool.tsv", "pool.jsonl"])
def test_labels_come_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    assert write_pool(build_pool(RUNS, QRELS, task=small_task()), path) == 3
    assert read_labels(path) == []  # nothing is filled in yet
    if path.suffix == ".tsv":
        rows = [line.split("\t") for line in path.read_text().splitlines()]
        assert rows[1][7] == "third one"
        rows[1][3], rows[3][3] = "1", "0"
        path.write_text("\n".join("\t".join(row) for row in rows) + "\n")
    else:
        records = [json.loads(line) for line in path.read_text().splitlines()]
        assert records[0]["passage"] == "third\none"
        records[0]["grade"], records[2]["grade"] = 1, 0
        path.write_text("".join(json.dumps(r) + "\n" for r in records))
    assert read_labels(path) == [("small", Judgment("q1", "d3", 1)), ("small", Judgment("q2", "d1", 0))]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a \.tsv or a \.jsonl"):
        write_pool([], tmp_path / "pool.xlsx")
    odd = PoolEntry(task="t", query_id="q\t1", doc_id="d")
    with pytest.raises(DataError, match="cannot stand in a table"):
        write_pool([odd], tmp_path / "pool.tsv")
    assert list(tmp_path.iterdir()) == []
    assert write_pool([odd], tmp_path / "pool.jsonl") == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match="cannot be written"):
        write_pool([], tmp_path / "file" / "pool.tsv")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.tsv", b"", "starts with the columns"),
        ("p.tsv", b"task\tquery_id\tdoc_id\tgrade\nt\tq\td\thigh\n", r"p.tsv:2: .*int.*grade"),
        ("p.tsv", b"task\tquery_id\tdoc_id\tgrade\nt\tq\td\t--1\n", r"p.tsv:2: .*int.*grade"),
        ("p.tsv", b"task\tquery_id\tdoc_id\tgrade\nt\tq\td\t" + b"1" * 5000 + b"\n", r"p.tsv:2: .*grade"),
        ("p.tsv", b"task\tquery_id\tdoc_id\tgrade\nt\tq\n", "expected at least 4 columns, got 2"),
        ("p.tsv", b"task\tquery_id\tdoc_id\tgrade\nt\tq\t\xff\t1\n", "p.tsv:2: .*utf-8"),
        (
            "p.tsv",
            b"task\tquery_id\tdoc_id\tgrade\nt\tq\td\t0\nt\tq\td\t1\n",
            "two grades of 'd' for query 'q' of t: 0 and 1",
        ),
        ("p.jsonl", b'{"task": "t"}\n', r"p.jsonl:1: not a pool entry"),
        ("p.jsonl", b"\n{broken\n", r"p.jsonl:2"),
        ("p.jsonl", b'{"task": "t", "query_id": "q", "doc_id": "d", "grade": 1.5}\n', "not a pool entry"),
    ],
)
def test_broken_labels_are_named(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_labels(tmp_path / name)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_labels(tmp_path / "none.tsv")
