"""The table of examples on the page of definitions is what the real packages give."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest

from r2med.core import Qrels, Run
from r2med.scoring import score
from r2med.scoring.holes import condensed

from .pages import DOCS

Judgments = dict[str, dict[str, int]]
Rankings = dict[str, dict[str, float]]


class Example(NamedTuple):
    """One small case, and what the packages call the measure; empty where one does not have it."""

    name: str
    judgments: Judgments
    rankings: Rankings
    measure: str
    trec_eval: str = ""
    ir_measures: str = ""
    ranx: str = ""
    mteb: str = ""
    condensed: bool = False


GRADED: Judgments = {"1": {"a": 2, "b": 1, "c": 1}}
RANKED: Rankings = {"1": {"x": 3.0, "b": 2.0, "a": 1.0}}
TIED: Rankings = {"1": {"a": 1.0, "b": 1.0}}
ZEROS: Judgments = {"1": {"a": 1, "b": 1, "n": 0}}
MIXED: Rankings = {"1": {"n": 4.0, "a": 3.0, "x": 2.0, "b": 1.0}}
HALF: Judgments = {"1": {"a": 1}, "2": {"b": 1}}
EXAMPLES = [
    Example("graded", GRADED, RANKED, "nDCG@3", "ndcg_cut.3", "nDCG@3", "ndcg@3", "ndcg_at_3"),
    Example("graded", GRADED, RANKED, "nDCG(dcg=exp)@3", "", "nDCG(dcg='exp-log2')@3", "ndcg_burges@3"),
    Example("graded", GRADED, RANKED, "AP@2", "map_cut.2", "AP@2", "map@2", "map_at_2"),
    Example("graded", GRADED, RANKED, "AP", "map", "AP", "map"),
    Example("graded", GRADED, RANKED, "RR(rel=2)", "", "RR(rel=2)", "mrr-l2"),
    Example("graded", GRADED, RANKED, "R@2", "recall.2", "R@2", "recall@2", "recall_at_2"),
    Example("graded", GRADED, RANKED, "P@5", "P.5", "P@5", "precision@5", "precision_at_5"),
    Example("graded", GRADED, RANKED, "hit@1", "success.1", "Success@1", "hit_rate@1"),
    Example("graded", GRADED, RANKED, "judged@10", "", "Judged@10"),
    Example("tied", {"1": {"a": 1}}, TIED, "RR", "recip_rank", "RR", "mrr"),
    Example("tied", {"1": {"a": 1}}, TIED, "RR@10", "", "RR@10", "mrr@10", "mrr_at_10"),
    Example("tied", {"1": {"a": 1}}, TIED, "nDCG@10", "ndcg_cut.10", "nDCG@10", "ndcg@10", "ndcg_at_10"),
    Example("missing", HALF, {"1": {"a": 1.0}}, "nDCG@10", "ndcg_cut.10", "nDCG@10", "ndcg@10", "ndcg_at_10"),
    Example("zeros", ZEROS, MIXED, "bpref", "bpref", "Bpref", "bpref"),
    Example("condensed", ZEROS, MIXED, "AP", "map", "AP(judged_only=True)", "", "", True),
]


def ours(example: Example) -> float:
    run = Run.from_rankings({q: list(ranked.items()) for q, ranked in example.rankings.items()})
    qrels = Qrels.from_judgments((q, d, grade) for q, of in example.judgments.items() for d, grade in of.items())
    return score(condensed(run, qrels) if example.condensed else run, qrels, [example.measure]).mean(example.measure)


def of_trec_eval(example: Example) -> float:
    """The mean over the queries that the run has, which is what trec_eval prints without -c."""
    import pytrec_eval

    evaluator = pytrec_eval.RelevanceEvaluator(
        example.judgments, {example.trec_eval}, judged_docs_only_flag=example.condensed
    )
    found = evaluator.evaluate(example.rankings)
    values = [of_query[example.trec_eval.replace(".", "_")] for of_query in found.values()]
    return float(sum(values) / len(values))


def of_ir_measures(example: Example) -> float:
    import ir_measures

    measure = ir_measures.parse_measure(example.ir_measures)
    return float(ir_measures.calc_aggregate([measure], example.judgments, example.rankings)[measure])


def of_ranx(example: Example) -> float:
    import ranx

    found = ranx.evaluate(ranx.Qrels(example.judgments), ranx.Run(example.rankings), example.ranx, make_comparable=True)
    return float(found)


def of_mteb(example: Example) -> float:
    from mteb._evaluators.retrieval_metrics import calculate_retrieval_scores

    found = calculate_retrieval_scores(example.rankings, example.judgments, [1, 2, 3, 5, 10])
    kinds = {"ndcg": found.ndcg, "map": found.map, "recall": found.recall, "precision": found.precision}
    name, _, cutoff = example.mteb.partition("_at_")
    values = (kinds | {"mrr": found.mrr})[name]
    return float(next(value for key, value in values.items() if key.endswith(f"@{cutoff}")))


def cell(value: float) -> str:
    return "not a number" if math.isnan(value) else f"{value:.4f}"


def line(example: Example) -> str:
    """The row of the table on the page."""
    peers = (
        (example.trec_eval, of_trec_eval),
        (example.ir_measures, of_ir_measures),
        (example.ranx, of_ranx),
        (example.mteb, of_mteb),
    )
    cells = [cell(compute(example)) if name else "–" for name, compute in peers]
    return f"| {example.name} | `{example.measure}` | {cell(ours(example))} | {' | '.join(cells)} |"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.name}-{example.measure}")
@pytest.mark.filterwarnings("ignore")
def test_the_page_shows_what_the_packages_give(example: Example) -> None:
    for package in ("pytrec_eval", "ir_measures", "ranx", "mteb"):
        pytest.importorskip(package)
    assert line(example) in (DOCS / "definitions.md").read_text("utf-8").splitlines()
