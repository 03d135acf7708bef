"""Texts as the R2MED repository's scripts cut, read and join them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from r2med.core import DataError, Task, UsageError
from r2med.core.options import Options
from r2med.core.spec import Content, Spec
from r2med.expand import POLICIES, Expansion, Expansions, expanded_queries, expanders, queries_for
from r2med.expand.generated import load_prompt, prompt_facts
from r2med.expand.paper import cut_to_words, published_text
from r2med.expand.policy import queries_without_text
from r2med.expand.replay import Replayed
from r2med.models.prompts import names_of
from r2med.retrieve import BM25
from r2med.retrieve.dense import DenseRetriever
from tests.retrieve.encoders.hashing import HashEncoder


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


def test_words_of_a_passage() -> None:
    assert cut_to_words("a\n b  c", 2) == "a b"
    assert len(cut_to_words("x " * 600).split()) == 512


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


PACK = """
[generate.hyde]
default.user = "Any: {{query}}"
"Clinical evidence".user = "Family: {{query}}"
MedQA-Diag.user = "Task: {{query}}"
"mini@1/MedQA-Diag".user = "Mini: {{query}}"
[generate.lamer]
user = "One for all: {{query}} {{passages}}"
[generate.query2doc.MedQA-Diag]
user = "no gap"
"""


def named(task: Task, name: str, collection: str = "", family: str = "Clinical evidence") -> Task:
    return Task(name, task.queries, task.documents, task.qrels, collection=collection, family=family)


def test_the_narrowest_prompt_is_taken(tmp_path: Path, task: Task) -> None:
    path = tmp_path / "pack.toml"
    path.write_text(PACK)
    pack = Content.of(path)

    def user(method: str, *where: str) -> str:
        return load_prompt(method, names_of(named(task, *where)), pack).user.partition(":")[0]

    assert user("hyde", "MedQA-Diag", "mini@1") == "Mini"
    assert user("hyde", "MedQA-Diag", "r2med") == "Task"
    assert user("hyde", "Biology", "r2med") == "Family"
    assert user("hyde", "Biology", "r2med", "") == "Any"
    assert user("lamer", "Biology") == "One for all"
    assert prompt_facts("hyde", pack) == {"pack": f"pack~{pack.whole}"}
    with pytest.raises(UsageError, match=r"prompt pack pack has no query2doc prompt for Biology \(it has: MedQA-Diag"):
        user("query2doc", "Biology")
    with pytest.raises(DataError, match=r"is no prompt: `user` does not hold \{\{query\}\}"):
        user("query2doc", "MedQA-Diag")
    with pytest.raises(DataError, match="is a prompt pack without a prompt for search-o1"):
        user("search-o1", "Biology")


def test_prompts_in_a_folder_are_found_by_task_too(tmp_path: Path, task: Task) -> None:
    (tmp_path / "hyde").mkdir()
    (tmp_path / "hyde" / "MedQA-Diag.toml").write_text('user = "Task: {{query}}"')
    (tmp_path / "clinical-evidence.toml").write_text('user = "Family: {{query}}"')
    pack = Content.of(tmp_path)
    assert load_prompt("hyde", names_of(named(task, "MedQA-Diag")), pack).user == "Task: {{query}}"
    assert load_prompt("hyde", names_of(named(task, "Biology")), pack).user == "Family: {{query}}"
