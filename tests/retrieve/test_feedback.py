"""Feedback on terms against Anserini's output and a plain reference; on vectors against the formula."""

from __future__ import annotations

import hashlib
import math
import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import r2med
from r2med.core import Document, Documents, Qrels, Query, Run, Task, TextColumn
from r2med.core.queries import Feedback, Queries
from r2med.retrieve import get_retriever
from r2med.retrieve.bm25 import BM25Lucene, _in_one_byte
from r2med.retrieve.dense import DenseRetriever
from r2med.retrieve.vectors import unit
from r2med.scoring import score
from r2med.text import get_analyzer
from tests.conftest import SHARED_DATA

RM3 = Feedback("rm3", "lexical", 10, 0.5, 0.5, 10)
ROCCHIO = Feedback("rocchio", "lexical", 10, 1.0, 0.75, 10)
TIED = "756"
"""The query whose tenth and eleventh document tie in the first search: Lucene takes the one with the smaller id."""
# Anserini 1.7.1 on SciFact: title and text as contents, BM25 (k1 0.9, b 0.4), -rm3 and -rocchio at their defaults.
# nDCG@10 and SHA-256 of "query doc … doc" lines, the best ten of each query but the tied one, queries sorted.
ANSERINI = [
    (RM3, 0.6467, "bea636d66554891506b246d009e5dd2bc293c2ffa56209807a7b96ed3132c27f"),
    (ROCCHIO, 0.6287, "c344aafc6816c96764775436eedfc47d914a27a5da7e60afa8780f4231cd16f1"),
]


@pytest.fixture(scope="module")
def scifact() -> Task:
    if not (SHARED_DATA / "scifact").is_dir():
        pytest.skip("SciFact is not beside the project")
    task = r2med.load(str(SHARED_DATA / "scifact"))
    kept = tuple(query for query in task.queries if query.id != TIED)
    judged = Qrels.from_judgments(judgment for judgment in task.qrels if judgment.query_id != TIED)
    return replace(task, queries=kept, qrels=judged)


def searched(retriever: str, task: Task, *feedback: Feedback, depth: int = 1000) -> Run:
    queries = Queries(task.query_ids, task.query_texts, None, feedback)
    return get_retriever(retriever).prepare(task).search(queries, depth)


def best(run: Run, row: int, count: int = 10) -> list[str]:
    return [run.doc_ids[document] for document in run.docs[row, :count].tolist() if document >= 0]


@pytest.mark.parametrize(("feedback", "ndcg", "digest"), ANSERINI)
def test_anserini_ranks_alike(scifact: Task, feedback: Feedback, ndcg: float, digest: str) -> None:
    run = searched("bm25-lucene:lengths=byte", scifact, feedback)
    ranked = {query_id: best(run, row) for row, query_id in enumerate(run.query_ids)}
    lines = "\n".join(f"{query_id} {' '.join(ranked[query_id])}" for query_id in sorted(ranked))
    assert len(ranked) == 299
    assert hashlib.sha256(lines.encode()).hexdigest() == digest
    assert round(score(run, scifact.qrels).mean(), 4) == ndcg


def test_lengths_in_one_byte() -> None:
    """Lucene's SmallFloat: exact below 40, then ever coarser."""
    lengths = np.array([0, 1, 23, 24, 39, 40, 41, 42, 43, 100, 1000, 123_456])
    assert _in_one_byte(lengths).tolist() == [0, 1, 23, 24, 39, 40, 40, 42, 42, 96, 984, 122_904]
    assert str(BM25Lucene(lengths="byte").spec) == "bm25-lucene:lengths=byte"
    assert "lengths" not in BM25Lucene().describe()
    assert BM25Lucene(lengths="byte").describe()["lengths"] == "byte"


def a_task() -> Task:
    texts = [
        "croup croup stridor toddler", "stridor larynx larynx swelling", "larynx paralysis voice", "milk gut lactase",
        "gut gut bacteria", "fever hypothalamus", "skin rash", "kidney stone", "liver enzyme", "heart valve",
        "bone fracture", "eye lens", "ear drum", "tooth decay", "nail fungus", "hair loss", "lung scar",
        "spleen rupture", "joint gout", "nerve palsy", "brain tumour",
    ]  # fmt: skip
    queries = (
        Query("q1", "croup stridor unheardof"),
        Query("q2", "nothing of this kind exists"),
        Query("q3", "gut gut"),
    )
    documents = Documents.of(Document(f"d{i:02}", text) for i, text in enumerate(texts))
    return Task("t", queries, documents, Qrels.from_judgments([("q1", "d00", 1)]))


