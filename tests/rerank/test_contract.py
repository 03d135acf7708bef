"""From a reranker's scores to a run, blended with the first stage's or not; the safeguard of Nano candidates."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import r2med
from r2med.core import IdTable, ModelError, Run, Task, UsageError
from r2med.core.run import read_run, write_run
from r2med.core.spec import Spec
from r2med.pipeline import Builder
from r2med.rerank import as_reranker, rerankers, safeguards, without
from r2med.rerank.contract import (
    Blended,
    BlendScale,
    blend,
    check_depth,
    on_scale,
    order_row,
    ranks_as_scores,
    reordered,
)

from . import tiny
from .conftest import MakeReranker, server
from .test_listwise import notes

__all__ = ["server"]
SCORER = "tests.rerank.tiny:by_length"

IDS = IdTable(f"d{i:02d}" for i in range(40))
finite = st.floats(-(2.0**127), 2.0**127, width=32)
opinions = st.one_of(st.sampled_from([0.0, 1.0, -1.0, float("nan")]), finite)


def candidates(lengths: list[int]) -> Run:
    rng = np.random.default_rng(sum(lengths))
    return Run.from_rankings(
        {
            f"q{i}": [(IDS[d], float(-r)) for r, d in enumerate(rng.permutation(40)[:n].tolist())]
            for i, n in enumerate(lengths)
        },
        doc_ids=IDS,
        name="first",
    )


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=4),
    st.integers(1, 35),
    st.sampled_from(["keep", "drop"]),
    st.data(),
)
def test_the_order_survives_every_reader_of_runs(
    lengths: list[int], depth: int, rest: Literal["keep", "drop"], data: st.DataObject
) -> None:
    first = candidates(lengths)
    width = min(depth, first.depth)
    scores = data.draw(arrays(np.float32, (len(lengths), width), elements=opinions))
    run = reordered(first, scores, rest, "new")
    again = Run(run.query_ids, IDS, run.docs[:, ::-1], run.scores[:, ::-1])
    assert (again.docs == run.docs).all()  # by score alone: no tie is left for ids to break
    for row, length in enumerate(lengths):
        top = min(length, width)
        held = run.docs[row][run.docs[row] >= 0]
        assert len(held) == (length if rest == "keep" else top)
        assert set(held[:top]) == set(first.docs[row, :top])  # the depth is never crossed
        assert (held[top:] == first.docs[row, top : len(held)]).all()
        assert (np.diff(run.scores[row, : len(held)]) < 0).all()
        assert np.isfinite(run.scores[row, : len(held)]).all()


@given(st.lists(opinions, max_size=20))
def test_a_row_is_sorted_stably_around_those_without_opinion(values: list[float]) -> None:
    scores = np.array(values, dtype=np.float32)
    order, _ = order_row(scores)
    assert sorted(order.tolist()) == list(range(len(values)))
    heard = [i for i in order.tolist() if not np.isnan(scores[i])]
    assert heard == sorted(heard, key=lambda i: (-scores[i], i))
    for place in np.flatnonzero(np.isnan(scores)).tolist():
        assert order[place] == place


def test_model_scores_are_stored_as_they_are() -> None:
    first = candidates([4])
    run = reordered(first, np.array([[0.25, 3.5, -2.0]], dtype=np.float32), "keep", "new")
    assert run.scores[0].tolist() == [3.5, 0.25, -2.0, -3.0]


def test_round_trip_through_trec(tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    first = candidates([30])
    run = reordered(first, np.ones((1, 10), dtype=np.float32), "keep", "new")
    write_run(run, tmp_path / "new.run")
    back = read_run(tmp_path / "new.run", doc_ids=IDS)
    assert [h.doc_id for h in back.of("q0")] == [h.doc_id for h in first.of("q0")]


def test_refusals() -> None:
    with pytest.raises(UsageError, match="1 or more"):
        check_depth(0, "keep")
    with pytest.raises(UsageError, match="keep or drop"):
        check_depth(1, "forget")
    with pytest.raises(ModelError, match="infinite"):
        order_row(np.array([np.inf, 0], dtype=np.float32))


def test_ranks_as_scores() -> None:
    assert ranks_as_scores([[2, 0, 1], []], 3)[0].tolist() == [2, 1, 3]


def test_the_safeguard_is_found_and_taken_out() -> None:
    long = {f"d{i:03d}": float(200 - i) for i in range(101)}
    run = Run.from_rankings({"a": list(long.items()), "b": list(long.items())[:50]})
    found = safeguards(run)
    assert run.doc_ids[int(found[0])] == "d100"
    assert found[1] == -1
    reranked = Run.from_rankings({"a": [("d100", 3.0), ("d001", 2.0)], "b": [("d002", 1.0)]}, doc_ids=run.doc_ids)
    cleared = without(reranked, found)
    assert [h.doc_id for h in cleared.of("a")] == ["d001"]
    assert cleared.of("b") == reranked.of("b")
    assert (safeguards(run, {"b"}) == [-1, run.doc_ids.position("d049")]).all()
    assert (without(run, found).docs[1] == run.docs[1]).all()


def test_by_hand(task: Task, first: Run) -> None:
    builder = Builder()
    plain = builder.reranker(SCORER).rerank(task, first, 8)
    for by in ("min-max", "raw", "log-rank"):
        mixed = builder.reranker(f"{SCORER},blend=0.6,blend_by={by}").rerank(task, first, 8)
        for row in range(3):
            docs = first.docs[row, :8].tolist()
            given = dict(zip(plain.docs[row].tolist(), plain.scores[row].tolist(), strict=True))
            new, old = [given[d] for d in docs], first.scores[row, :8].tolist()

            def scale(scores: list[float], by: str = by) -> list[float]:
                if by == "raw":
                    return scores
                if by == "log-rank":
                    return [-math.log(1 + sum(other > score for other in scores)) for score in scores]
                return [(score - min(scores)) / (max(scores) - min(scores)) for score in scores]

            wanted = [0.6 * a + 0.4 * b for a, b in zip(scale(new), scale(old), strict=True)]
            best = sorted(range(8), key=lambda i: -wanted[i])
            assert mixed.docs[row, :8].tolist() == [docs[i] for i in best]
            assert mixed.scores[row, :8].tolist() == pytest.approx([wanted[i] for i in best], rel=1e-5)
            assert mixed.docs[row, 8:].tolist() == first.docs[row, 8:].tolist()
        assert notes(mixed)["blend"] == {"weight": 0.6, "by": by}
        assert notes(mixed)["rest"] == "keep"


def test_published_blend_of_groups(make_reranker: MakeReranker, server: object, task: Task, first: Run) -> None:
    """GroupRank's 0.6 × grade / 10 + 0.4 × the retriever's score as it is."""
    server.text = lambda body: '{"[1]": 10, "[2]": 0, "[3]": 5, "[4]": 0}'  # type: ignore[attr-defined]
    run = make_reranker("grouprank:any-model,shuffle=no,blend=0.6,blend_by=raw").rerank(task, first, 4, rest="drop")
    raw = first.scores[0, :4].tolist()
    wanted = [0.6 * g + 0.4 * s for g, s in zip((1.0, 0.0, 0.5, 0.0), raw, strict=True)]
    found = dict(zip(run.docs[0].tolist(), run.scores[0].tolist(), strict=True))
    assert [found[d] for d in first.docs[0, :4].tolist()] == pytest.approx(wanted, rel=1e-6)
    assert run.depth == 4


def test_names_and_identity(tmp_path: Path) -> None:
    builder = Builder()
    mixed = builder.reranker(f"{SCORER},blend=0.6")
    assert isinstance(mixed, Blended)
    assert mixed.name.endswith("blend=0.6")
    assert rerankers.parse(mixed.name) == mixed.spec.at(100)
    assert builder.reranker(mixed.name) is mixed
    plain = builder.reranker(SCORER)
    assert mixed.reranker is plain
    assert mixed.describe() != plain.describe() != builder.reranker(f"{SCORER},blend=0.5").describe()
    assert builder.reranker(f"{SCORER},blend=1.0") is plain
    assert builder.reranker(f"{SCORER},blend=0.6,blend_by=min-max") is mixed
    for wrong, complaint in {
        "blend=0": "blend of .* must be a number of more than 0 and at most 1",
        "blend=1.5": "blend of",
        "blend=0.5,blend_by=max": "blend_by of .* must be min-max, raw or log-rank",
        "blend_by=raw": "blend_by says how scores are blended and needs blend",
    }.items():
        with pytest.raises(UsageError, match=complaint):
            builder.reranker(f"{SCORER},{wrong}")
    found: dict[str, float] = {}
    for spec in (SCORER, f"{SCORER},blend=0.7", f"{SCORER},blend=0.3"):
        made = r2med.run("bm25", tasks="mini@1/MedQA-Diag", rerank=f"{spec}@20", results=tmp_path).results
        found |= {r.system.name: r.measures["ndcg_at_10"] for r in made if r.system.name != "bm25"}
    assert len(found) == 3
    assert len(set(found.values())) == 3


def test_a_reranker_without_opinion_leaves_the_list(task: Task, first: Run) -> None:
    """Equal scores: only the first stage speaks."""
    inner = as_reranker(lambda pairs: [1.0] * len(pairs), spec=Spec("same"))
    run = Blended(inner, Spec("same", parameters=(("blend", 0.6),))).rerank(task, first, 10)
    assert run.docs.tolist() == first.docs.tolist()


@given(
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=30),
    st.floats(0.01, 0.99),
    st.sampled_from(["min-max", "raw", "log-rank"]),
)
def test_blends_follow_where_both_agree(scores: list[float], weight: float, by: BlendScale) -> None:
    """Where both stages have one order, so does the blend; a lone NaN stays one."""
    falling = np.array(sorted(scores, reverse=True), dtype=np.float64)
    made = blend(falling, falling, weight, by)
    assert (np.diff(made) <= 1e-9).all()
    silent = falling.copy()
    silent[0] = np.nan
    assert np.isnan(blend(silent, falling, weight, by)[0])
    assert np.isfinite(on_scale(falling, by)).all()


def test_short_and_empty_lists() -> None:
    task = tiny.a_task(queries=2, documents=6)
    run = tiny.first_stage(task, 6)
    run.docs[1, 2:], run.scores[1, 2:] = -1, -np.inf
    mixed = Builder().reranker(f"{SCORER},blend=0.5").rerank(task, run, 10)
    assert mixed.lengths().tolist() == [6, 2]
