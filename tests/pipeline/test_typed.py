"""Typed texts: the rankings that a run would give, explained, kept nowhere, and made of nothing that is not here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import r2med
from r2med.core import Document, Documents, Qrels, Query, Task, UsageError
from r2med.core.files import home
from r2med.core.queries import Typed
from r2med.pipeline import Builder, SystemSpec
from r2med.pipeline.typed import TypedSearch, check_spec, names_here
from tests.pipeline.by_hand import ranked
from tests.retrieve.encoders import tiny

HERE = {
    "bm25": "lexical",
    "bm25-lucene": "lexical",
    "bge-small": "dense",
    "msmarco-minilm": "cross-encoder",
    "smollm2": "chat",
}
FUSED = "bm25+bm25-lucene.rrf"


@pytest.fixture(scope="module")
def task() -> Task:
    return r2med.load("mini@1/MedQA-Diag")


def test_a_query_of_the_task_is_ranked_as_a_run_ranks_it(task: Task) -> None:
    query = task.queries[3]
    systems = ["bm25", FUSED, "bm25:k1=1.2+bm25-lucene.weighted:w=0.3/0.7"]
    tried = TypedSearch().search(task, systems, Typed(f"  {query.text}\n"))
    for name, one in zip(systems, tried, strict=True):
        with Builder() as builder:
            expected = ranked(builder.build(SystemSpec.parse(name)), task, 1000)
        assert one.alone.run.query_ids[0] == query.id
        assert [h.doc_id for h in one.alone.run.row(0)] == [h.doc_id for h in expected.of(query.id)]
        assert [h.score for h in one.alone.run.row(0)] == [h.score for h in expected.of(query.id)]
        assert one.expanded is None
        assert list(one.alone.explanations) == [h.doc_id for h in expected.of(query.id)[:10]]
        for doc_id, explained in one.alone.explanations.items():
            score = next(h.score for h in expected.of(query.id) if h.doc_id == doc_id)
            assert sum(share.adds for share in explained.shares) == pytest.approx(score, rel=1e-4)


@pytest.mark.parametrize("instead", [False, True])
def test_an_expansion_is_searched_with_as_its_policy_says(task: Task, instead: bool) -> None:
    query, text = task.queries[0], "adrenal insufficiency with hyperpigmentation"
    (tried,) = TypedSearch().search(task, [FUSED], Typed(query.text, text, instead))
    joined = text if instead else f"{query.text} {text}"
    changed = replace(task, queries=(Query(query.id, joined),))
    with Builder() as builder:
        expected = ranked(builder.build(SystemSpec.parse(FUSED)), changed, 1000)
    assert tried.expanded is not None
    assert [h.doc_id for h in tried.expanded.run.row(0)] == [h.doc_id for h in expected.row(0)]
    assert tried.expanded.ranks != tried.alone.ranks
    assert set(tried.policies.values()) == {"passages" if instead else "query+passages"}


def test_a_text_that_is_no_query_is_called_typed(task: Task) -> None:
    (tried,) = TypedSearch().search(task, ["bm25"], Typed("salt craving"))
    assert list(tried.alone.run.query_ids) == ["typed"]
    (nothing,) = TypedSearch().search(task, ["bm25"], Typed("xyzzy"))
    assert nothing.alone.run.row(0) == []
    assert nothing.alone.explanations == {}
    with pytest.raises(UsageError, match="the query is empty"):
        TypedSearch().search(task, ["bm25"], Typed(" \n"))


def test_models_rerankers_and_late_interaction(tmp_path: Path) -> None:
    """A tiny model as the card's own: dense, mean with an expansion, reranked by tokens; nothing typed is on disk."""
    pytest.importorskip("torch", reason="the torch extra is not installed")
    folder = home() / "models" / "bge"
    tiny.save_tokenizer(folder, "bert")
    tiny.save_model(folder, "bert")
    texts = tiny.texts(9)
    small = Task(
        "made",
        (Query("q0", texts[0]),),
        Documents.of(Document(f"d{i}", text) for i, text in enumerate(texts)),
        Qrels.from_judgments([("q0", "d0", 1)]),
    )
    search = TypedSearch(options=r2med.Options(device="cpu", threads=1))
    assert "bge" in search.systems()
    dense, reranked = "bge:max_length=64", "bge:max_length=64+maxsim:max_length=64,model=bge@4"
    typed = Typed(texts[3], texts[5], instead=True)
    search.search(small, [dense, reranked], Typed(texts[1]))
    before = {path: path.read_bytes() for path in home().rglob("*") if path.is_file()}
    first, second = search.search(small, [dense, reranked], typed)
    assert {path: path.read_bytes() for path in home().rglob("*") if path.is_file()} == before
    assert first.policies == {dense: "mean"}
    assert all("does not say" in e.note for e in first.alone.explanations.values())
    places = {h.doc_id: rank for rank, h in enumerate(first.alone.run.row(0), 1)}
    for hit in second.alone.run.row(0)[:4]:
        explained = second.alone.explanations[hit.doc_id]
        assert sum(share.adds for share in explained.shares) == pytest.approx(hit.score, abs=1e-3)
        assert f"Rank {places[hit.doc_id]} before reranking." in explained.note


