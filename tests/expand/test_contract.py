"""Expanders that people bring themselves; chains of methods: one grammar, one identity, each with what others made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import r2med
from r2med.core import ModelError, Task, UnknownName, UsageError
from r2med.core.spec import Spec
from r2med.expand import Chain, Expansions, as_expander, expanders, policy_for, queries_for
from r2med.expand.generated import HyDE, HydeParameters
from r2med.expand.rounds import LameR, LamerParameters
from r2med.pipeline import Builder, SystemSpec
from r2med.pipeline.experiment import expander_spec
from r2med.retrieve import as_retriever, get_retriever
from tests import own_models as models
from tests.llm.conftest import MakeChat
from tests.llm.server import ChatServer
from tests.own_rankings import broken


@pytest.fixture(scope="module")
def biology() -> r2med.Task:
    return r2med.load("mini@1/Biology")


def test_expanders_as_objects(biology: r2med.Task) -> None:
    plain = r2med.evaluate("bm25", biology)
    for expander in (models.shout, "tests.own_models:shout"):
        shouted = r2med.evaluate("bm25", biology, expand=expander)
        assert shouted.mean("R@100") == pytest.approx(plain.mean("R@100"), abs=0.2)
    assert r2med.evaluate("bm25", biology, expand=lambda text: "").mean() == plain.mean()


def raising(_: Any) -> Any:
    raise KeyError("input_ids")


def test_answers_that_cannot_be_used(biology: r2med.Task) -> None:
    for answer in ([1], 5, True, {"text": "a"}, {"a", "b"}, b"a"):  # of a set each process sees another order
        with pytest.raises(ModelError, match=f"returned something else than text for query '{biology.queries[0].id}'"):
            r2med.evaluate("bm25", biology, expand=lambda text, answer=answer: answer)
    for texts in (["a", "b"], ("a", "b"), np.array(["a", "b"])):
        made = as_expander(lambda text, texts=texts: texts).expand(biology, limit=1)
        assert json.loads(msgspec.json.encode(next(iter(made))))["texts"] == ["a", "b"]
    with pytest.raises(ModelError, match=r"failed on query .* \(KeyError"):
        r2med.evaluate("bm25", biology, expand=raising)


class Expanding:
    """An expander by our protocol."""

    name, method, warning = "theirs", "custom", ""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer

    def describe(self) -> dict[str, object]:
        return {}

    def plan(self, task: r2med.Task, *, limit: int | None = None) -> Any:
        return self.answer()

    def expand(self, task: r2med.Task, *, limit: int | None = None, on_progress: Any = None) -> Any:
        return self.answer()


def test_how_texts_are_used_is_for_their_expander_to_say(biology: r2med.Task) -> None:
    """Those of a method that r2med has too were used as that one's, whatever their expander said."""

    def used(made: Expansions) -> Expansions:
        return as_expander(Expanding(lambda: made)).expand(biology)

    own = used(Expansions("hyde", {}, {}, policies={"lexical": "query*5+passages"}))
    assert [policy_for(own, kind).name for kind in ("lexical", "dense")] == ["query*5+passages", "query+passages"]
    assert used(Expansions("hyde", {}, {})).policies == HyDE.policies


def test_one_line_names_the_expander(biology: r2med.Task) -> None:
    for answer, words in ((broken, r"theirs~\w+ failed on 13 queries"), (lambda: [], "returned list for 13 queries")):
        with pytest.raises(ModelError, match=words):
            as_expander(Expanding(answer)).expand(biology)
    with pytest.raises(ModelError, match=r"theirs~\w+ failed on planning mini@1/Biology"):
        as_expander(Expanding(broken)).plan(biology)


def shout(text: str) -> str:
    return text.upper()


def lengths(texts: list[str]) -> list[list[int]]:
    return [[len(text), 1] for text in texts]


@pytest.mark.parametrize(
    "text",
    [
        "hyde:gpt4+rm3",
        "hyde:gpt4,passages=3+rm3:terms=20",
        "oracle+rm3+vector-rocchio",
        "hyde:gpt4,policy=mean+lamer:qwen-7b,top=5+rocchio:alpha=0.5",
        f"oracle+expand={__name__}:shout",
        f"{__name__}:shout+rm3",
    ],
)
def test_a_chain_is_printed_and_parsed_back(text: str) -> None:
    spec = expanders.parse(text)
    assert str(spec) == text
    assert expanders.parse(str(spec)) == spec
    assert Spec.chain(spec.links) == spec
    system = f"{text if not text.startswith(__name__) else 'expand=' + text}+bm25+bge-small.rrf+maxsim@50"
    parsed = SystemSpec.parse(system)
    assert str(parsed) == system
    assert parsed.expander == spec
    assert [str(retriever) for retriever in parsed.retrievers] == ["bm25", "bge-small"]
    assert len({json.dumps(s.data()) for s in (spec, *spec.links)}) == len(spec.links) + 1


