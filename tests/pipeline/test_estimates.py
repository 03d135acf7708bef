from __future__ import annotations

import re
from pathlib import Path

import pytest

from r2med.pipeline.estimates import Part, memory_text, needs, parts_of, rates
from r2med.tasks import collections

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("system", "parts"),
    [
        ("bm25", [Part("retriever", "bm25", "")]),
        ("bm25:k1=1.2,b=0.75", [Part("retriever", "bm25", "")]),
        ("hyde:gpt4+nv", [Part("expander", "hyde", "gpt4"), Part("retriever", "nv", "nv")]),
        (
            "bm25+bge-small.rrf+maxsim@50",
            [
                Part("retriever", "bm25", ""),
                Part("retriever", "bge-small", "bge-small"),
                Part("reranker", "maxsim", "bge-small", 50),
            ],
        ),
        (
            "diver-4b+grouprank:openai:deepseek-ai/DeepSeek-V3.1,repeats=2@100",
            [
                Part("retriever", "diver-4b", "diver-4b"),
                Part("reranker", "grouprank", "deepseek-ai/DeepSeek-V3.1", 100, 2),
            ],
        ),
        ("nv+rankllama@10", [Part("retriever", "nv", "nv"), Part("reranker", "rankllama", "rankllama", 10)]),
        ("insertrank:deepseek-r1", [Part("reranker", "insertrank", "deepseek-r1")]),
    ],
)
def test_parts_of_a_system(system: str, parts: list[Part]) -> None:
    assert parts_of(system) == parts


def test_rates_are_those_of_the_pages_that_show_them() -> None:
    scale, speed = ((DOCS / name).read_text("utf-8") for name in ("scale.md", "speed.md"))
    for rate in (*rates().gpu.tokens_per_second, rates().cpu.tokens_per_second):
        assert f"{rate:,}" in scale
    assert f"{1 / rates().cpu.float32:.2f}" == "2.94"
    assert "| 2.95 |" in speed
    assert "| r2med | 0.92 |" in speed
    assert "`bm25` takes about three seconds of CPU" in scale
    assert rates().lexical.index_seconds == 3
    assert rates().lexical.seconds_per_query == pytest.approx(0.92 / 120, abs=5e-4)


def test_our_own_figures_are_those_of_the_page() -> None:
    measured = rates().measured
    page = (DOCS / "results.md").read_text("utf-8")
    assert f"| System | {' | '.join(measured.sets)} |" in page
    for system, values in measured.systems.items():
        row = re.search(rf"^\| {re.escape(system)} \| (.+) \|$", page, re.MULTILINE)
        assert row is not None
        assert [float(cell) for cell in row[1].split(" | ")] == values


def test_r2med_is_as_large_as_the_catalogue_says() -> None:
    tasks = collections()["r2med"].tasks
    assert {t.name: (t.queries, t.documents) for t in tasks} == {
        name: (queries, documents) for name, (queries, _, documents, _) in rates().r2med.items()
    }
    assert rates().queries == 876
    assert rates().corpus_tokens() == pytest.approx(90.5e6, rel=0.01)
    assert rates().corpus_tokens(512) == pytest.approx(81e6, rel=0.01)


def test_speed_falls_with_size() -> None:
    gpu = rates().gpu
    assert [round(gpu.rate(size)) for size in gpu.parameters] == gpu.tokens_per_second
    assert gpu.rate(14_200_000_000) == pytest.approx(gpu.tokens_per_second[-1] / 2)
    sizes = [10**8, 2 * 10**8, 10**9, 4 * 10**9, 8 * 10**9, 32 * 10**9]
    found = [gpu.rate(size) for size in sizes]
    assert found == sorted(found, reverse=True)


def test_a_reranker_that_is_served() -> None:
    found = needs("diver-4b+grouprank:grouprank-32b@100")
    assert found.chat_calls == 876 * 5
    assert found.answer_tokens == 876 * 5 * 8_000
    retriever, reranker = found.models
    assert (retriever.chat, reranker.chat, reranker.api) == (False, True, False)
    assert "OPENAI_BASE_URL" in reranker.get
    assert "AQ-MedAI/Diver-GroupRank-32B" in reranker.get
    assert found.gpu_memory == reranker.gpu_memory == round(1.2 * 2 * 32e9)
    assert found.gpu_memory_together == (retriever.gpu_memory or 0) + (reranker.gpu_memory or 0)
    assert found.dollars == 0
    assert found.seconds_per_query is not None
    slow = needs("diver-4b+grouprank:grouprank-32b@100", gpu_speed=0.25)
    assert slow.seconds_per_query == pytest.approx(4 * found.seconds_per_query)
    assert needs("diver-4b+grouprank:grouprank-32b,repeats=2@100").chat_calls == 876 * 10
    windows = needs("e5+reasonrank:reasonrank-7b@100")
    assert windows.chat_calls == 876 * 9
    assert needs("e5+rank1:rank1-7b@100").chat_calls == 876 * 100


def test_services_cost_dollars_and_their_time_is_not_known() -> None:
    found = needs("hyde:gpt4+bm25")
    assert (found.gpu_memory, found.seconds_per_query) == (0, None)
    assert found.prompt_tokens is not None
    assert found.dollars == pytest.approx((found.prompt_tokens * 2.5 + 876 * 512 * 10) / 1e6, rel=1e-4)
    assert needs("openai").dollars == pytest.approx(12, abs=0.5)  # what docs/scale.md computes
    assert needs("voyage").dollars == pytest.approx(5.4, abs=0.2)


def test_open_weights_have_a_price_where_a_service_states_one() -> None:
    found = needs("diver-4b+grouprank:qwen3-32b@100")
    assert found.dollars == 0
    assert found.prompt_tokens is not None
    assert found.service_dollars == pytest.approx((found.prompt_tokens * 0.08 + 876 * 5 * 8_000 * 0.28) / 1e6, rel=1e-4)
    assert any("openrouter.ai" in line for line in found.how)
    hosted = needs("diver-4b+grouprank:qwen3-32b@100", at_service=True)
    assert hosted.dollars == found.service_dollars
    assert (hosted.gpu_memory, hosted.seconds_per_query) == (found.models[0].gpu_memory, None)
    assert "OPENAI_BASE_URL" in hosted.models[1].get
    assert needs("diver-4b+grouprank:grouprank-32b@100").service_dollars is None
    assert needs("nv").service_dollars is None


def test_what_is_not_known_is_not_guessed() -> None:
    unnamed = needs("nobody/knows")
    assert (unnamed.gpu_memory, unnamed.seconds_per_query) == (None, None)
    assert memory_text(unnamed.gpu_memory) == "unknown"
    agent = needs("search-o1:qwq-32b+bm25")
    assert (agent.chat_calls, agent.prompt_tokens, agent.seconds_per_query) == (None, None, None)
    assert (agent.dollars, agent.service_dollars) == (0, None)  # on a server of one's own
    assert needs("search-o1:gpt4+bm25").dollars is None
    assert any("depends on the answers" in line for line in agent.how)


def test_what_runs_without_a_gpu() -> None:
    found = needs("bm25+bge-small.rrf+maxsim@50")
    assert (found.gpu_memory, found.dollars, found.chat_calls) == (0, 0, 0)
    assert memory_text(found.gpu_memory) == "none"
    assert all(not model.get for model in found.models)  # embedded
    assert needs("contriever").gpu_memory == 0
    assert needs("bge").gpu_memory == round(2.4 * 335e6)
