from __future__ import annotations

import csv
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import r2med
from r2med.core import Document, Documents, Qrels, Query, Run, Task, UsageError
from r2med.core.run import write_run
from r2med.pipeline import nano_profile
from r2med.pipeline.nano_build import _resampled, compare, kendall, spearman, tau_ap
from r2med.pipeline.nano_profile import (
    Safeguard,
    contrasts,
    mean_interval,
    measure,
    published_profile,
    with_safeguard,
    without_safeguard,
)
from r2med.retrieve import BM25
from r2med.retrieve.bm25 import BM25Lucene
from r2med.scoring import Measure, score
from r2med.scoring.compare import compare as compare_systems
from r2med.scoring.evaluation import ScoreSet
from r2med.scoring.intervals import Settings, score_intervals, share_interval
from r2med.tasks import load
from r2med.tasks.nano import PoolSettings, build_pool
from r2med.tasks.nano.figures import group


def ranked(documents: int, positives: dict[str, list[int]], lists: dict[str, list[int]]) -> tuple[Task, Run]:
    task = Task(
        "t",
        tuple(Query(q, q) for q in positives),
        Documents.of(Document(f"d{i:03d}", f"text {i}") for i in range(documents)),
        Qrels.from_judgments((q, f"d{d:03d}", 1) for q, docs in positives.items() for d in docs),
    )
    rankings = {q: [(f"d{d:03d}", float(-i)) for i, d in enumerate(docs)] for q, docs in lists.items()}
    return task, Run.from_rankings(rankings, doc_ids=task.documents.ids, name="reranking_hybrid")


def test_the_safeguard_stands_at_rank_101_and_only_where_needed() -> None:
    lists = {"a": list(range(100)), "b": list(range(100))}
    task, run = ranked(150, {"a": [120, 130], "b": [99]}, lists)
    guarded, names = with_safeguard(run, task, Safeguard())
    assert names == ["a"]
    assert [hit.doc_id for hit in guarded.of("a")][100:] == ["d120"]
    assert len(guarded.of("b")) == 100
    assert np.array_equal(without_safeguard(guarded, {"a"}).docs, run.docs)


def test_a_drawn_safeguard_is_that_of_the_seed_the_split_and_the_query() -> None:
    """NanoR2MED's rule: Python's generator, seeded with text, over the positives in the order of their ids."""
    lists = {f"q{i}": list(range(100)) for i in range(30)}
    task, run = ranked(150, {query: [140, 120, 130] for query in lists}, lists)
    drawn = {seed: with_safeguard(run, task, Safeguard("random", seed))[0] for seed in (0, 20260524)}
    for seed, guarded in drawn.items():
        for query in lists:
            expected = random.Random(f"{seed}\0t\0{query}\0positive_safeguard").choice(["d120", "d130", "d140"])
            assert guarded.of(query)[100].doc_id == expected
    assert not np.array_equal(drawn[0].docs, drawn[20260524].docs)


def test_the_safeguard_never_counts_not_even_in_a_short_list() -> None:
    task, run = ranked(20, {"a": [15], "b": [0]}, {"a": [1, 2, 3], "b": [0, 1, 2]})
    guarded, names = with_safeguard(run, task, Safeguard())
    assert [hit.doc_id for hit in guarded.of("a")] == ["d001", "d002", "d003", "d015"]
    figures = measure(task, {"reranking_hybrid": guarded}, set(names)).figures.profiles["hybrid"]
    assert figures.recall_at_100 == 0.5
    assert figures.hit_at_10 == 0.5
    assert figures.safeguard_rows == 1
    assert figures.positives_covered == 0.5


def test_an_empty_list_is_guarded_too() -> None:
    task, run = ranked(5, {"a": [4], "b": [0]}, {"a": [], "b": [0]})
    guarded, names = with_safeguard(run, task, Safeguard())
    assert (names, [hit.doc_id for hit in guarded.of("a")]) == (["a"], ["d004"])