def test_other_chains_are_other_systems() -> None:
    names = ["hyde:gpt4", "rm3", "hyde:gpt4+rm3", "hyde:gpt4+rm3:terms=20", "hyde:gpt4+rm3+rm3"]
    assert len({expanders.parse(name) for name in names}) == len(names)
    assert expanders.parse("hyde:gpt4+rm3:documents=10") == expanders.parse("hyde:gpt4+rm3")


def test_a_plus_in_a_path_is_no_link(tmp_path: Path) -> None:
    file = tmp_path / "a+b.jsonl"
    file.write_text("{}\n")
    first, last = expanders.parse(f"hyde:replay:{file}+rm3").links
    assert str(first).startswith("hyde:replay:a%2Bb~")
    assert str(last) == "rm3"
    with pytest.raises(UnknownName, match="did you mean rm3"):
        expanders.parse("hyde:gpt4+rm4")


def test_options_reach_the_methods_that_have_them() -> None:
    spec = expander_spec("hyde:gpt4+rm3", policy="mean", passages=4)
    assert str(spec) == "hyde:gpt4,passages=4,policy=mean+rm3"
    with pytest.raises(UsageError, match="rm3 has no parameter 'passages'"):
        expander_spec("rm3+vector-average", passages=4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rm3+oracle+bm25", "rm3 searches with what methods before it made: it stands behind oracle"),
        ("oracle+rm3:policy=passages+bm25", "has one policy, that of the first"),
        ("oracle+rm3", "a system needs a retriever"),
    ],
)
def test_what_cannot_be_is_refused(text: str, said: str) -> None:
    with Builder() as build, pytest.raises(UsageError, match=said):
        build.build(SystemSpec.parse(text))


def test_texts_are_collected_and_paid_for_once(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    server.text = lambda body: f"Passage for {body['messages'][-1]['content'][:20]}"
    steps = [HyDE(make_chat(), HydeParameters(passages=2)), LameR(make_chat(), LamerParameters(top=1))]
    chain = Chain(steps)
    plan = chain.plan(task)
    assert (plan.calls, plan.stored) == (6, 0)
    made = chain.expand(task)
    item = made.items["q1"]
    assert (len(item.texts), len(item.statuses)) == (3, 3)
    assert made.summary()["generations"] == {"ok": 9}
    assert made.method == "hyde+lamer"
    assert made.policies == LameR.policies
    asked = len(server.asked)
    assert Chain(steps).expand(task).items == made.items
    assert len(server.asked) == asked == 6
    assert chain.describe()["then"] == [steps[1].describe()]


def test_a_method_that_searches_does_so_with_what_was_made(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    """The passages that LameR shows are those of the query that HyDE wrote."""
    server.text = lambda body: "hypothalamus set point" if "Passages found" not in str(body) else "done"
    Chain([HyDE(make_chat()), LameR(make_chat(), LamerParameters(top=1))]).expand(task, limit=1)
    assert "raised set point" in server.asked[-1]["messages"][-1]["content"]
    alone = LameR(make_chat(), LamerParameters(top=1))
    alone.expand(task, limit=1)
    assert "Croup is a viral" in server.asked[-1]["messages"][-1]["content"]
    assert len(server.asked) == 3  # alone it is another call


def test_feedback_follows_the_texts(task: Task) -> None:
    with Builder() as build:
        made = build.expander("oracle+rm3:documents=1").expand(task)
    queries, policy = queries_for(get_retriever("bm25"), task, made)
    assert queries.column[0] == f"{task.queries[0].text} Croup"
    assert [f.method for f in queries.feedback] == ["rm3"]
    assert policy.name == "query+passages"
    dense, _ = queries_for(as_retriever(lengths), task, made)
    assert dense.feedback == ()


def test_a_chain_runs_and_is_reused(tmp_path: Path) -> None:
    systems = ("oracle+bm25", "oracle+rm3+bm25")
    scores = r2med.run(*systems, tasks="mini@1/MedQA-Diag", results=tmp_path)
    assert [result.system.name for result in scores.results] == list(systems)
    chained = scores.results[1]
    assert chained.system.spec["expander"] == {"name": "oracle", "then": {"name": "rm3"}}
    assert chained.system.description["expander"]["then"][0]["method"] == "rm3"  # type: ignore[index]
    assert chained.measures != scores.results[0].measures
    assert r2med.run(*systems, tasks="mini@1/MedQA-Diag", results=tmp_path).kept == 2


def test_somebodys_function_in_a_chain(task: Task) -> None:
    with Builder() as build:
        made = build.expander(f"oracle+expand={__name__}:shout").expand(task)
    assert made.items["q1"].texts == ("Croup", task.queries[0].text.upper())
