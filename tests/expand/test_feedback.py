"""Feedback as an expansion method: its spec, what it acts on, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import r2med
from r2med.core import Task, UsageError
from r2med.expand import expanders, queries_for
from r2med.pipeline import Builder, SystemSpec
from r2med.pipeline.experiment import ablations
from r2med.retrieve import get_retriever, retrievers


def lengths(texts: list[str]) -> list[list[int]]:
    """An encoder in one line."""
    return [[len(text), 1] for text in texts]


METHODS = ("rm3", "rocchio", "vector-average", "vector-rocchio")


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_a_value(method: str) -> None:
    spec = expanders.parse(f"{method}:documents=7")
    assert str(spec) == f"{method}:documents=7"
    assert expanders.parse(str(spec)) == spec
    with Builder() as build:
        made = build.expander(spec)
        assert made.describe() == {**build.expander(method).describe(), "documents": 7}
        assert not made.makes_text
        assert not made.plan(r2med.load("mini@1/MedQA-Diag")).calls


def test_defaults_are_left_out() -> None:
    assert str(expanders.parse("rm3:documents=10,terms=10,query=0.5")) == "rm3"
    assert str(expanders.parse("rocchio:alpha=1,beta=0.75")) == "rocchio"


def test_it_tells_the_retriever_of_its_kind(task: Task) -> None:
    with Builder() as build:
        made = build.expander("rm3:terms=20").expand(task)
    queries, _ = queries_for(get_retriever("bm25"), task, made)
    assert [(f.method, f.terms) for f in queries.feedback] == [("rm3", 20)]
    assert queries.plain
    with Builder() as build:
        other, _ = queries_for(get_retriever("bm25"), task, build.expander("vector-average").expand(task))
    assert other.feedback == ()


@pytest.mark.parametrize(
    ("system", "said"),
    [
        (f"rm3+{__name__}:lengths", "rm3 needs a lexical retriever, not tests.expand.test_feedback:lengths (dense)"),
        ("vector-rocchio+bm25", "vector-rocchio needs a dense retriever, not bm25 (lexical)"),
        ("rm3+vector-average+bm25", "vector-average needs a dense retriever"),
        ("rm3:policy=passages+bm25", "rm3 makes no texts: leave out the policy"),
        ("rm3:query=2+bm25", "query"),
        ("rm3:documents=0+bm25", "documents"),
    ],
)
def test_what_cannot_be_is_refused(system: str, said: str) -> None:
    with Builder() as build, pytest.raises(UsageError, match=said.replace("(", r"\(").replace(")", r"\)")):
        build.build(SystemSpec.parse(system))


def test_each_retriever_gets_the_feedback_of_its_kind() -> None:
    both = [retrievers.parse("bm25"), retrievers.parse("bge-small")]
    fusion = SystemSpec.parse("bm25+bge-small.rrf").fusion
    made = list(map(str, ablations(both, fusion=fusion, expander=expanders.parse("rm3+vector-rocchio"))))
    assert made[3:] == ["rm3+bm25", "vector-rocchio+bge-small", "rm3+vector-rocchio+bm25+bge-small.rrf"]
    made = list(map(str, ablations(both, fusion=fusion, expander=expanders.parse("rm3"))))
    assert made[3:] == ["rm3+bm25", "rm3+bm25+bge-small.rrf"]


def test_results_are_their_own(tmp_path: Path) -> None:
    systems = ("bm25", "rm3+bm25", "rm3:terms=30+bm25", "rocchio+bm25")
    scores = r2med.run(*systems, tasks="mini@1/MedQA-Diag", results=tmp_path)
    values = [result.measures["ndcg_at_10"] for result in scores.results]
    assert [result.system.name for result in scores.results] == list(systems)
    assert len(set(values)) == len(systems)
    note = scores.results[1].notes["expansion"]
    assert note["raw_query_used"] == 0  # type: ignore[index]
    again = r2med.run(*systems, tasks="mini@1/MedQA-Diag", results=tmp_path)
    assert again.kept == len(systems)
