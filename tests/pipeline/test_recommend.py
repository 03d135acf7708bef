from __future__ import annotations

from typing import Any

import pytest

import r2med
from r2med.core import UsageError
from r2med.pipeline.experiment import BEST_OFFLINE
from r2med.pipeline.recommend import FINEST, Recommendations, recommend
from r2med.pipeline.system import SystemSpec


def named(found: Recommendations) -> list[str]:
    return [one.system for one in found.pipelines]


def test_no_budget_names_what_runs_offline() -> None:
    found = recommend()
    assert named(found) == [BEST_OFFLINE, "bge-small", "bm25"]
    assert found.unranked == []
    fused, small, lexical = found.pipelines
    assert fused.score is None
    assert "nobody published one" in fused.not_measured[0]
    assert sum(fused.measured.values()) > sum(small.measured.values()) > sum(lexical.measured.values())
    assert "8-bit" in small.published[0].note
    assert lexical.score == 13.46  # the lowest that was published
    assert [score.protocol for score in lexical.published] == ["mteb", "r2med-paper"]
    assert lexical.commands == ["r2med data download r2med", "r2med run --tasks r2med --system bm25"]


@pytest.mark.parametrize("seconds", [None, 1.0, 0.05])
@pytest.mark.parametrize("dollars", [0.0, 10.0])
@pytest.mark.parametrize("memory", [0, 4 << 30, 24 << 30, 141 << 30])
def test_everything_fits_and_nothing_is_beaten(memory: int, dollars: float, seconds: float | None) -> None:
    found = recommend(gpu_memory=memory, dollars=dollars, seconds_per_query=seconds)
    assert found.pipelines
    for one in found.pipelines:
        need = one.needs
        assert (need.gpu_memory or 0) <= memory
        assert (need.dollars or 0.0) <= dollars
        assert seconds is None or (need.seconds_per_query is not None and need.seconds_per_query <= seconds)
    scores = [one.score for one in found.pipelines if one.score is not None]
    assert scores == sorted(scores, reverse=True)
    for place, one in enumerate(found.pipelines):
        for better in found.pipelines[:place]:
            mine, other = one.needs, better.needs
            cheaper = (mine.gpu_memory or 0) < (other.gpu_memory or 0) or (mine.dollars or 0) < (other.dollars or 0)
            quicker = mine.seconds_per_query is not None and (
                other.seconds_per_query is None or mine.seconds_per_query < other.seconds_per_query + FINEST
            )
            assert cheaper or quicker, (one.system, better.system)
    assert found.fitting + sum(found.too_expensive.values()) == found.considered


def test_more_budget_is_never_worse() -> None:
    best = [
        max(one.score or 0 for one in recommend(gpu_memory=memory, dollars=dollars).pipelines)
        for memory, dollars in ((0, 0.0), (24 << 30, 0.0), (24 << 30, 10.0), (141 << 30, 100.0))
    ]
    assert best == sorted(best)
    assert best[2] >= 41.65


def test_models_without_a_card_come_on_request() -> None:
    usual, every = recommend(gpu_memory=24 << 30), recommend(gpu_memory=24 << 30, everything=True)
    assert not any("/" in name.partition(":")[0] for name in named(usual))
    assert set(named(usual)) < set(named(every))
    hub = next(one for one in every.pipelines if one.system == "NovaSearch/stella_en_1.5B_v5")
    assert any("no card" in line for line in hub.not_measured)


def test_a_chat_model_that_does_not_fit_is_asked_at_a_service() -> None:
    name, memory = "diver-4b+grouprank:qwen3-32b@100", 24 << 30
    try:
        SystemSpec.parse(name)
    except UsageError as error:
        pytest.skip(f"not in this version: {error}")
    assert name not in named(recommend(gpu_memory=memory, everything=True))
    assert name not in named(recommend(gpu_memory=memory, dollars=30, seconds_per_query=60, everything=True))
    found = {one.system: one for one in recommend(gpu_memory=memory, dollars=30, everything=True).pipelines}
    assert 0 < (found[name].needs.dollars or 0) < 30
    assert any(line.startswith("# a key of a service") for line in found[name].commands)


def test_what_r2med_cannot_run_is_named() -> None:
    found = recommend()
    assert "reason-embed-4b+curlrank-4b@100" in found.not_runnable
    assert "insertrank:deepseek-r1" not in found.not_runnable  # @insertrank-deepseek-r1 is r2med's way of running it
    scores = [row.macro for row in r2med.leaderboard(published=True, protocol="all").rows if row.macro is not None]
    assert len(found.not_runnable) < len(scores)


def test_how_often_a_model_of_ones_own_is_asked_is_no_matter_of_dollars() -> None:
    """Those of a reranker that asks until it is sure were called too expensive, on one's own GPU as well."""
    found = recommend(gpu_memory=80 << 30, everything=True)
    assert "diver-4b+rank-r1:rank-r1-14b@100" in named(found)
    assert "diver-4b+rank-r1:rank-r1-14b@100" not in named(
        recommend(gpu_memory=80 << 30, seconds_per_query=1e9, everything=True)
    )


def test_as_a_function_of_the_package() -> None:
    found = r2med.recommend(gpu_memory="24GB", dollars=0, seconds_per_query=1)
    assert named(found) == named(recommend(gpu_memory=24 << 30, seconds_per_query=1.0))
    with pytest.raises(UsageError, match="cannot read 'much' as a size"):
        r2med.recommend(gpu_memory="much")
    with pytest.raises(UsageError, match="not negative"):
        r2med.recommend(dollars=-1)


@pytest.mark.parametrize("limit", ["dollars", "seconds_per_query", "gpu_speed"])
def test_what_is_no_number_is_no_limit(limit: str) -> None:
    """Every pipeline, 247 dollars a run included, was within a budget of NaN dollars."""
    given: dict[str, Any] = {limit: float("nan")}
    with pytest.raises(UsageError, match="not negative"):
        r2med.recommend(**given)
