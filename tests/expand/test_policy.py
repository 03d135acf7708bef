"""How texts meet retrievers, by our policies and as the R2MED repository's scripts join them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import r2med
from r2med.core import Task, UnknownName, UsageError
from r2med.core.options import Options
from r2med.core.queries import Queries, QueryText
from r2med.core.spec import Spec
from r2med.expand import POLICIES, Expansion, Expansions, expanded_queries, expanders, policy_for, queries_for
from r2med.expand.contract import JOINED
from r2med.expand.policy import KINDS, published_text, queries_without_text
from r2med.expand.replay import Replayed
from r2med.models import get_card
from r2med.retrieve import BM25
from r2med.retrieve.dense import DenseRetriever
from tests.retrieve.encoders.hashing import HashEncoder

METHODS = tuple(entry.name for entry in expanders)


def made(task: Task, method: str = "hyde") -> Expansions:
    q1, q2, q3 = task.queries
    items = [
        Expansion(query_id="q1", original=q1.text, texts=("First.", "Second."), statuses=("ok", "ok")),
        Expansion(query_id="q2", original=q2.text, texts=("Milk.",), statuses=("ok", "truncated")),
        Expansion(query_id="q3", original=q3.text, statuses=("unparsed",)),
    ]
    return Expansions(method, {}, {item.query_id: item for item in items}, policies=expanders[method].target.policies)


def nothing(method: str, **described: object) -> Expansions:
    return Expansions(method, described, {}, policies=expanders[method].target.policies)


def chosen(method: str, kind: str, name: str | None = None, *, model: str = "", **described: object) -> str:
    return policy_for(nothing(method, **described), kind, name, model=model).name


def joined(task: Task, method: str, policy: str | None = None) -> list[str]:
    """What a lexical retriever searches with."""
    queries, _ = queries_for(BM25(), task, made(task, method), policy)
    return list(queries.single("bm25"))


def dense(similarity: str = "cosine", name: str = "hash", card: str = "") -> DenseRetriever:
    return DenseRetriever(
        HashEncoder(),
        Spec(name),
        card=get_card(card) if card else None,
        similarity=similarity,  # type: ignore[arg-type]
        options=Options(cache=False),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_meets_every_kind_by_a_named_policy(method: str, kind: str) -> None:
    for name in (None, "r2med"):
        policy = policy_for(nothing(method), kind, name)
        assert POLICIES[policy.name] is policy
        assert policy.describe()["name"] == policy.name


def test_the_raw_query_stands_in_where_nothing_is_usable(task: Task) -> None:
    for policy in POLICIES.values():
        assert expanded_queries(task, made(task), policy).texts[2] == (QueryText(task.queries[2].text),)


def test_lexical_policies(task: Task) -> None:
    q1, q2, q3 = (q.text for q in task.queries)
    assert joined(task, "hyde") == ["First. Second.", "Milk.", q3]
    assert joined(task, "lamer") == [f"{q1} First. Second.", f"{q2} Milk.", q3]
    assert joined(task, "query2doc")[1] == f"{q2} {q2} {q2} {q2} {q2} Milk."
    assert joined(task, "query2doc", "r2med")[1] == f"{q2}{q2} Milk.", "as the scripts write it, without a space"


def test_dense_policies(task: Task) -> None:
    q1 = task.queries[0].text
    queries, policy = queries_for(dense(), task, made(task))
    assert policy.name == "mean"
    assert queries.texts[0] == (
        QueryText(q1),
        QueryText("First.", 1.0, "document", instruction=False),
        QueryText("Second.", 1.0, "document", instruction=False),
    )
    published, _ = queries_for(dense(), task, made(task), "r2med")
    assert published.texts[0][1] == QueryText("First.", 1.0, "query", instruction=False, scaled=False)
    side, _ = queries_for(dense(name="nv"), task, made(task), "r2med")
    assert side.texts[0][1] == QueryText("First.", 1.0, "query", instruction=True, scaled=False)
    for card, between in (("bge-small", " [SEP] "), ("sfr", "\n"), ("", "\n")):
        paired, _ = queries_for(dense(card=card), task, made(task, "query2doc"))
        assert paired.column[0] == f"{q1}{between}First. Second."


def test_what_r2med_published() -> None:
    """Read off its scripts: instructions by model, and reasoning LLMs treated alike whatever the method."""
    assert chosen("hyde", "dense", "r2med", model="bge") == "mean.r2med"
    assert chosen("lamer", "dense", "r2med", model="nv") == "mean.instructed.r2med"
    assert chosen("query2doc", "dense", "r2med", model="nv") == "query+[SEP]+passages.r2med"
    assert chosen("query2doc", "dense", "r2med", model="nv", marking="think") == "mean.instructed.r2med"
    assert chosen("query2doc", "lexical", "r2med") == "query*2+passages.r2med"
    assert chosen("oracle", "lexical", "r2med") == "query+passages"
    for marking, name in (("think", "passages.r2med"), ("none", "query+passages.r2med")):
        assert chosen("lamer", "lexical", "r2med", marking=marking) == name
        assert policy_for(nothing("lamer", model={"marking": marking}), "lexical", "r2med").name == name
        assert chosen("lamer", "lexical", marking=marking) == "query+passages"


def test_a_chain_of_models_with_other_marks_is_not_read_as_one(task: Task) -> None:
    """All answers were read by the marks of the first model's."""
    think, plain = ({"model": {"marking": marking}} for marking in ("think", "none"))
    for policy in ("r2med", "passages.r2med"):
        with pytest.raises(UsageError, match="this chain has think, none"):
            queries_for(BM25(), task, replace(made(task), description={**think, "then": [plain]}), policy)
        for then in ([think], [{"method": "rm3"}], [{"replay": "a", "marking": "think"}]):
            queries_for(BM25(), task, replace(made(task), description={**think, "then": then}), policy)
    queries_for(BM25(), task, replace(made(task), description={**think, "then": [plain]}))