def by_hand(task: Task, text: str, feedback: Feedback) -> Counter[str]:
    """The weights of the second search, written out term by term."""
    analyze = get_analyzer("english")
    held = [Counter(analyze(document.text)) for document in task.documents]
    frequency = Counter(term for counts in held for term in counts)
    one = replace(task, queries=(Query("q", text),))
    run = get_retriever("bm25-lucene").prepare(one).search(Queries.of(one), feedback.documents)
    found = [(held[d], float(s)) for d, s in zip(run.docs[0].tolist(), run.scores[0].tolist(), strict=True) if d >= 0]
    model: Counter[str] = Counter()
    for counts, points in found:
        usable = {t: n for t, n in counts.items() if 2 <= len(t) <= 20 and frequency[t] / len(held) <= 0.1}
        if feedback.method == "rm3":
            usable = dict(sorted(usable.items(), key=lambda pair: (-pair[1], pair[0]))[: feedback.terms])
            total = sum(usable.values())
            model.update({t: n / total * points for t, n in usable.items()})
        else:
            length = math.sqrt(sum(n * n for n in usable.values()))
            model.update({t: n / length / len(found) for t, n in usable.items()})
    model = Counter(dict(sorted(model.items(), key=lambda pair: (-pair[1], pair[0]))[: feedback.terms]))
    query = Counter(analyze(text))
    power = 1 if feedback.method == "rm3" else 2

    def norm(vector: Counter[str]) -> float:
        return float(sum(value**power for value in vector.values())) ** (1 / power) or 1.0

    return Counter(
        {
            term: feedback.query_weight * query[term] / norm(query)
            + feedback.feedback_weight * model[term] / norm(model)
            for term in {*query, *model}
            if term in frequency
        }
    )


@pytest.mark.parametrize("feedback", [RM3, ROCCHIO, RM3._replace(terms=2, documents=2), ROCCHIO._replace(terms=3)])
def test_terms_are_those_of_the_formula(feedback: Feedback) -> None:
    task = a_task()
    index = BM25Lucene().prepare(task).index
    pointers, held, impacts = index.postings
    run = searched("bm25-lucene", task, feedback)
    for row, query in enumerate(task.queries):
        expected: Counter[int] = Counter()
        for term, weight in by_hand(task, query.text, feedback).items():
            (number,) = index.vocabulary.find(TextColumn.from_texts([term]))
            span = slice(pointers[number], pointers[number + 1])
            for document, impact in zip(held[span].tolist(), impacts[span].tolist(), strict=True):
                expected[document] += weight * impact
        ranked = {d: s for d, s in zip(run.docs[row].tolist(), run.scores[row].tolist(), strict=True) if d >= 0}
        assert ranked == pytest.approx(dict(expected), rel=1e-5)
    assert best(run, 0)[:1] == ["d00"]
    assert best(run, 1) == []  # a query without a known term finds nothing, twice


def test_feedback_reaches_documents_that_share_no_word() -> None:
    task = a_task()
    assert "d02" not in best(searched("bm25", task), 0)
    assert "d02" in best(searched("bm25", task, RM3), 0)  # through `larynx` of d01


@pytest.mark.parametrize("retriever", ["bm25", "bm25-nano"])
def test_every_bm25_feeds_back(retriever: str) -> None:
    task = a_task()
    once, twice = searched(retriever, task), searched(retriever, task, RM3)
    assert (twice.lengths() >= once.lengths()).all()
    again = searched(retriever, task, RM3, ROCCHIO)
    assert not np.array_equal(again.scores, twice.scores)  # feedback on feedback


def test_queries_with_feedback_are_others() -> None:
    task = a_task()
    plain, more = Queries.of(task), Queries(task.query_ids, task.query_texts, None, (RM3,))
    assert plain.fingerprint != more.fingerprint
    assert pickle.loads(pickle.dumps(more)).feedback == (RM3,)
    assert pickle.loads(pickle.dumps(more)).fingerprint == more.fingerprint


class Directions:
    """An encoder that gives each word a direction."""

    name = "directions"
    words = ("croup", "stridor", "larynx", "gut", "milk")

    def encode(self, texts: list[str], **_: object) -> np.ndarray:
        rows = [[text.split().count(word) + 0.01 for word in self.words] for text in texts]
        return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize(
    ("feedback", "alpha", "beta"),
    [
        (Feedback("vector-rocchio", "dense", 2, 0.4, 0.6), 0.4, 0.6),
        (Feedback("vector-average", "dense", 2, 0, 0), 1 / 3, 2 / 3),
    ],
)
def test_vectors_move_towards_what_was_found(feedback: Feedback, alpha: float, beta: float) -> None:
    from r2med.retrieve import as_retriever

    task, encoder = a_task(), Directions()
    retriever = as_retriever(encoder)
    assert isinstance(retriever, DenseRetriever)
    documents = unit(encoder.encode([document.text for document in task.documents]))
    queries = unit(encoder.encode([query.text for query in task.queries]))
    index = retriever.prepare(task)
    first = index.search(Queries.of(task), 2)
    second = index.search(Queries(task.query_ids, task.query_texts, None, (feedback,)), 21)
    for row in range(len(queries)):
        moved = alpha * queries[row] + beta * documents[first.docs[row]].mean(axis=0)
        expected = documents @ (moved / np.linalg.norm(moved))
        assert second.scores[row] == pytest.approx(expected[second.docs[row]], abs=1e-5)
