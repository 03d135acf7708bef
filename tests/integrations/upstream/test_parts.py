from __future__ import annotations

import pytest
from r2med.upstream.generating import as_written
from r2med.upstream.names import LLMS, RERANKERS, RETRIEVERS
from r2med.upstream.scores import scores, without_own_id

from r2med.core import Document, Documents, Qrels, Query, Run, Task
from r2med.expand import Expansion
from r2med.expand.replay import as_recorded
from r2med.llm.catalogue import llm_names
from r2med.models import card_names


def test_every_name_of_the_repository_is_known_here() -> None:
    assert set(RETRIEVERS) - {"bm25"} <= set(card_names())
    assert set(RERANKERS.values()) <= set(card_names())
    assert set(LLMS) <= set(llm_names())


@pytest.mark.parametrize("marking", ["none", "think", "think-optional", "final-response", "answer", "hidden"])
def test_what_is_written_is_read_back(marking: str) -> None:
    item = Expansion(query_id="q", original="?", texts=("Wilson disease.",), reasoning=("Copper, then.",))
    assert as_recorded(as_written(item, marking), marking).texts == ("Wilson disease.",)


def test_a_document_with_the_id_of_its_query_is_dropped() -> None:
    documents = Documents.of(Document(i, i) for i in ("a", "b", "c"))
    task = Task(
        "t", (Query("a", "?"), Query("x", "?")), documents, Qrels.from_judgments([("a", "b", 1), ("x", "a", 1)])
    )
    hits = [("a", 3.0), ("b", 2.0), ("c", 1.0)]
    run = Run.from_rankings({"a": hits, "x": hits}, doc_ids=documents.ids)
    kept = without_own_id(run)
    assert [hit.doc_id for hit in kept.of("a")] == ["b", "c"]
    assert kept.of("x") == run.of("x")
    assert scores(kept, task, "dense")["ndcg_at_1"] == 1.0
    assert without_own_id(kept) is kept
