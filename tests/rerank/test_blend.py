"""Blending any reranker's scores with those of the first stage."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import r2med
from r2med.core import Run, Task, UsageError
from r2med.core.spec import Spec
from r2med.pipeline import Builder
from r2med.rerank import as_reranker, rerankers
from r2med.rerank.blend import Blended, blend, on_scale
from r2med.rerank.contract import BlendScale

from . import tiny
from .conftest import MakeReranker, server
from .test_listwise import notes

__all__ = ["server"]
SCORER = "tests.rerank.tiny:by_length"


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
