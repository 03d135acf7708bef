from __future__ import annotations

from collections.abc import Mapping

import pytest

import r2med
from r2med.core import Task, UsageError
from r2med.expand import Expansion, Expansions, diagnose, infer
from r2med.expand.diagnose import Searchable, gains
from r2med.expand.judge import judge, read_verdict
from r2med.expand.oracle import Oracle
from r2med.retrieve import BM25
from r2med.scoring import evaluate_run
from tests.llm.conftest import MakeChat
from tests.llm.server import ChatServer


def made(task: Task, *texts: str) -> Expansions:
    items = {
        q.id: Expansion(query_id=q.id, original=q.text, texts=(t,) if t else (), statuses=("ok" if t else "empty",))
        for q, t in zip(task.queries, texts, strict=False)
    }
    return Expansions("hyde", {}, items)


def ndcg(task: Task, searched: Searchable) -> Mapping[str, float]:
    assert isinstance(searched, Task)
    result = evaluate_run(BM25().retrieve(searched), task.qrels)
    return dict(zip(result.query_ids, result.per_query["ndcg_at_10"].tolist(), strict=True))


def test_inference_and_gain(task: Task) -> None:
    expansions = made(task, "Croup is viral.", "It is an allergy.", "")
    assert infer(expansions, task) == {"q1": "right", "q2": "wrong", "q3": "unknown"}
    found = diagnose(expansions, task, "lexical", lambda searched: ndcg(task, searched))
    assert found.named == 0.5
    assert found.policy == "passages"
    assert found.oracle == pytest.approx(ndcg_mean(task, Oracle().expand(task)))
    assert found.groups["right"].queries == found.groups["wrong"].queries == 1
    assert found.groups["unknown"].gain == 0.0  # the raw query was used
    wrong = found.groups["wrong"]
    assert wrong.gain is not None
    assert wrong.gain <= 0


def ndcg_mean(task: Task, expansions: Expansions) -> float:
    from r2med.expand import apply

    searched = apply(expansions, task, "lexical")
    scores = ndcg(task, searched)
    return sum(scores.values()) / len(scores)


def test_only_expanded_queries_count(task: Task) -> None:
    found = diagnose(made(task, "Croup is viral."), task, "lexical", lambda searched: ndcg(task, searched))
    assert list(found.inference) == ["q1"]
    assert found.groups["wrong"].queries == 0
    assert found.groups["wrong"].gain is None


def test_gains_of_nothing() -> None:
    assert gains({}, {}, {})["right"].raw is None


def test_the_oracle_is_a_ceiling_on_mini() -> None:
    """On every task the true answer helps BM25: reasoning, not words, is what is missing."""
    for task in r2med.load_all("mini"):
        ceiling = ndcg_mean(task, Oracle().expand(task))
        raw = r2med.evaluate("bm25", task).mean()
        assert ceiling > raw + 0.05, task.name


def test_no_oracle_without_answers(task: Task) -> None:
    from dataclasses import replace

    bare = replace(task, queries=tuple(q._replace(answer=None) for q in task.queries))
    with pytest.raises(UsageError, match="has no answers"):
        Oracle().expand(bare)
    found = diagnose(made(bare, "a", "b", "c"), bare, "lexical", lambda searched: ndcg(bare, searched))
    assert (found.oracle, found.named) == (None, None)


def test_an_llm_judges_on_request(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    server.text = lambda body: "Yes." if "viral" in body["messages"][-1]["content"] else "No, it does not."
    verdicts = judge(made(task, "A viral illness.", "An allergy", ""), task, make_chat())
    assert verdicts == {"q1": "right", "q2": "wrong", "q3": "unknown"}
    judge(made(task, "A viral illness.", "An allergy", ""), task, make_chat())
    assert len(server.asked) == 2  # verdicts are kept as well


@pytest.mark.parametrize(
    ("text", "verdict"), [("yes", "right"), ("**No**", "wrong"), ("Nothing to say", "unknown"), ("", "unknown")]
)
def test_verdicts(text: str, verdict: str) -> None:
    assert read_verdict(text) == verdict