def test_what_is_searched_with_is_not_the_task(task: Task) -> None:
    """Texts and their fingerprint change; ids and the original queries stay."""
    raw, changed = Queries.of(task), expanded_queries(task, made(task), POLICIES["passages"])
    assert changed.fingerprint != raw.fingerprint
    assert changed.ids == raw.ids
    assert list(changed.originals) == list(raw.originals)


def test_status_and_summary(task: Task) -> None:
    expansions = made(task)
    assert [e.status for e in expansions] == ["ok", "partial", "unparsed"]
    summary = expansions.summary()
    assert summary["status"] == {"ok": 1, "partial": 1, "unparsed": 1}
    assert summary["generations"] == {"ok": 3, "truncated": 1, "unparsed": 1}
    assert (summary["raw_query_used"], summary["cost"]) == (1, None)


def test_mistakes_are_named(task: Task) -> None:
    with pytest.raises(UsageError, match="'stored' takes no expansions"):
        chosen("hyde", "stored")
    with pytest.raises(UnknownName, match="unknown policy 'meen'; did you mean mean"):
        chosen("hyde", "dense", "meen")
    with pytest.raises(UsageError, match="needs a dense retriever"):
        chosen("hyde", "lexical", "mean")
    with pytest.raises(UsageError, match="splade takes one text for each query"):
        expanded_queries(task, made(task), POLICIES["mean"]).single("splade")
    stale = Expansions("hyde", {}, {"q1": Expansion(query_id="q1", original="other", texts=("x",))})
    with pytest.raises(UsageError, match="made from another text"):
        expanded_queries(task, stale, POLICIES["passages"])
    assert Expansions("theirs", {}, {}).policies == JOINED


def with_texts(task: Task, *texts: str) -> Queries:
    items = {q.id: Expansion(query_id=q.id, original=q.text, texts=texts, statuses=("ok",)) for q in task.queries}
    return expanded_queries(task, Expansions("hyde", {}, items), POLICIES["mean"])


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_the_mean_of_the_vectors(task: Task, similarity: str) -> None:
    encoder, retriever = HashEncoder(), dense(similarity)
    run = retriever.prepare(task).search(with_texts(task, "one", "two"), 4)
    documents = encoder.encode(list(task.documents.contents), "document")
    for row, query in enumerate(task.queries):
        raw = np.concatenate([encoder.encode([query.text], "query"), encoder.encode(["one", "two"], "document")])
        if similarity == "cosine":
            raw /= np.linalg.norm(raw, axis=1, keepdims=True)
        mean, against = raw.mean(axis=0), documents
        if similarity == "cosine":
            mean = mean / np.linalg.norm(mean)
            against = documents / np.linalg.norm(documents, axis=1, keepdims=True)
        np.testing.assert_allclose(run.scores[row], (against @ mean)[run.docs[row]], atol=1e-5)


def test_without_texts_it_is_the_raw_run(task: Task) -> None:
    index = dense().prepare(task)
    run, raw = index.search(with_texts(task), 4), index.search(Queries.of(task), 4)
    assert np.array_equal(run.docs, raw.docs)
    np.testing.assert_allclose(run.scores, raw.scores, atol=1e-6)


def test_a_passage_that_is_the_document_finds_it(task: Task) -> None:
    retriever = dense()
    passage = task.documents.texts[1]
    run = retriever.prepare(task).search(with_texts(task, *[passage] * 5), 4)
    assert [run.row(i)[0].doc_id for i in range(3)] == ["d2"] * 3
    assert run.notes["averaged_texts"] == 18
    assert {"truncation", "cache", "seconds"} <= set(run.notes)  # an expanded run tells as much as a raw one