def test_recall_is_micro_with_the_macro_beside_it() -> None:
    task, run = ranked(10, {"a": [0, 1, 2, 3], "b": [4]}, {"a": [0], "b": [4]})
    figures = measure(task, {"bm25": run}, set()).figures
    bm25 = figures.profiles["bm25"]
    assert bm25.recall_at_100 == pytest.approx(2 / 5)
    assert bm25.recall_macro_at_100 == pytest.approx((1 / 4 + 1) / 2)
    assert figures.positives_per_query == 2.5
    assert figures.best == "bm25"


def test_published_figures_give_the_published_group_values() -> None:
    found = published_profile()
    bm25, dense = found.group["bm25"], found.group["dense"]
    assert bm25 is not None
    assert dense is not None
    assert f"{bm25.ndcg_at_10:.4f}" == "0.2110"
    assert f"{dense.ndcg_at_10:.4f}" == "0.2980"
    recalls = [f"{g.recall_at_100_query_weighted:.4f}" for g in found.group.values() if g]
    assert recalls == ["0.5070", "0.6553", "0.6694"]  # as its group page prints them
    assert (found.queries, len(found.tasks)) == (876, 8)
    assert not any(p.measured for t in found.tasks.values() for p in t.profiles.values())
    assert bm25.recall_macro_at_100 is None
    assert f"{found.tasks['PMC-Treatment'].profiles['hybrid'].ndcg_at_10:.4f}" == "0.3555"  # as its page prints it


def test_published_figures_are_those_of_the_source(shared_data: Path) -> None:
    path = shared_data.parent / "published" / "nano_r2med_profiles.csv"
    ours = {t.split: t for t in published_profile().tasks.values()}
    roles = {"bm25": "bm25", "harrier_oss_v1_270m": "dense", "reranking_hybrid": "hybrid"}
    with path.open() as lines:
        for row in csv.DictReader(lines):
            task = ours[row["task"]]
            profile = task.profiles[roles[row["profile"]]]
            assert profile.profile == row["profile"]
            assert profile.ndcg_at_10 == pytest.approx(float(row["ndcg_at_10"]), abs=1e-10)
            assert profile.hit_at_10 == pytest.approx(float(row["hit_at_10"]), abs=1e-10)
            assert profile.recall_at_100 == pytest.approx(float(row["recall_at_100"]), abs=1e-10)
            assert profile.safeguard_rows == int(row["safeguard_rows"] or 0)
            counts = (task.queries, task.documents, task.positives, task.multi_positive_queries)
            assert counts == tuple(int(row[c]) for c in ("queries", "documents", "positives", "multi_positive_queries"))
            assert task.positives_median == float(row["pos_median"])
            assert task.query_chars_mean == float(row["query_chars_mean"])


def test_a_profile_that_some_tasks_lack_is_not_complete() -> None:
    task, run = ranked(10, {"a": [0]}, {"a": [0]})
    with_dense = measure(task, {"bm25": run, "some_model": run}, set(), split="one").figures
    without = measure(task, {"bm25": run}, set(), split="two").figures
    without.task = "other"
    whole = group([with_dense, without], source="")
    dense = whole.group["dense"]
    assert dense is not None
    assert (dense.tasks, dense.of_tasks, dense.complete) == (1, 2, False)
    assert whole.group["hybrid"] is None


def test_a_task_counts_once_in_a_group() -> None:
    task, run = ranked(10, {"a": [0]}, {"a": [0]})
    figures = measure(task, {"bm25": run}, set()).figures
    with pytest.raises(UsageError, match="two of the tasks are called 't'"):
        group([figures, figures], source="")


def test_contrasts_tell_a_difference_from_none() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(150)
    found = contrasts("hybrid", {"bm25": base, "dense": base + rng.normal(0, 0.2, 150), "hybrid": base + 0.2})
    by_name = {c.worse: c for c in found}
    assert by_name["bm25"].difference == pytest.approx(0.2)
    assert by_name["bm25"].clear
    assert not contrasts("dense", {"bm25": base, "dense": base + rng.normal(0, 0.5, 150)})[0].clear


