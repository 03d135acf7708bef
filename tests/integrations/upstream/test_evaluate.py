"""What the repository's scripts do to a ranking, and under which names its results lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from r2med.core import DataError, Document, Documents, Qrels, Query, Run, Task, UnknownName
from r2med.core.spec import Content
from r2med.expand import expanders
from r2med.expand.generated import API_LLMS, OPEN_LLMS
from r2med.integrations.upstream import METHODS, OLD_RERANKERS
from r2med.integrations.upstream.evaluate import (
    Gar,
    evaluate_retriever,
    filed_name,
    instructions_of,
    paper_retriever,
    scores,
    without_own_id,
)
from r2med.integrations.upstream.tree import Tree
from r2med.llm import chats
from r2med.models import find_card
from r2med.pipeline.protocol_pack import fetch_pack
from r2med.rerank import rerankers
from r2med.results.protocols import get_protocol, read_protocol
from r2med.retrieve import get_retriever, retrievers
from tests.paper_files import write_clone, write_protocol

RETRIEVERS = (
    *("bm25", "contriever", "medcpt", "inst-l", "inst-xl", "bmr-410m", "bmr-2b", "bmr-7b"),
    *("bge", "e5", "grit", "sfr", "nv", "voyage", "openai"),
)


def test_every_name_of_the_repository_is_known_here() -> None:
    assert set(RETRIEVERS) <= set(retrievers.names())
    assert {"bge-reranker", "monobert", "rankllama"} == set(OLD_RERANKERS.values()) <= set(rerankers.names())
    assert set(METHODS) <= set(expanders.names())
    assert {*OPEN_LLMS, *API_LLMS} <= set(chats.names())


def test_models_go_under_the_papers_protocol() -> None:
    assert str(paper_retriever("bm25")) == "bm25"
    assert str(paper_retriever("own:CustomModel,dim=64")) == "own:CustomModel,dim=64"
    published = [name for name in RETRIEVERS if name != "bm25" and find_card(name) != find_card(name).published()]
    assert published
    for name in published:
        assert paper_retriever(name).get("protocol") == "r2med-paper"
        assert str(paper_retriever(name).without("protocol")) == name
    with pytest.raises(UnknownName, match="did you mean bm25"):
        paper_retriever("bm26")


def tiny() -> Task:
    documents = Documents.of(Document(i, f"fever {i}") for i in ("a", "b", "c"))
    judged = Qrels.from_judgments([("a", "b", 1), ("x", "a", 1)])
    return Task("t", (Query("a", "fever b"), Query("x", "fever a")), documents, judged)


def test_a_document_with_the_id_of_its_query_is_dropped() -> None:
    task = tiny()
    hits = [("a", 3.0), ("b", 2.0), ("c", 1.0)]
    run = Run.from_rankings({"a": hits, "x": hits}, doc_ids=task.documents.ids)
    kept = without_own_id(run)
    assert [hit.doc_id for hit in kept.of("a")] == ["b", "c"]
    assert kept.of("x") == run.of("x")
    assert scores(kept, task, "dense")["ndcg_at_1"] == 1.0
    assert without_own_id(kept) is kept


def test_other_parameters_are_other_results(tmp_path: Path) -> None:
    tree, task = Tree(tmp_path), tiny()
    for spec in ("bm25", "bm25:b=0.1", "bm25:b=0.2", "BM25"):
        assert evaluate_retriever(tree, get_retriever(spec), None, task).kept == (spec == "BM25")
    assert len(list((tmp_path / "results" / "base retriever").iterdir())) == 3
    assert len(list((tmp_path / "output" / "topk_docs").iterdir())) == 3


@pytest.mark.parametrize("llm", ["../../../out", "..", "/tmp", "a/b", "C:\\x", "con"])
def test_names_that_are_typed_stay_in_the_tree(tmp_path: Path, llm: str) -> None:
    root = tmp_path / "a" / "b" / "c"
    task, tree = tiny(), Tree(root)
    texts = tree.texts(task.name, "hyde", llm)
    texts.parent.mkdir(parents=True)
    texts.write_text('{"id": "a", "hy_doc": "fever b"}\n{"id": "x", "hy_doc": "fever a"}\n')
    evaluate_retriever(tree, get_retriever("bm25"), Gar("hyde", llm), task)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 2
    assert all(root in path.parents for path in written)
    assert {len(path.relative_to(root).parts) for path in written} == {5, 6}


def test_names_tell_whose_instructions_a_model_was_given(tmp_path: Path) -> None:
    """The plain name is for the repository's own words."""
    own = paper_retriever("e5")
    assert (filed_name(own), instructions_of(own)) == ("e5:prompts=r2med", "r2med's own")
    assert filed_name(paper_retriever("bge")) == "bge"
    assert (filed_name(paper_retriever("bm25")), instructions_of(paper_retriever("bm25"))) == ("bm25", "")
    digest = fetch_pack(read_protocol(str(write_protocol(tmp_path / "own.toml"))), write_clone(tmp_path / "c")).digest
    other = paper_retriever("e5")
    assert filed_name(other) == f"e5:prompts=r2med-paper~{digest[:8]}", "a pack, but not the published one"
    assert instructions_of(other) == f"r2med-paper~{digest}"
    published = replace(other.get("prompts"), whole=get_protocol("r2med-paper").prompts)  # type: ignore[type-var]
    assert filed_name(other.with_parameters(prompts=published)) == "e5"  # type: ignore[arg-type]
    mine = tmp_path / "mine.toml"
    mine.write_text('[query]\ndefault = "x"\n')
    assert filed_name(paper_retriever("e5", Content.of(mine))) == f"e5:prompts={Content.of(mine)}"


def test_scores_of_texts_made_with_other_prompts_are_not_taken_for_these(tmp_path: Path) -> None:
    tree, task = Tree(tmp_path), tiny()
    texts = tree.texts(task.name, "hyde", "gpt4")
    texts.parent.mkdir(parents=True)
    lines = ['{"id": "a", "hy_doc": "fever b"}', '{"id": "x", "hy_doc": "fever a"}']
    texts.write_text("\n".join(lines))
    gar, bm25 = Gar("hyde", "gpt4"), get_retriever("bm25")
    assert not evaluate_retriever(tree, bm25, gar, task).kept
    texts.write_text("\n".join(line[:-1] + ', "prompts": "r2med\'s own"}' for line in lines))
    with pytest.raises(DataError, match="made with the repository's prompts, not with r2med's own: --overwrite"):
        evaluate_retriever(tree, bm25, gar, task)
    assert not evaluate_retriever(tree, bm25, gar, task, overwrite=True).kept
    assert evaluate_retriever(tree, bm25, gar, task).kept


def test_a_file_of_unfinished_chains_is_searched_with(tmp_path: Path) -> None:
    tree, task = Tree(tmp_path), tiny()
    texts = tree.texts(task.name, "hyde", "qwq-32b")
    texts.parent.mkdir(parents=True)
    texts.write_text('{"id": "a", "hy_doc": "<think>fever b"}\n{"id": "x", "hy_doc": "<think>fever a"}')
    assert evaluate_retriever(tree, get_retriever("bm25"), Gar("hyde", "qwq-32b"), task).value == 1.0
