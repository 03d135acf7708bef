from __future__ import annotations

from dataclasses import replace

import pytest

import r2med
from r2med.core import Task, UsageError
from r2med.core.queries import Queries
from r2med.expand import Diagnosis, Expansion, Expansions, diagnose, infer, judge, queries_for
from r2med.expand.contract import INSTEAD
from r2med.expand.diagnose import Oracle, gains
from r2med.retrieve import BM25
from r2med.scoring import MAIN, rescored
from tests.llm.conftest import MakeChat
from tests.llm.server import ChatServer


def made(task: Task, *texts: str) -> Expansions:
    items = {
        q.id: Expansion(query_id=q.id, original=q.text, texts=(t,) if t else (), statuses=("ok" if t else "empty",))
        for q, t in zip(task.queries, texts, strict=False)
    }
    return Expansions("hyde", {}, items, policies=INSTEAD)


def ndcg(task: Task, queries: Queries) -> dict[str, float]:
    return rescored(BM25().prepare(task).search(queries, 100), task.qrels, MAIN)


def diagnosed(task: Task, *texts: str) -> Diagnosis:
    return diagnose(made(task, *texts), task, BM25(), lambda queries: ndcg(task, queries))


def oracle_mean(task: Task) -> float:
    queries, _ = queries_for(BM25(), task, Oracle().expand(task))
    scores = ndcg(task, queries)
    return sum(scores.values()) / len(scores)


def test_inference_and_gain(task: Task) -> None:
    texts = ("Croup is viral.", "It is an allergy.", "")
    assert infer(made(task, *texts), task) == {"q1": "right", "q2": "wrong", "q3": "unknown"}
    found = diagnosed(task, *texts)
    assert found.named == 0.5
    assert (found.policy, found.oracle_policy) == ("passages", "query+passages")
    assert found.oracle == pytest.approx(oracle_mean(task))
    assert found.groups["right"].queries == found.groups["wrong"].queries == 1
    assert found.groups["unknown"].gain == 0.0  # the raw query was used
    wrong = found.groups["wrong"]
    assert wrong.gain is not None
    assert wrong.gain <= 0


def test_only_expanded_queries_count(task: Task) -> None:
    found = diagnosed(task, "Croup is viral.")
    assert list(found.inference) == ["q1"]
    assert found.groups["wrong"].queries == 0
    assert found.groups["wrong"].gain is None


def test_gains_of_nothing() -> None:
    assert gains({}, {}, {})["right"].raw is None


def test_the_oracle_is_a_ceiling_on_mini() -> None:
    """On every task the true answer helps BM25: reasoning, not words, is what is missing."""
    for task in r2med.load_all("mini@1"):
        raw = r2med.evaluate("bm25", task).mean()
        assert oracle_mean(task) > raw + 0.05, task.name


def test_no_oracle_without_answers(task: Task) -> None:
    bare = replace(task, queries=tuple(q._replace(answer=None) for q in task.queries))
    with pytest.raises(UsageError, match="has no answers"):
        Oracle().expand(bare)
    found = diagnosed(bare, "a", "b", "c")
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
def test_verdicts(server: ChatServer, make_chat: MakeChat, task: Task, text: str, verdict: str) -> None:
    server.text = lambda body: text
    assert judge(made(task, "A viral illness."), task, make_chat()) == {"q1": verdict}