def test_intervals_are_those_of_scores_and_comparisons() -> None:
    """A profile had narrower ones than `r2med run` and `r2med compare` give for the same lists."""
    task = load("mini@1/MedQA-Diag")
    runs = {"bm25": BM25().retrieve(task), "some_model": BM25Lucene().retrieve(task)}
    measured = measure(task, runs, set())
    evaluations = {c: {"t": score(run, task.qrels, ["nDCG@10"])} for c, run in runs.items()}
    scores = ScoreSet.of_evaluations(evaluations)
    for found, profile in zip(score_intervals(scores), measured.figures.profiles.values(), strict=True):
        assert profile.ndcg_at_10_interval == pytest.approx((found.tasks["t"].low, found.tasks["t"].high))
    (pair,) = compare_systems(scores).pairs
    (contrast,) = contrasts("dense", measured.per_query)
    assert contrast[2:5] == pytest.approx((pair.macro.difference, pair.macro.low, pair.macro.high))
    assert contrast.clear == pair.macro.different


def test_contrasts_are_corrected_for_all_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best is chosen by the data, so its tests are those of all pairs: two alone would find too much."""
    monkeypatch.setattr(nano_profile, "INTERVALS", Settings(resamples=100))
    rng, alone, together = np.random.default_rng(5), 0, 0
    for _ in range(400):
        noise = rng.normal(0.4, 0.15, size=(3, 40))
        per_query = dict(zip(("bm25", "dense", "hybrid"), noise, strict=True))
        best = max(per_query, key=lambda role: float(per_query[role].mean()))
        found = contrasts(best, per_query)
        alone += any(c.low > 0 for c in found)
        together += any(c.clear for c in found)
    assert together / 400 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400) < alone / 400


def test_an_interval_of_hits_and_misses_is_exact() -> None:
    """Nine hits of nine gave an interval of no width."""
    assert mean_interval(np.ones(9)) == pytest.approx(share_interval(9, 9, 0.025))
    assert mean_interval(np.array([1.0] * 8 + [0.0])) == pytest.approx(share_interval(8, 9, 0.025))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=9))
def test_rank_correlations_are_scipys(pairs: list[tuple[int, int]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    left, right = (np.array(side, dtype=float) for side in zip(*pairs, strict=True))
    if len(set(left)) < 2 or len(set(right)) < 2:
        assert spearman(left[None], right[None])[0] == kendall(left[None], right[None])[0] == 0.0
        return
    assert spearman(left[None], right[None])[0] == pytest.approx(stats.spearmanr(left, right).statistic)
    assert kendall(left[None], right[None])[0] == pytest.approx(stats.kendalltau(left, right).statistic)


def test_tau_ap_by_hand() -> None:
    """Yilmaz and others (2008): 2 / (N - 1) × the sum of C(i) / (i - 1), minus 1; a swap at the top costs more."""
    full = np.array([[4.0, 3.0, 2.0, 1.0]])
    assert tau_ap(full, full)[0] == 1.0
    assert tau_ap(full, -full)[0] == -1.0
    top, bottom = np.array([[3.0, 4.0, 2.0, 1.0]]), np.array([[4.0, 3.0, 1.0, 2.0]])
    assert tau_ap(full, top)[0] == pytest.approx(2 / 3 * (0 / 1 + 2 / 2 + 3 / 3) - 1)
    assert tau_ap(full, bottom)[0] == pytest.approx(2 / 3 * (1 / 1 + 2 / 2 + 2 / 3) - 1)
    assert kendall(full, top)[0] == kendall(full, bottom)[0]


def test_the_full_task_counts_with_all_its_queries() -> None:
    """On the queries of the Nano alone, the noise that both share passed for agreement of seven close systems."""
    full = load("mini@1/MedQA-Diag")
    few = [q.id for q in full.queries[:6]]
    kept = Qrels.from_judgments(j for j in full.qrels if j.query_id in few)
    small = replace(full, queries=tuple(q for q in full.queries if q.id in few), qrels=kept)
    found = compare(full, small, ["bm25", "bm25-lucene", "bm25:analyzer=whitespace"])
    assert (found.queries, found.queries_left_out) == (6, len(full.queries) - 6)
    whole = score(BM25().retrieve(full, depth=10), full.qrels, ["nDCG@10"])
    assert found.systems[0].full == pytest.approx(whole.mean())
    assert found.systems[0].nano != found.systems[0].full
    assert (found.inflation.value, found.inflation.low, found.inflation.high) == (0.0, 0.0, 0.0)  # the same documents
    assert found.pairs == 3
    assert 0 <= found.significant_reversals <= min(found.reversals, found.significant_pairs)
    assert found.tau_ap is not None
    rng, biased, fair = np.random.default_rng(0), [], []
    for _ in range(200):
        everywhere = rng.normal(0.3, 0.3, size=400) + rng.normal(np.linspace(0, 0.02, 7)[:, None], 0.15, size=(7, 400))
        on_nano = everywhere[:, :50] + rng.normal(0.0, 0.05, size=(7, 50))
        means = [m.mean(axis=1)[None] for m in (everywhere[:, :50], everywhere, on_nano)]
        biased.append(kendall(means[0], means[2])[0])
        fair.append(kendall(means[1], means[2])[0])
    assert np.mean(biased) > np.mean(fair) + 0.15


def test_shared_queries_are_drawn_together() -> None:
    full = np.random.default_rng(0).random((2, 30))
    (of_full, of_nano), (shared_full, shared_nano) = _resampled([full, full[:, :10]], 10)
    assert (shared_full == shared_nano).all()
    assert of_nano == pytest.approx(shared_nano)
    assert of_full.mean(axis=0) == pytest.approx(full.mean(axis=1), abs=0.01)


@pytest.mark.parametrize("other", ["bm25-lucene", "bm25+bm25-lucene.rrf"])
def test_rankings_reach_the_cut_off(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    """R@2000 was that of the first thousand documents."""
    task, systems, measure = load("mini@1/MedQA-Diag"), ["bm25", other], Measure.parse("R@50")
    wanted = compare(task, task, systems, measure).systems[0].full
    monkeypatch.setattr("r2med.pipeline.nano_build.DEEPEST", 5)
    assert compare(task, task, systems, measure).systems[0].full == wanted


def test_a_task_is_faithful_to_itself() -> None:
    task = load("mini@1/MedQA-Diag")
    systems = ["bm25", "bm25-lucene", "bm25:analyzer=whitespace", "bm25:k1=2,b=1", "bm25:k1=0.1,b=0"]
    found = compare(task, task, systems)
    assert found.spearman.value == found.kendall.value == pytest.approx(1.0)
    assert found.inflation.value == found.inflation.low == found.inflation.high == 0.0


def test_a_fused_system_is_ranked_as_it_would_be_run(tmp_path: Path) -> None:
    task, fused = load("mini@1/MedQA-Diag"), "bm25+bm25:analyzer=whitespace.rrf"
    found = compare(task, task, ["bm25", fused])
    run = r2med.run("bm25", "bm25:analyzer=whitespace", tasks=task, fuse="rrf", results=tmp_path)
    (result,) = (r for r in run.results if r.system.name == fused)
    assert [system.name for system in found.systems] == ["bm25", fused]
    assert found.systems[1].full == pytest.approx(result.measures["ndcg_at_10"])
    stored = tmp_path / "a+b.run"
    write_run(BM25().retrieve(task), stored)
    assert compare(task, task, ["bm25-lucene", f"run:{stored}"]).systems[1].full == found.systems[0].full
    with pytest.raises(UsageError, match="names several retrievers and no fusion"):
        compare(task, task, ["bm25", "bm25+bm25-lucene"])


def test_a_smaller_pool_inflates(shared_data: Path) -> None:
    full = load(shared_data / "scifact")
    nano = build_pool(full, PoolSettings(docs=600)).task
    found = compare(full, nano, [BM25(), BM25Lucene(), "bm25:analyzer=whitespace"])
    assert found.inflation.value > 0.02
    assert found.inflation.low > 0
    assert found.queries == 300
    assert "says little" in found.note