@pytest.mark.parametrize(
    ("marking", "raw", "text"),
    [
        ("think", "<think>a</think>\n b </think> c ", "b </think> c"),
        ("think", "<think>a chain without an end ", "<think>a chain without an end "),
        ("think-optional", " no marks at all ", " no marks at all "),
        ("think", "a</think>", ""),
        ("final-response", "## Thinking\n\na\n\n## Final Response\n\nb ", "b"),
        ("final-response", "## Thinking\n\nnever done", "## Thinking\n\nnever done"),
        ("solution", "<|begin_of_solution|> b <|end_of_solution|> c", "b"),
        ("solution", "<|begin_of_solution|> b", "<|begin_of_solution|> b"),
        ("answer", "<answer>a</answer><answer>b</answer>", "a"),
        ("answer", "<answer>open", "<answer>open"),
        ("none", " I cannot help with this request. ", " I cannot help with this request. "),
        ("hidden", "<think>a</think>b", "<think>a</think>b"),
        ("auto", "<think>a</think>b", "<think>a</think>b"),
    ],
)
def test_answers_are_read_as_the_scripts_read_them(marking: str, raw: str, text: str) -> None:
    assert published_text(raw, marking) == text


def recorded(tmp_path: Path, task: Task, llm: str, *answers: str) -> Expansions:
    folder = tmp_path / llm
    folder.mkdir()
    lines = [json.dumps({"id": q.id, "hy_doc": a}) for q, a in zip(task.queries, answers, strict=False)]
    (folder / "query_with_hydoc.jsonl").write_text("\n".join(lines))
    return Replayed("hyde", path=folder / "query_with_hydoc.jsonl").expand(task)


def test_texts_that_we_would_not_search_with_are_searched_with_under_the_policy(tmp_path: Path, task: Task) -> None:
    """A chain without an end, and a refusal: ours falls back to the query, the scripts search with the text."""
    refused = "I'm sorry, but I cannot help with this request."
    made = recorded(tmp_path, task, "r1-qwen-32b", "<think>croup, perhaps", refused)
    theirs, policy = queries_for(BM25(), task, made, "r2med")
    assert [text for ((text, *_),) in theirs.texts] == ["<think>croup, perhaps", refused, task.queries[2].text]
    assert queries_without_text(task, made, policy) == 1
    ours, policy = queries_for(BM25(), task, made)
    assert [text for ((text, *_),) in ours.texts] == [query.text for query in task.queries]
    assert queries_without_text(task, made, policy) == 3


def test_a_literal_separator_for_every_dense_model(task: Task) -> None:
    items = {q.id: Expansion(query_id=q.id, original=q.text, texts=("T",), raw=(" T",)) for q in task.queries}
    made = Expansions("query2doc", {}, items, policies=expanders["query2doc"].target.policies)
    for name in ("bge", "nv", "e5"):
        dense = DenseRetriever(HashEncoder(), Spec(name), options=Options(cache=False))
        queries, _ = queries_for(dense, task, made, "r2med")
        assert queries.column[0] == f"{task.queries[0].text}[SEP] T"
    glued, _ = queries_for(BM25(), task, made, "r2med")
    assert glued.column[0] == f"{task.queries[0].text}{task.queries[0].text}  T"


def test_a_mean_is_over_the_vectors_as_they_are(task: Task) -> None:
    """Under the policy; otherwise vectors that are compared by cosine are of length one each."""
    encoder = HashEncoder()
    retriever = DenseRetriever(encoder, Spec("contriever"), similarity="cosine", options=Options(cache=False))
    query = task.queries[0]
    items = {query.id: Expansion(query_id=query.id, original=query.text, texts=("cough " * 9,), raw=("cough " * 9,))}
    made = Expansions("hyde", {}, items, policies=expanders["hyde"].target.policies)
    one, two = encoder.encode([query.text], "query")[0], encoder.encode(["cough " * 9], "query")[0]
    index = retriever.prepare(task)
    for policy, expected in (
        ("mean.r2med", (one + two) / 2),
        ("mean.query-side", (one / np.linalg.norm(one) + two / np.linalg.norm(two)) / 2),
    ):
        vectors = index._encode(expanded_queries(task, made, POLICIES[policy])).values
        np.testing.assert_allclose(vectors[0], expected, atol=1e-6)
    assert np.linalg.norm(one) != pytest.approx(np.linalg.norm(two)), "or the test shows nothing"


def test_such_a_chain_is_refused_before_a_model_is_asked() -> None:
    chain = "hyde:r1-qwen-32b+query2doc:qwen-7b"
    with pytest.raises(UsageError, match="one kind of chat model"):
        r2med.plan(*r2med.systems("bm25", expand=chain, policy="r2med"), tasks="mini@1/Biology")
    assert r2med.plan(*r2med.systems("bm25", expand=chain), tasks="mini@1/Biology")
