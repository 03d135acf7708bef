"""Measures equal trec_eval's and ir_measures', to the last bits: parameters, ties, grades, missing queries."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError, Qrels, Run, UnknownName, UsageError
from r2med.core.options import Parameter
from r2med.integrations import from_ir_measures, qrels_from_dict, run_from_dict, to_dict, to_ir_measures
from r2med.scoring import CUTOFFS, MAIN, STANDARD, USUAL, Measure, parse_measures, score
from r2med.scoring.measures import Definition, definitions

Judgments = dict[str, dict[str, int]]
Rankings = dict[str, dict[str, float]]

documents = st.sampled_from([f"d{i}" for i in range(12)] + ["é", "漢", "D", "d10x"])
judged = st.dictionaries(documents, st.integers(-1, 4), min_size=1, max_size=10)
# Few distinct scores make ties; 0.1 + 1e-9 ties with 0.1 in single precision only.
ranked = st.dictionaries(documents, st.sampled_from([0.1, 0.1 + 1e-9, 0.5, 2.0, -3.0]), max_size=14)
queries = st.sampled_from(["1", "2", "10", "q"])


def values_of(parameter: Parameter) -> list[Any]:
    """Values of a declared parameter: all of its choices, or some numbers."""
    kind = get_args(parameter.type)[0]
    return list(get_args(kind)) or [1, 2, 3, 7]


def every_measure(cutoffs: tuple[int, ...] = (1, 3, 10)) -> Iterator[Measure]:
    """Every measure there is with every combination of its parameters."""
    for definition in definitions():
        names = list(definition.parameters)
        for values in product(*(values_of(p) for p in definition.parameters.values())):
            for cutoff in {"required": cutoffs, "never": (None,), "optional": (None, *cutoffs)}[definition.cutoff]:
                yield Measure(definition.key, cutoff, tuple(zip(names, values, strict=True)))


@st.composite
def measures(draw: st.DrawFn) -> Measure:
    """Any measure that the registry offers."""
    definition = draw(st.sampled_from(definitions()))
    chosen = {p.name: draw(st.sampled_from([*values_of(p), p.default])) for p in definition.parameters.values()}
    for name, value in chosen.items():
        if isinstance(value, int):
            chosen[name] = draw(st.integers(1, 10**6))
    whole, any_rank = st.none(), st.integers(1, 10**6)
    cutoff = draw({"required": any_rank, "never": whole, "optional": whole | any_rank}[definition.cutoff])
    return Measure(definition.key, cutoff, tuple(chosen.items()))


@given(measures(), measures())
def test_text_and_key_read_back_and_belong_to_one_measure(one: Measure, other: Measure) -> None:
    assert Measure.parse(str(one)) == Measure.parse(one.key) == Measure.parse(one) == one
    assert (one == other) == (str(one) == str(other)) == (one.key == other.key)
    assert from_ir_measures(to_ir_measures(one)) == one
    assert one.key.isidentifier()


def test_every_combination_has_a_text_of_its_own() -> None:
    found = list(every_measure())
    assert len(found) == len({str(m) for m in found}) == len({m.key for m in found}) == len(set(found)) > 60


@pytest.mark.parametrize(
    ("text", "shown", "key"),
    [
        ("nDCG@10", "nDCG@10", "ndcg_at_10"),
        ("ndcg_at_10", "nDCG@10", "ndcg_at_10"),
        ("ndcg_cut_5", "nDCG@5", "ndcg_at_5"),
        ("ndcg_cut@5", "nDCG@5", "ndcg_at_5"),
        ("MAP@100", "AP@100", "map_at_100"),
        ("r@100", "R@100", "recall_at_100"),
        ("Recall@7", "R@7", "recall_at_7"),
        ("P@5", "P@5", "precision_at_5"),
        ("MRR@10", "RR@10", "mrr_at_10"),
        ("recip_rank", "RR", "mrr"),
        ("success_1", "hit@1", "hit_at_1"),
        ("Success@1", "hit@1", "hit_at_1"),
        ("nDCG(dcg=exp)@10", "nDCG(dcg=exp)@10", "ndcg_dcg_exp_at_10"),
        ("nDCG(dcg='exp-log2')@10", "nDCG(dcg=exp)@10", "ndcg_dcg_exp_at_10"),
        (' NDCG( dcg = "exp-log2" ) @ 10 ', "nDCG(dcg=exp)@10", "ndcg_dcg_exp_at_10"),
        ("nDCG(dcg='log2')@10", "nDCG@10", "ndcg_at_10"),
        ("nDCG()@10", "nDCG@10", "ndcg_at_10"),
        ("R(rel=2)@100", "R(rel=2)@100", "recall_rel_2_at_100"),
        ("AP(rel=2)", "AP(rel=2)", "map_rel_2"),
        ("map_rel_2", "AP(rel=2)", "map_rel_2"),
        ("P(rel=1)@5", "P@5", "precision_at_5"),
        ("Judged@10", "judged@10", "judged_at_10"),
        ("bpref", "bpref", "bpref"),
        ("Bpref(rel=2)", "bpref(rel=2)", "bpref_rel_2"),
    ],
)
def test_measures_parse_and_print(text: str, shown: str, key: str) -> None:
    measure = Measure.parse(text)
    assert (str(measure), measure.key) == (shown, key)
    assert Measure.parse(shown) == Measure.parse(key) == measure


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nDGC@10", "unknown measure 'nDGC@10'; did you mean nDCG@10"),
        ("nDGC(dcg=exp)@10", "did you mean nDCG@10"),
        ("ndgc_at_10", "unknown measure 'ndgc_at_10'"),
        ("", "unknown measure ''"),
        ("nDCG@10@5", "unknown measure"),
        ("nDCG@" + "9" * 5000, "unknown measure"),
        ("ndcg_at_10@5", "unknown measure"),
        ("nDCG@x", "unknown measure"),
        ("P", "P needs a cut-off of 1 or more, as in P@10"),
        ("nDCG@0", "nDCG needs a cut-off"),
        ("bpref@10", "bpref takes no cut-off"),
        ("judged", "judged needs a cut-off"),
        ("nDCG(dgc=exp)@10", "nDCG has no parameter 'dgc'; did you mean dcg?"),
        ("R(dcg=exp)@10", "R has no parameter 'dcg'; it has rel"),
        ("ndcg_rel_2_at_10", "nDCG has no parameter 'rel'"),
        ("nDCG(dcg=ln)@10", "dcg of nDCG must be log2 or exp, not 'ln'"),
        ("R(rel=0)@10", "rel of R must be a number of at least 1, not '0'"),
        ("R(rel=two)@10", "rel of R must be a number of at least 1"),
        ("R(rel)@10", "cannot read 'rel' in 'R"),
        ("R(rel=2,rel=3)@10", "cannot read 'rel=3'"),
        ("R(rel='2)@10", "cannot read"),
    ],
)
def test_measures_that_do_not_exist(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("(", r"\(").replace("?", r"\?")):
        Measure.parse(text)


def test_measures_from_python_are_checked_too() -> None:
    assert Measure("nDCG", 10, (("dcg", "log2"),)) == Measure("ndcg", 10) == MAIN
    assert str(Measure("recall", 5, (("rel", 3),))) == "R(rel=3)@5"
    with pytest.raises(UnknownName, match="ndgc@10"):
        Measure("ndgc", 10)
    with pytest.raises(UsageError, match="no parameter"):
        Measure("ndcg", 10, (("rel", 2),))
    with pytest.raises(UsageError, match="cut-off"):
        Measure("ndcg", -1)
    assert parse_measures(["nDCG@10", "ndcg_at_10", MAIN]) == (MAIN,)


def test_standard_measures_are_distinct() -> None:
    assert len({m.key for m in STANDARD}) == len(STANDARD) == 6 * len(CUTOFFS)
    assert np.all(np.diff(CUTOFFS) > 0)
    assert set(USUAL) < set(STANDARD)
    assert [str(m) for m in USUAL] == ["nDCG@10", "AP@10", "R@10", "R@100", "P@10", "RR@10", "hit@10"]


def trec_eval(judgments: Judgments, rankings: Rankings, chosen: list[Measure]) -> dict[tuple[Measure, str], float]:
    """What ir_measures' trec_eval says.

    It knows neither exponential gains nor a cut-off of RR: the gains are mapped, and RR is cut where 1/RR is beyond.
    nDCG must come first: behind a measure with another `rel`, ir_measures lets trec_eval compute it at that level.
    """
    import ir_measures

    wanted = {}
    for measure in chosen:
        theirs = to_ir_measures(measure)
        if measure.family == "ndcg" and measure.parameters:
            theirs = ir_measures.nDCG(gains={g: 2**g - 1 for g in range(1, 5)}, **_cutoff(measure))
        if measure.family == "mrr" and measure.cutoff is not None:
            theirs = to_ir_measures(Measure("mrr", None, measure.parameters))
        wanted[measure] = theirs
    asked = sorted(dict.fromkeys(wanted.values()), key=lambda measure: measure.NAME != "nDCG")
    counted = [measure for measure in asked if measure.NAME == "Judged"]
    answered = {q: r for q, r in rankings.items() if r}
    found = list(ir_measures.pytrec_eval.iter_calc([m for m in asked if m not in counted], judgments, answered))
    # Its own counter of judged documents takes tied ones in another order than trec_eval.
    ordered = run_from_dict(answered) if answered else ()
    untied = {q: {hit.doc_id: -float(i) for i, hit in enumerate(hits)} for q, hits in ordered}
    found += ir_measures.judged.iter_calc(counted, judgments, untied) if counted else []
    values = {(metric.measure, metric.query_id): metric.value for metric in found}
    values |= {(m, q): 0.0 for m in counted for q in judgments if (m, q) not in values}
    return {
        (measure, query_id): _cut(values[theirs, query_id], measure)
        for measure, theirs in wanted.items()
        for query_id in judgments
    }


def _cutoff(measure: Measure) -> dict[str, int]:
    return {} if measure.cutoff is None else {"cutoff": measure.cutoff}


def _cut(value: float, measure: Measure) -> float:
    beyond = measure.family == "mrr" and measure.cutoff is not None and value < 1 / measure.cutoff - 1e-9
    return 0.0 if beyond else value


def compare(judgments: Judgments, rankings: Rankings, chosen: list[Measure]) -> None:
    ours = score(run_from_dict(rankings), qrels_from_dict(judgments), chosen)
    theirs = trec_eval(judgments, rankings, chosen)
    for measure in chosen:
        expected = [theirs[measure, query_id] for query_id in ours.query_ids]
        assert ours.per_query[measure].tolist() == pytest.approx(expected, abs=1e-12), str(measure)


EVERY = [*every_measure(), *(m for m in every_measure((5, 1000)) if m.cutoff is not None), *STANDARD]


@given(st.dictionaries(queries, judged, min_size=1), st.dictionaries(queries, ranked, min_size=1))
def test_equal_to_ir_measures(judgments: Judgments, rankings: Rankings) -> None:
    chosen = list(dict.fromkeys(EVERY))
    if any(max(grades.values()) < 0 for grades in judgments.values()):
        # On such a query trec_eval computes nDCG without a cut-off for ever.
        chosen = [m for m in chosen if (m.family, m.cutoff) != ("ndcg", None)]
    compare(judgments, rankings, chosen)


def test_queries_with_negative_grades_only_score_zero() -> None:
    run = Run.from_rankings({"q": [("a", 1.0)]})
    found = score(run, Qrels.from_judgments([("q", "a", -1)]), (m for m in every_measure() if m.family != "judged"))
    assert set(found.means.values()) == {0.0}


@pytest.mark.parametrize("collection", ["liveqa-med", "scifact", "bioasq-snippets"])
def test_real_collections(collection: str, shared_data: Path) -> None:
    """LiveQA-Med has four grades, BioASQ many positives a query."""
    from r2med.retrieve import BM25
    from r2med.tasks import load

    task = load(str(shared_data / collection))
    run = BM25().retrieve(task, depth=200)
    compare(to_dict(task.qrels), to_dict(run), list(every_measure((1, 10, 100))))


@pytest.mark.parametrize("task", ["Biology", "IIYi-Clinical"])
def test_published_runs(task: str, shared_runs: Path) -> None:
    from r2med.tasks import read_qrels, read_run

    run = read_run(shared_runs / f"e5-mistral.{task}.run.gz")
    qrels = read_qrels(shared_runs / f"{task}.qrels")
    compare(to_dict(qrels), to_dict(run), [*STANDARD, Measure("map"), Measure("mrr")])
    published = {"Biology": 0.181, "IIYi-Clinical": 0.214}
    assert score(run, qrels).mean("nDCG@10") == pytest.approx(published[task], abs=5e-4)


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval is a Perl program")
def test_the_providers_that_ir_measures_chooses_itself() -> None:
    """gdeval: nDCG with exponential gains, five digits. MS MARCO: RR with a cut-off, and its own order of ties."""
    import ir_measures

    rng = np.random.default_rng(5)
    judgments = {str(q): {f"d{d}": int(rng.integers(0, 5)) for d in range(0, 40, 3)} for q in range(20)}
    rankings = {str(q): {f"d{d}": float(d * 7919 % 101 + q) for d in range(40)} for q in range(1, 20)}
    chosen = parse_measures(["nDCG(dcg=exp)@10", "nDCG(dcg=exp)@3", "RR@10", "RR(rel=3)@10"])
    ours = score(run_from_dict(rankings), qrels_from_dict(judgments), chosen)
    theirs: dict[str, float] = {}
    for metric in ir_measures.iter_calc([to_ir_measures(m) for m in chosen], judgments, rankings):
        measure = Measure.parse(str(metric.measure))
        value = ours.per_query[measure][ours.query_ids.position(metric.query_id)]
        assert value == pytest.approx(metric.value, abs=6e-6), f"{measure} of query {metric.query_id}"
        theirs[str(measure)] = theirs.get(str(measure), 0.0) + metric.value
    assert len(theirs) == len(chosen)
    assert min(theirs.values()) > 1.0


def test_exponential_gains_by_hand() -> None:
    qrels = Qrels.from_judgments([("q", "a", 3), ("q", "b", 1)])
    run = Run.from_rankings({"q": [("b", 2.0), ("a", 1.0)]})
    expected = (1 + 7 / math.log2(3)) / (7 + 1 / math.log2(3))
    assert score(run, qrels, ["nDCG(dcg=exp)@10"]).mean("nDCG(dcg='exp-log2')@10") == pytest.approx(expected)


def test_a_grade_that_no_float_can_hold_is_refused() -> None:
    qrels = Qrels.from_judgments([("q", "a", 2000)])
    run = Run.from_rankings({"q": [("a", 1.0)]})
    assert score(run, qrels, ["nDCG@10"]).mean() == 1.0
    with pytest.raises(DataError, match="grade 2000 is too high"):
        score(run, qrels, ["nDCG(dcg=exp)@10"])


def test_only_documents_of_the_asked_grade_are_relevant() -> None:
    qrels = Qrels.from_judgments([("q", "a", 1), ("q", "b", 2), ("q", "c", 2), ("r", "a", 1)])
    run = Run.from_rankings({"q": [("a", 3.0), ("b", 2.0)], "r": [("a", 1.0)]})
    found = score(run, qrels, ["R(rel=2)@10", "P(rel=2)@2", "AP(rel=2)", "RR(rel=2)", "hit(rel=2)@1", "R(rel=9)@10"])
    assert [values.tolist() for values in found.per_query.values()] == [
        [0.5, 0.0], [0.5, 0.0], [0.25, 0.0], [0.5, 0.0], [0.0, 0.0], [0.0, 0.0],
    ]  # fmt: skip


def test_the_definitions_say_what_help_shows() -> None:
    for definition in definitions():
        assert isinstance(definition, Definition)
        assert definition.summary
        assert all(p.help for p in definition.parameters.values())
        cutoff = None if definition.cutoff == "never" else 5
        assert Measure.parse(definition.shape.replace("@k", "@5")) == Measure(definition.key, cutoff)
