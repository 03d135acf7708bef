from __future__ import annotations

import numpy as np
import pytest

from r2med.core import Task, UsageError
from r2med.expand import POLICIES, Expansion, Expansions, group_vectors, query_groups, retrieve_groups
from r2med.retrieve.dense import DenseRetriever
from tests.retrieve.encoders.hashing import HashEncoder


def expansions(task: Task, *texts: str) -> Expansions:
    items = {q.id: Expansion(query_id=q.id, original=q.text, texts=texts, statuses=("ok",)) for q in task.queries}
    return Expansions("hyde", {}, items)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_the_mean_of_the_vectors(task: Task, similarity: str) -> None:
    encoder = HashEncoder()
    retriever = DenseRetriever(encoder, cache=False, similarity=similarity)  # type: ignore[arg-type]
    groups = query_groups(task, expansions(task, "one", "two"), POLICIES["mean"])
    got = group_vectors(retriever, groups)
    for row, query in enumerate(task.queries):
        raw = np.concatenate([encoder.encode([query.text], "query"), encoder.encode(["one", "two"], "document")])
        if similarity == "cosine":
            raw /= np.linalg.norm(raw, axis=1, keepdims=True)
        np.testing.assert_allclose(got[row], raw.mean(axis=0), atol=1e-6)


def test_without_texts_it_is_the_raw_run(task: Task) -> None:
    retriever = DenseRetriever(HashEncoder(), cache=False)
    run = retrieve_groups(retriever, task, query_groups(task, expansions(task), POLICIES["mean"]), depth=4)
    raw = retriever.retrieve(task, depth=4)
    assert np.array_equal(run.docs, raw.docs)
    np.testing.assert_allclose(run.scores, raw.scores, atol=1e-6)


def test_a_passage_that_is_the_document_finds_it(task: Task) -> None:
    retriever = DenseRetriever(HashEncoder(), cache=False)
    passage = task.documents.texts[1]
    run = retrieve_groups(retriever, task, query_groups(task, expansions(task, *[passage] * 5), POLICIES["mean"]))
    assert [run.row(i)[0].doc_id for i in range(3)] == ["d2"] * 3
    assert run.notes == {"averaged_texts": 18}


def test_groups_must_fit(task: Task) -> None:
    retriever = DenseRetriever(HashEncoder(), cache=False)
    with pytest.raises(UsageError, match="1 groups do not fit the 3 queries"):
        retrieve_groups(retriever, task, query_groups(task, expansions(task), POLICIES["mean"])[:1])