@pytest.mark.parametrize(
    "text",
    [
        "os:system", "tests.own_models:Letters", "run:/etc/passwd", "/etc", "./here", "~/model", "org/model",
        "bge-small:prompts=/etc/passwd", "bge-small:device=cpu", "bm25:threads=9", "bge-small:trust_remote_code=yes",
        "bm25+maxsim:model=/etc@5", "bm25+maxsim:model=org/model@5", "bm25+neighbours:model=openai@5",
        "hyde:gpt4+bm25", "rm3+bm25", "openai", "smollm2", "bm25+yesno:smollm2@5", "bm25+rankgpt:gpt4@5",
        "bm25+bge-small", "bm25:k1=x", "bm25:what=1", "bm25:/etc", "%6fs:system", "bm25,bm25", "", "+", "bm25+",
        "bm25+" * 100 + "bm25.rrf", "nano:bm25", "b\u0000m25",
    ],
)  # fmt: skip
def test_what_is_not_here_or_names_a_file_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        check_spec(text, HERE)


@pytest.mark.parametrize(
    "text",
    [
        "bm25", "bm25:b=0.75,k1=1.2", "bm25+bge-small.rrf:k=10", "bm25+bge-small:max_length=128.rrf:k=10",
        "bm25+msmarco-minilm@10", "bm25+bge-small.weighted:w=0.3/0.7+neighbours@100", "bm25+maxsim:max_length=64@5",
        "bm25+bge-small@20",
    ],
)  # fmt: skip
def test_whole_systems_of_what_is_here_are_read(text: str) -> None:
    assert str(check_spec(text, HERE)) == text


def test_services_are_never_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key makes a service ready to use, and asking it would send the query away."""
    for name in ("OPENAI_API_KEY", "VOYAGE_API_KEY", "GEMINI_API_KEY", "COHERE_API_KEY"):
        monkeypatch.setenv(name, "sk-test")
    assert not {"openai", "openai-small", "voyage", "gemini-embed", "cohere-embed"} & set(names_here())
    assert {"bm25", "bm25-lucene", "bm25-nano"} <= set(names_here())


def test_stored_systems_that_run_here_stand_first() -> None:
    listed = TypedSearch().systems(["hyde:gpt4+bm25", FUSED, "mine~12345678", "bm25"])
    assert listed[:2] == [FUSED, "bm25"]
    assert not {"hyde:gpt4+bm25", "mine~12345678"} & set(listed)


def test_the_same_texts_under_another_family_are_another_task(task: Task) -> None:
    """Models are instructed by family: the second task was searched with the instructions of the first."""
    search = TypedSearch()
    for one in (task, replace(task, family="qa-reference"), replace(task, name="other")):
        search.search(one, ["bm25"], Typed("cough"))
        assert next(reversed(search._kept.values())).task.family == one.family
    assert [kept.task.name for kept in search._kept.values()] == [task.name, task.name, "other"]


def test_memory_is_bounded(task: Task) -> None:
    other = r2med.load("mini@1/Biology")
    search = TypedSearch()
    search.search(task, ["bm25"], Typed("fever"))
    one = search.nbytes
    assert one > task.documents.texts.nbytes
    search.search(other, ["bm25"], Typed("fever"))
    assert search.nbytes > one
    tight = TypedSearch(memory=max(4 * task.documents.nbytes, 4 * other.documents.nbytes))
    for number in range(30):  # postings differ with k1, and all of them hang on the same documents
        for each in (task, other):
            (tried,) = tight.search(each, [f"bm25:k1={1 + number / 100:g}"], Typed("the patient has cells"))
            assert tried.alone.run.row(0)
            assert tight.nbytes <= tight.memory
    with pytest.raises(
        UsageError, match=r"mini@1/MedQA-Diag is too large to be searched here: about \d+[KM]B of memory, not 98KB"
    ):
        TypedSearch(memory=100_000).search(task, ["bm25"], Typed("fever"))


def test_a_model_that_would_encode_for_long_is_refused(monkeypatch: pytest.MonkeyPatch, task: Task) -> None:
    folder = home() / "models" / "bge"
    pytest.importorskip("torch", reason="the torch extra is not installed")
    tiny.save_tokenizer(folder, "bert")
    tiny.save_model(folder, "bert")
    monkeypatch.setattr("r2med.pipeline.typed.ENCODED", 20)
    with pytest.raises(
        UsageError, match=r"would first have to encode \d+ documents of mini@1/MedQA-Diag: r2med run --t"
    ):
        TypedSearch().search(task, ["bge:max_length=64"], Typed("fever"))
