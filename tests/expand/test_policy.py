from __future__ import annotations

import pytest

from r2med.core import Task, UnknownName, UsageError
from r2med.expand import (
    POLICIES,
    Expansion,
    Expansions,
    apply,
    expanded_task,
    get_policy,
    policy_for,
    query_groups,
    separator_for,
)
from r2med.expand.policy import DEFAULTS, KINDS
from r2med.expand.specs import METHODS


def made(task: Task, method: str = "hyde") -> Expansions:
    q1, q2, q3 = task.queries
    items = [
        Expansion(query_id="q1", original=q1.text, texts=("First.", "Second."), statuses=("ok", "ok")),
        Expansion(query_id="q2", original=q2.text, texts=("Milk.",), statuses=("ok", "truncated")),
        Expansion(query_id="q3", original=q3.text, statuses=("unparsed",)),
    ]
    return Expansions(method, {}, {item.query_id: item for item in items})


def texts(searched: object) -> list[str]:
    assert isinstance(searched, Task)
    return [query.text for query in searched.queries]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_meets_every_kind_by_a_named_policy(method: str, kind: str) -> None:
    for name in (None, "r2med"):
        policy = get_policy(method, kind, name)
        assert POLICIES[policy.name] is policy
        assert policy.describe()["name"] == policy.name
    assert set(DEFAULTS) == {*METHODS, "custom"}


def test_the_raw_query_stands_in_where_nothing_is_usable(task: Task) -> None:
    for policy in POLICIES.values():
        if policy.mode == "mean":
            assert query_groups(task, made(task), policy)[2] == ((task.queries[2].text, "query", True),)
        else:
            assert expanded_task(task, made(task), policy).queries[2] == task.queries[2]


def test_lexical_policies(task: Task) -> None:
    q1, q2, q3 = (q.text for q in task.queries)
    assert texts(apply(made(task), task, "lexical")) == ["First. Second.", "Milk.", q3]
    assert texts(apply(made(task, "lamer"), task, "lexical")) == [f"{q1} First. Second.", f"{q2} Milk.", q3]
    five = texts(apply(made(task, "query2doc"), task, "lexical"))
    assert five[1] == f"{q2} {q2} {q2} {q2} {q2} Milk."
    twice = texts(apply(made(task, "query2doc"), task, "lexical", policy="r2med"))
    assert twice[1] == f"{q2} {q2} Milk."


def test_dense_policies(task: Task) -> None:
    q1 = task.queries[0].text
    groups = apply(made(task), task, "dense")
    assert isinstance(groups, list)
    assert groups[0] == ((q1, "query", True), ("First.", "document", False), ("Second.", "document", False))
    published = apply(made(task), task, "dense", policy="r2med")
    assert isinstance(published, list)
    assert published[0][1] == ("First.", "query", False)
    joined = apply(made(task, "query2doc"), task, "dense", separator=separator_for("bert"))
    assert texts(joined)[0] == f"{q1} [SEP] First. Second."
    assert texts(apply(made(task, "query2doc"), task, "dense"))[0] == f"{q1}\nFirst. Second."
    assert separator_for("mistral") == "\n"


def test_what_r2med_published(task: Task) -> None:
    """Read off its scripts: instructions by model, and reasoning LLMs treated alike whatever the method."""
    assert get_policy("hyde", "dense", "r2med", model="bge").name == "mean.r2med"
    assert get_policy("lamer", "dense", "r2med", model="nv").name == "mean.query-side"
    assert get_policy("query2doc", "dense", "r2med", model="nv").name == "query+passages.tokenizer"
    assert get_policy("query2doc", "dense", "r2med", model="nv", reasoning=True).name == "mean.query-side"
    assert get_policy("query2doc", "lexical", "r2med").name == "query*2+passages"
    assert get_policy("lamer", "lexical", "r2med").name == "query+passages"
    assert get_policy("lamer", "lexical", "r2med", reasoning=True).name == "passages"
    for marking, name in (("think", "passages"), ("none", "query+passages")):
        described = Expansions("lamer", {"marking": marking}, {})
        assert policy_for(described, "lexical", "r2med").name == name
        assert policy_for(Expansions("lamer", {"model": {"marking": marking}}, {}), "lexical", "r2med").name == name
        assert policy_for(described, "lexical").name == "query+passages"


def test_the_new_task_is_another_task(task: Task) -> None:
    changed = expanded_task(task, made(task), POLICIES["passages"])
    assert changed.fingerprint != task.fingerprint
    assert (changed.qrels, changed.documents) == (task.qrels, task.documents)
    assert [q.answer for q in changed.queries] == [q.answer for q in task.queries]


def test_status_and_summary(task: Task) -> None:
    expansions = made(task)
    assert [e.status for e in expansions] == ["ok", "partial", "unparsed"]
    summary = expansions.summary()
    assert summary["status"] == {"ok": 1, "partial": 1, "unparsed": 1}
    assert summary["generations"] == {"ok": 3, "truncated": 1, "unparsed": 1}
    assert (summary["raw_query_used"], summary["cost"]) == (1, None)


def test_mistakes_are_named(task: Task) -> None:
    with pytest.raises(UsageError, match="'stored' takes no expansions"):
        get_policy("hyde", "stored")
    with pytest.raises(UnknownName, match="unknown policy 'meen'; did you mean mean"):
        get_policy("hyde", "dense", "meen")
    with pytest.raises(UnknownName, match="hyde"):
        get_policy("hyd", "dense")
    with pytest.raises(UsageError, match="needs a dense retriever"):
        get_policy("hyde", "lexical", "mean")
    with pytest.raises(UsageError, match="use query_groups"):
        expanded_task(task, made(task), POLICIES["mean"])
    with pytest.raises(UsageError, match="use expanded_task"):
        query_groups(task, made(task), POLICIES["passages"])
    stale = Expansions("hyde", {}, {"q1": Expansion(query_id="q1", original="other", texts=("x",))})
    with pytest.raises(UsageError, match="made from another text"):
        apply(stale, task, "lexical")
