from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import Qrels, Run, UsageError
from r2med.scoring import Measure, evaluate_run
from r2med.scoring.holes import hole_report, hole_shares, score_bounds, unjudged, with_relevant

MEASURES = [Measure("ndcg", 10), Measure("ndcg", 3), Measure("map", 5), Measure("precision", 3), Measure("mrr", 10)]
documents = [f"d{i}" for i in range(6)]
judged = st.dictionaries(st.sampled_from([*documents, "elsewhere"]), st.integers(0, 1), min_size=1, max_size=5)
ranked = st.lists(st.sampled_from(documents), min_size=1, unique=True)


def run_of(**rankings: list[str]) -> Run:
    return Run.from_rankings({q: [(d, float(len(of) - i)) for i, d in enumerate(of)] for q, of in rankings.items()})


def test_holes_are_what_nobody_judged() -> None:
    qrels = Qrels.from_judgments([("a", "x", 1), ("a", "y", 0), ("b", "x", 1), ("c", "z", 1)])
    run = run_of(a=["x", "y", "n1", "n2"], b=["y", "x"], extra=["x"])
    holes = unjudged(run, qrels, 10)
    found = zip(holes.row.tolist(), holes.rank.tolist(), holes.doc.tolist(), strict=True)
    assert [(qrels.query_ids[row], rank, holes.doc_ids[doc]) for row, rank, doc in found] == [
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
    more = with_relevant(qrels, np.array([1, 0]), ["n", "y"], 3)
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
            values.append(evaluate_run(run, judgments, [measure]).mean(measure))
        low, as_judged, high = (float(v[0]) for v in score_bounds(run, qrels, measure))
        assert low == pytest.approx(min(values))
        assert high == pytest.approx(max(values))
        assert low <= as_judged <= high


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
    assert (sure.low, sure.high) == (1.0, 1.0)
    assert unsure.low == 0.0
    assert unsure.high == pytest.approx(1 / (1 + 1 / np.log2(3)))
    assert (sure.best_rank, sure.worst_rank) == (1, 1)
    assert (unsure.best_rank, unsure.worst_rank) == (2, 3)
    assert (hopeless.best_rank, hopeless.worst_rank) == (2, 3)
    assert unsure.if_relevant == pytest.approx(sure.if_relevant)
    assert unsure.rank_if_relevant == 1


def test_a_published_run(shared_runs: Path) -> None:
    from r2med.tasks import read_qrels, read_run

    run = read_run(shared_runs / "e5-mistral.IIYi-Clinical.run.gz")
    qrels = read_qrels(shared_runs / "IIYi-Clinical.qrels")
    (report,) = hole_report({"e5": run}, qrels)
    assert report.judged == pytest.approx(0.2137, abs=5e-5)
    assert report.low <= report.judged < report.high <= 1.0
    found = evaluate_run(run, qrels, [Measure("precision", 10)]).mean("P@10")
    assert report.holes == pytest.approx(1.0 - found)  # this task judges positives only
