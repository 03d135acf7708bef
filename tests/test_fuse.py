"""Fusion by ranks, by scores, and with weights by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import r2med
from r2med.core import DataError, Document, Documents, IdTable, Qrels, Query, Run, Task, UsageError
from r2med.fuse import (
    CombMnz,
    CombSum,
    Fusion,
    Normalisation,
    ReciprocalRank,
    Tuned,
    Weighted,
    fold_of,
    fusions,
    merge,
    normalised,
    weight_grid,
)

IDS = IdTable(f"d{i}" for i in range(15))
ranking = st.lists(st.sampled_from(list(IDS)), unique=True, max_size=12)
scored = st.dictionaries(st.sampled_from(list(IDS)[:12]), st.floats(-100, 100, width=32), max_size=10)


def task_of(queries: int, judgments: Sequence[tuple[str, str, int]] = (("q0", "d0", 1),)) -> Task:
    return Task(
        "made",
        tuple(Query(f"q{i}", "text") for i in range(queries)),
        Documents.of(Document(i, "text") for i in IDS),
        Qrels.from_judgments(judgments),
    )


def fused(fusion: Fusion, runs: Sequence[Run], depth: int = 1000) -> Run:
    return fusion.fuse(runs, task_of(len(runs[0])), depth, "fused")


def by_rank(lists: list[list[str]]) -> Run:
    return Run.from_rankings(
        {f"q{i}": [(d, -float(r)) for r, d in enumerate(ids)] for i, ids in enumerate(lists)}, doc_ids=IDS
    )


def as_run(lists: list[dict[str, float]], name: str = "run") -> Run:
    return Run.from_rankings({f"q{i}": list(hits.items()) for i, hits in enumerate(lists)}, doc_ids=IDS, name=name)


@given(st.lists(st.tuples(ranking, ranking, ranking), min_size=1, max_size=4), st.integers(0, 100), st.integers(1, 20))
def test_reciprocal_ranks_equal_the_definition(
    cases: list[tuple[list[str], list[str], list[str]]], k: int, depth: int
) -> None:
    runs = [by_rank([case[i] for case in cases]) for i in range(3)]
    made = fused(ReciprocalRank(k), runs, depth)
    for row, lists in enumerate(cases):
        scores: dict[str, float] = {}
        for ids in lists:
            for rank, doc in enumerate(ids, start=1):
                scores[doc] = scores.get(doc, 0.0) + 1 / (k + rank)
        expected = Run.from_rankings({"q": list(scores.items())}, doc_ids=IDS).of("q")[:depth]
        got = made.of(f"q{row}")
        assert [h.doc_id for h in got] == [h.doc_id for h in expected]
        assert [h.score for h in got] == pytest.approx([h.score for h in expected], rel=1e-6)


def scaled(hits: dict[str, float], how: str) -> dict[str, float]:
    """The definitions, one number at a time."""
    values = {d: float(np.float32(s)) for d, s in hits.items()}
    if not values:
        return {}
    low, high = min(values.values()), max(values.values())
    if how == "rank":
        order = sorted(values, key=lambda d: (values[d], d), reverse=True)
        return {d: 1 - i / len(order) for i, d in enumerate(order)}
    spread = high - low if how == "min-max" else float(np.std(list(values.values())))
    return {d: (s - low) / spread if spread > 0 else 1.0 for d, s in values.items()}


@pytest.mark.parametrize("norm", ["min-max", "z-score", "rank"])
@pytest.mark.parametrize("method", ["weighted", "combsum", "combmnz"])
@given(st.lists(st.tuples(scored, scored), min_size=1, max_size=3), st.integers(1, 12))
def test_sums_of_scores_equal_the_definition(
    method: str, norm: Normalisation, cases: list[tuple[dict[str, float], dict[str, float]]], depth: int
) -> None:
    runs = [as_run([case[i] for case in cases]) for i in range(2)]
    weights = (0.3, 0.7) if method == "weighted" else (1.0, 1.0)
    fusions_of = {"weighted": Weighted((0.3, 0.7), norm), "combsum": CombSum(norm), "combmnz": CombMnz(norm)}
    made = fused(fusions_of[method], runs, depth)
    for row, case in enumerate(cases):
        sums: dict[str, float] = {}
        for hits, weight in zip(case, weights, strict=True):
            for doc, share in scaled(hits, norm).items():
                sums[doc] = sums.get(doc, 0.0) + weight * share
        if method == "combmnz":
            sums = {d: s * sum(d in hits for hits in case) for d, s in sums.items()}
        got = {h.doc_id: h.score for h in made.of(f"q{row}")}
        assert len(got) == min(depth, len(sums))
        assert got == pytest.approx({d: sums[d] for d in got}, abs=1e-5)
        again = Run.from_rankings({"q": list(got.items())}, doc_ids=IDS)
        assert [h.doc_id for h in made.row(row)] == [h.doc_id for h in again.row(0)]
        left_out = [s for d, s in sums.items() if d not in got]
        if left_out:
            assert max(left_out) <= min(got.values()) + 1e-5


@given(
    st.lists(st.lists(ranking, min_size=2, max_size=2), min_size=2, max_size=3), st.integers(0, 60), st.integers(1, 20)
)
def test_ties_by_rank_equal_nanor2meds_definition(lists: list[list[list[str]]], k: int, depth: int) -> None:
    """Sums in double precision; equal ones by the best rank, then by id ascending."""
    runs = [
        Run.from_rankings(
            {f"q{q}": [(d, float(-i)) for i, d in enumerate(docs)] for q, docs in enumerate(of_run)}, doc_ids=IDS
        )
        for of_run in lists
    ]
    fused = ReciprocalRank(k, "rank").fuse(runs, task_of(2), depth, "fused")
    for row in range(2):
        sums, best = dict[str, float](), dict[str, int]()
        for of_run in lists:
            for rank, doc in enumerate(of_run[row], 1):
                sums[doc] = sums.get(doc, 0.0) + 1.0 / (k + rank)
                best[doc] = min(best.get(doc, rank), rank)
        expected = sorted(sums, key=lambda d: (-sums[d], best[d], d))[:depth]
        hits = list(fused.row(row))
        assert [hit.doc_id for hit in hits] == expected
        assert [hit.score for hit in hits] == pytest.approx([sums[d] for d in expected], rel=1e-5)


def test_a_list_of_equal_scores_says_only_that_they_were_found() -> None:
    run = as_run([{"d1": 2.0, "d2": 2.0}])
    for how in ("min-max", "z-score"):
        assert normalised(run, how).tolist() == [[1.0, 1.0]]


def test_equal_weights_are_the_default() -> None:
    runs = [as_run([{"d1": 2.0, "d2": 1.0}]), as_run([{"d2": 2.0, "d3": 1.0}])]
    assert list(fused(Weighted(), runs)) == list(fused(Weighted((0.5, 0.5)), runs))


def test_refusals() -> None:
    run = as_run([{"d1": 1.0}])
    for wrong in ([0.5], [0.5, -0.1], [0.0, 0.0], [float("nan"), 1.0]):
        with pytest.raises(UsageError):
            Weighted(tuple(wrong)).check(2)
        with pytest.raises(UsageError):
            fused(Weighted(tuple(wrong)), [run, run])
    with pytest.raises(UsageError, match="no parameter 'w'"):
        fusions.parse("combsum:w=0.5/0.5")
    with pytest.raises(UsageError, match="unknown fusion 'magic'"):
        fusions.parse("magic")
    with pytest.raises(UsageError, match="norm of combsum must be min-max, z-score or rank, not 'magic'"):
        fusions.parse("combsum:norm=magic")
    with pytest.raises(UsageError, match="unknown normalisation"):
        normalised(run, "magic")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least 0"):
        fusions.parse("rrf:k=-1")
    with pytest.raises(UsageError, match="at least two retrievers"):
        ReciprocalRank().check(1)
    with pytest.raises(UsageError, match="nothing"):
        merge([], [], depth=5, name="x")
    with pytest.raises(UsageError, match="depth"):
        fused(CombSum(), [run, run], 0)
    endless = as_run([{"d1": float("inf"), "d2": 1.0}])
    with pytest.raises(DataError, match="not finite"):
        fused(CombSum(), [endless, endless])
    assert [h.doc_id for h in fused(CombSum("rank"), [endless, endless]).row(0)] == ["d1", "d2"]
    other = Run.from_rankings({"q0": [("z", 1.0)]})
    with pytest.raises(DataError, match="same queries and documents"):
        fused(ReciprocalRank(), [run, other])


def test_names_and_descriptions_hold_every_parameter() -> None:
    texts = [
        "rrf", "rrf:k=0", "weighted:w=0.7/0.3", "weighted:w=0.3/0.7", "weighted:norm=rank,w=0.7/0.3", "combsum",
        "combsum:norm=rank", "combmnz", "tuned", "tuned:folds=3", "tuned:seed=1", "tuned:steps=3",
    ]  # fmt: skip
    made = [fusions.make(fusions.parse(text)) for text in texts]
    assert [str(fusion.spec) for fusion in made] == texts
    assert len({r2med.core.fingerprint("f", fusion.describe()) for fusion in made}) == len(texts)


def test_fusing_as_a_function() -> None:
    task = task_of(1)
    one, two = as_run([{"d1": 2.0, "d2": 1.0}], "bm25"), as_run([{"d2": 2.0, "d3": 1.0}], "dense")
    made = r2med.fuse([one, two], task)
    assert made.name == "bm25+dense.rrf"
    assert list(made) == list(fused(ReciprocalRank(), [one, two]))
    weighted = r2med.fuse([one, two], task, "weighted:w=1/0", depth=2)
    assert [h.doc_id for h in weighted.row(0)] == ["d1", "d3"]
    with pytest.raises(UsageError, match="2 rankings need 2 weights, not 3"):
        r2med.fuse([one, two], task, "weighted:w=1/2/3")


@pytest.mark.parametrize("weights", ["1e-50/1e-50", "1e40/1", "0/1e-31"])
def test_weights_whose_sums_float32_cannot_tell_apart_are_refused(weights: str) -> None:
    """All sums were 0, or infinite, and documents were ordered by their ids."""
    runs = [as_run([{"d1": 2.0, "d2": 1.0, "d3": 0.0}], name) for name in ("bm25", "dense")]
    with pytest.raises(UsageError, match="the largest weight must lie between 1e-30 and 1e\\+30"):
        r2med.fuse(runs, task_of(1), f"weighted:w={weights}")
    made = r2med.fuse(runs, task_of(1), "weighted:w=1e-30/1e-40")
    assert [h.doc_id for h in made.row(0)] == ["d1", "d2", "d3"]


def test_the_grid_is_even_first() -> None:
    assert weight_grid(2, 4)[0] == (0.5, 0.5)
    assert len(weight_grid(3, 10)) == 66
    assert all(sum(w) == pytest.approx(1) for w in weight_grid(3, 10))


def test_folds_depend_on_ids_alone() -> None:
    ids = [f"q{i}" for i in range(23)]
    dealt = dict(zip(ids, fold_of(ids, 5, 0).tolist(), strict=True))
    shuffled = ids[::-1]
    assert dict(zip(shuffled, fold_of(shuffled, 5, 0).tolist(), strict=True)) == dealt
    assert sorted(np.bincount(list(dealt.values()))) == [4, 4, 5, 5, 5]


def good_and_bad(queries: int) -> tuple[Run, Run]:
    """The first run puts the wanted document d3 on top, the second one last."""
    good = as_run([{"d3": 9.0, "d1": 5.0, "d2": 1.0} for _ in range(queries)], "good")
    bad = as_run([{"d2": 9.0, "d1": 8.5, "d3": 1.0} for _ in range(queries)], "bad")
    return good, bad


def test_weights_are_never_chosen_on_what_they_judge() -> None:
    runs = good_and_bad(20)
    task = task_of(20, [(f"q{i}", "d3", 1) for i in range(20)])
    made = Tuned(folds=4).fuse(runs, task, 1000, "tuned")
    assert all(hits[0].doc_id == "d3" for _, hits in made)
    noted = made.notes["fusion"]
    assert isinstance(noted, dict)
    folds = noted["folds"]
    assert sorted(q for fold in folds for q in fold["queries"]) == sorted(runs[0].query_ids)
    assert all(fold["chosen_on"] == 15 and fold["score"] == 1.0 for fold in folds)
    assert all(fold["weights"][0] > fold["weights"][1] for fold in folds)
    # Judgments that would reward the bad run on the queries of the first fold do not change its weights.
    inside = set(folds[0]["queries"])
    turned = Qrels.from_judgments([(f"q{i}", "d2" if f"q{i}" in inside else "d3", 1) for i in range(20)])
    other = Tuned(folds=4).fuse(runs, replace(task, qrels=turned), 1000, "tuned").notes["fusion"]
    assert other["folds"][0]["weights"] == folds[0]["weights"]  # type: ignore[index]
    assert other["folds"][1]["score"] < 1  # type: ignore[index]


def test_tuning_refusals() -> None:
    runs, task = good_and_bad(3), task_of(3, [(f"q{i}", "d3", 1) for i in range(3)])
    with pytest.raises(UsageError, match="at least two retrievers"):
        Tuned().check(1)
    with pytest.raises(UsageError, match="cannot make 5 folds"):
        Tuned().fuse(runs, task, 1000, "x")
    with pytest.raises(UsageError, match="judged"):
        Tuned(folds=2).fuse(runs, task_of(3, [("elsewhere", "d3", 1)]), 1000, "x")
    with pytest.raises(UsageError, match="folds of tuned must be a number of at least 2, not '1'"):
        fusions.parse("tuned:folds=1")


@pytest.mark.parametrize("name", ["rrf", "rrf:k=3,ties=rank", "weighted:w=0.3/0.7", "combsum:norm=z-score", "combmnz"])
def test_an_explanation_adds_up_to_the_fused_score(name: str) -> None:
    runs = [as_run([{"d1": 3.0, "d2": 2.0, "d3": 1.0}], "one"), as_run([{"d3": 9.0, "d4": 8.0}], "two")]
    fusion = fusions.make(fusions.parse(name))
    fused = fusion.fuse(runs, task_of(1), 10, "fused")
    documents = fused.docs[0][: fused.lengths()[0]].tolist()
    for document, score, found in zip(documents, fused.scores[0], fusion.explain(runs, documents), strict=False):
        assert sum(share.adds for share in found.shares) == pytest.approx(score, rel=1e-5, abs=1e-6)
        places = {share.part: dict(share.factors)["rank"] for share in found.shares}
        assert places == {
            run.name: list(run.docs[0]).index(document) + 1 for run in runs if document in run.docs[0].tolist()
        }


def test_what_is_no_sum_says_so() -> None:
    (found,) = Tuned().explain(good_and_bad(3), [0])
    assert found.shares == ()
    assert "tuned" in found.note
