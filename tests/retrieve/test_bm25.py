"""BM25 against the two libraries whose numbers people publish."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import r2med
from r2med.cache import verify
from r2med.core import Document, Documents, Qrels, Query, Task, UsageError
from r2med.core.options import Options
from r2med.core.queries import Queries, QueryText
from r2med.retrieve import Explains, retrievers
from r2med.retrieve.bm25 import BM25, BM25Lucene, BM25Nano, BM25Parameters
from r2med.text import get_analyzer
from r2med.text.analyzers import ANALYZERS
from r2med.text.english import NANO_STOP_WORDS, stem_nltk

WORDS = ["fever", "cough", "the", "rash", "liver", "Hepatitis", "B", "virus", "µg", "kidney", "stone", "pain", "pain's"]


def make_task(texts: list[str], queries: list[str]) -> Task:
    documents = Documents.of(Document(f"d{i}", text) for i, text in enumerate(texts))
    asked = tuple(Query(f"q{i}", text) for i, text in enumerate(queries))
    return Task("t", asked, documents, Qrels.from_judgments((q.id, "d0", 1) for q in asked))


@pytest.fixture(scope="module")
def task() -> Task:
    rng = random.Random(7)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 60))) for _ in range(300)]
    queries = [" ".join(rng.choices([*WORDS, "unknownword"], k=rng.randint(1, 40))) for _ in range(40)]
    return make_task(texts, queries)


def all_scores(retriever: BM25, task: Task) -> np.ndarray:
    run = retriever.retrieve(task)
    scores = np.zeros((len(task.queries), len(task.documents)))
    for row in range(len(run)):
        held = run.docs[row] >= 0
        scores[row, run.docs[row][held]] = run.scores[row][held]
    return scores


def gensim_scores(task: Task) -> np.ndarray:
    """The retrieval of R2MED's script: gensim's Lucene BM25 on both sides of a sparse product."""
    from gensim.corpora import Dictionary
    from gensim.models import LuceneBM25Model
    from gensim.similarities import SparseMatrixSimilarity

    analyze = get_analyzer("english")
    corpus = [analyze(d.contents) for d in task.documents]
    dictionary = Dictionary(corpus)
    model = LuceneBM25Model(dictionary=dictionary, k1=0.9, b=0.4)
    index = SparseMatrixSimilarity(
        model[[dictionary.doc2bow(tokens) for tokens in corpus]],
        num_docs=len(corpus),
        num_terms=len(dictionary),
        normalize_queries=False,
        normalize_documents=False,
    )
    return np.array([index[model[dictionary.doc2bow(analyze(q.text))]] for q in task.queries])


def bm25s_scores(task: Task) -> np.ndarray:
    import bm25s

    analyze = get_analyzer("english")
    peer = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    peer.index([analyze(d.contents) for d in task.documents], show_progress=False)
    known = [[t for t in analyze(q.text) if t in peer.vocab_dict] for q in task.queries]
    return np.array([peer.get_scores(tokens) if tokens else np.zeros(len(task.documents)) for tokens in known])


def robertson_scores(task: Task) -> np.ndarray:
    """NanoR2MED's builder: bm25s' robertson with its own tokenizer, every query token in order."""
    import bm25s

    def words(texts: Iterable[str]) -> list[list[str]]:
        found = bm25s.tokenize(
            list(texts), token_pattern=r"[A-Za-z0-9]+", stopwords=sorted(NANO_STOP_WORDS),
            stemmer=lambda tokens: [stem_nltk(token) for token in tokens], return_ids=False, show_progress=False,
        )  # fmt: skip
        assert isinstance(found, list)
        return found

    peer = bm25s.BM25(method="robertson", k1=1.5, b=0.75)
    peer.index(words(d.contents for d in task.documents), show_progress=False)
    asked = words(q.text for q in task.queries)
    return np.array([peer.get_scores(tokens) if tokens else np.zeros(len(task.documents)) for tokens in asked])


def test_nano_flavour_has_the_scores_of_bm25s_to_the_last_bit(task: Task) -> None:
    for one in (task, *r2med.load_all("mini@1")):
        assert np.array_equal(all_scores(BM25Nano(), one).astype(np.float32), robertson_scores(one))


@pytest.mark.parametrize(
    "name",
    ["scifact", *(pytest.param(n, marks=pytest.mark.slow)
                  for n in ("bioasq-snippets", "liveqa-med", "evidence", "vignettes"))],
)  # fmt: skip
def test_nano_flavour_ranks_real_sets_as_bm25s(name: str, shared_data: Path) -> None:
    """Equal bits of all scores: the order is theirs wherever their scores differ, and ours among their exact ties."""
    real = r2med.load(shared_data / name)
    run, theirs = BM25Nano().retrieve(real, depth=500), robertson_scores(real)
    by_id = np.argsort(np.argsort([doc_id.encode() for doc_id in run.doc_ids]))
    for row in range(len(run)):
        held = run.docs[row] >= 0
        best = np.lexsort((-by_id, -theirs[row]))[:500]
        best = best[theirs[row][best] > 0]
        assert np.array_equal(run.docs[row][held], best)
        assert np.array_equal(run.scores[row][held], theirs[row][best])


def test_a_term_that_half_the_documents_hold_counts_nothing_in_the_nano_flavour() -> None:
    common = make_task(["fever rash", "fever", "fever cough", "cough"], ["fever", "rash fever", "…"])
    run = BM25Nano().retrieve(common)
    assert [[hit.doc_id for hit in run.row(row)] for row in range(3)] == [[], ["d0"], []]
    assert run.notes == {"queries_without_terms": 1}


def test_flavours_do_not_share_an_index_that_differs(task: Task, kept: Path) -> None:
    """Same analyzer, k1 and b, other idf: the impacts differ in memory and on disk."""
    fresh = again(task)
    lucene, nano = BM25Lucene(), BM25Nano(0.9, 0.4, analyzer="english")
    assert lucene.prepare(fresh).index.postings is not nano.prepare(fresh).index.postings
    found = nano.retrieve(again(task))  # from disk, where the other lies too
    assert np.array_equal(found.scores, nano.retrieve(fresh).scores)
    assert not np.array_equal(found.scores, lucene.retrieve(fresh).scores)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_r2med_flavour_equals_gensim(task: Task) -> None:
    np.testing.assert_allclose(all_scores(BM25(), task), gensim_scores(task), rtol=1e-6, atol=1e-6)


def test_textbook_flavour_equals_bm25s(task: Task) -> None:
    np.testing.assert_allclose(all_scores(BM25Lucene(), task), bm25s_scores(task), rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["scifact", "liveqa-med"])
def test_both_flavours_on_real_sets(name: str, shared_data: object) -> None:
    task = r2med.load(str(shared_data / name))  # type: ignore[operator]
    few = Task(name, task.queries[:40], task.documents, task.qrels)
    np.testing.assert_allclose(all_scores_deep(BM25(), few), gensim_scores(few), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(all_scores_deep(BM25Lucene(), few), bm25s_scores(few), rtol=2e-6, atol=1e-6)


def all_scores_deep(retriever: BM25, task: Task) -> np.ndarray:
    run = retriever.retrieve(task, depth=len(task.documents))
    scores = np.zeros((len(task.queries), len(task.documents)))
    for row in range(len(run)):
        held = run.docs[row] >= 0
        scores[row, run.docs[row][held]] = run.scores[row][held]
    return scores


@pytest.mark.parametrize(
    ("name", "flavour", "low", "high"),
    [
        ("scifact", "bm25-lucene", 0.67, 0.69),
        ("liveqa-med", "bm25", 0.32, 0.34),
        ("bioasq-snippets", "bm25-lucene", 0.70, 0.73),
        ("vignettes", "bm25-lucene", 0.14, 0.16),
    ],
)
def test_real_sets_score_as_measured(name: str, flavour: str, low: float, high: float, shared_data: object) -> None:
    task = r2med.load(str(shared_data / name))  # type: ignore[operator]
    score = r2med.evaluate(flavour, task).mean("nDCG@10")
    assert low <= score <= high


def test_flavours_differ_on_repeated_words() -> None:
    task = make_task(["fever", "cough"], ["fever fever fever fever cough"])
    (first, second), (weighted_first, weighted_second) = (
        retriever.retrieve(task).of("q0") for retriever in (BM25Lucene(), BM25())
    )
    assert first.score / second.score == pytest.approx(4)
    assert 1 < weighted_first.score / weighted_second.score < 2.5


def test_equal_scores_go_by_document_id_descending() -> None:
    task = make_task(["rash"] * 12, ["rash"])
    assert [h.doc_id for h in BM25().retrieve(task).of("q0")] == sorted((f"d{i}" for i in range(12)), reverse=True)


def test_only_documents_that_share_a_term_are_retrieved() -> None:
    task = make_task(["rash", "cough"], ["rash", "the of and", "", "zebra"])
    run = BM25().retrieve(task)
    assert run.lengths().tolist() == [1, 0, 0, 0]
    assert run.notes == {"queries_without_terms": 3}


@pytest.mark.parametrize("bad", [{"k1": -0.1}, {"b": -0.1}, {"b": 1.1}, {"k1": float("nan")}, {"analyzer": "klingon"}])
def test_impossible_parameters_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        BM25(**bad)  # type: ignore[arg-type]


def test_extremes() -> None:
    huge = "liver " * 1_700_000  # 10 MB in one document
    task = make_task([huge, "liver", "", "Größe µg ≥ 漢字"], ["liver", "漢"])
    run = BM25(k1=0.0, b=1.0).retrieve(task, depth=10_000)
    assert run.depth == 4
    assert {h.doc_id for h in run.of("q0")} == {"d0", "d1"}
    assert [h.doc_id for h in run.of("q1")] == ["d3"]
    one = make_task(["rash"], ["rash"])
    assert BM25().retrieve(one).of("q0")[0].score > 0


def test_empty_corpus_text_does_not_divide_by_zero() -> None:
    assert BM25().retrieve(make_task(["", "the"], ["rash"])).lengths().tolist() == [0]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Every index is large enough to be kept; where they lie."""
    monkeypatch.setattr("r2med.retrieve.bm25.LARGE", 0)
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    return tmp_path / "indexes"


def again(task: Task) -> Task:
    """The same task as another process loads it."""
    return replace(task, documents=Documents.of(task.documents))


@pytest.mark.parametrize("retriever", [BM25(), BM25Lucene(k1=1.2, b=0.75)])
def test_a_kept_index_gives_the_same_bits(retriever: BM25, task: Task, kept: Path) -> None:
    made = retriever.retrieve(again(task))
    assert len(list(kept.iterdir())) == 1
    stored = retriever.prepare(again(task))
    assert isinstance(stored.index.postings.docs, np.memmap)
    found = stored.search(Queries.of(task), 1000)
    assert np.array_equal(made.docs, found.docs)
    assert np.array_equal(made.scores, found.scores)


def test_what_changes_an_index_has_an_index_of_its_own(task: Task, kept: Path) -> None:
    other = make_task(["rash and fever", "fever"], ["rash"])
    for one in (task, other):
        for retriever in (BM25(), BM25(k1=1.2), BM25(b=0.75), BM25(analyzer="whitespace")):
            assert np.array_equal(retriever.retrieve(again(one)).docs, retriever.retrieve(again(one)).docs)
    assert len(list(kept.iterdir())) == 8


def test_a_damaged_index_is_made_again(task: Task, kept: Path) -> None:
    made = BM25().retrieve(again(task))
    (folder,) = kept.iterdir()
    (folder / "impacts.npy").write_bytes((folder / "impacts.npy").read_bytes()[:-4] + b"\0\0\0\0")
    found = BM25().retrieve(again(task))
    assert np.array_equal(made.scores, found.scores)
    assert [damage for _, damage in verify(kinds=["indexes"])] == [[]]


def test_without_a_cache_nothing_is_kept(task: Task, kept: Path) -> None:
    BM25(options=Options(cache=False)).retrieve(again(task))
    assert not kept.exists()


@pytest.mark.parametrize("retriever", [BM25(), BM25Lucene(), BM25Nano()])
def test_several_texts_of_a_query_are_averaged(retriever: BM25, task: Task) -> None:
    """Query terms that several texts share are counted in each of them."""
    index = retriever.prepare(task)
    one, other = (q.text for q in task.queries[:2])
    asked = Queries(task.query_ids, task.query_texts, [(QueryText(one), QueryText(other, 3.0))] * len(task.queries))
    plain, both = index.search(Queries.of(task), 300), index.search(asked, 300)
    first, second, mean = (
        {hit.doc_id: hit.score for hit in run.row(row)} for run, row in ((plain, 0), (plain, 1), (both, 5))
    )
    assert set(mean) == set(first) | set(second)
    expected = {doc: (first.get(doc, 0.0) + 3 * second.get(doc, 0.0)) / 4 for doc in mean}
    assert mean == pytest.approx(expected, rel=1e-5)


def test_parameters_are_in_the_name_and_in_the_description() -> None:
    assert [r.name for r in (BM25(), BM25(0.9, 0.4), BM25(1.2), BM25Lucene(b=1.0, analyzer="whitespace"))] == [
        "bm25", "bm25", "bm25:k1=1.2", "bm25-lucene:analyzer=whitespace,b=1",
    ]  # fmt: skip
    assert BM25().describe() != BM25Lucene().describe() != BM25Lucene(k1=1.0).describe()
    assert BM25Lucene().parameters == BM25Parameters(query="count")
    assert all(name in retrievers["bm25"].parameters["analyzer"].help for name in ANALYZERS)


def test_variants_share_terms_and_postings(task: Task) -> None:
    one, other, apart = (r.prepare(task).index for r in (BM25(), BM25Lucene(), BM25(k1=2.0)))
    assert one.postings is other.postings
    assert one.vocabulary is other.vocabulary is apart.vocabulary
    assert one.postings is not apart.postings


@pytest.mark.parametrize(("retriever", "analyzer"), [(BM25(), "english"), (BM25Nano(), "nano-english")])
def test_native_and_python_give_the_same_bits(task: Task, retriever: BM25, analyzer: str) -> None:
    from r2med.retrieve import _native_python, sparse
    from r2med.text.analyzers import ANALYZERS, PYTHON

    native = retriever.retrieve(task)
    kept = sparse.native, ANALYZERS[analyzer]
    again = Task("t", task.queries, Documents.of(task.documents), task.qrels)  # without what was made of the first
    try:
        sparse.native, ANALYZERS[analyzer] = _native_python, PYTHON[analyzer]
        python = retriever.retrieve(again)
    finally:
        sparse.native, ANALYZERS[analyzer] = kept
    assert np.array_equal(native.docs, python.docs)
    assert np.array_equal(native.scores, python.scores)


@pytest.mark.parametrize("made", [BM25(), BM25(k1=2.0, b=0.1), BM25Lucene(), BM25Nano()], ids=lambda r: r.name)
@pytest.mark.parametrize("several", [False, True], ids=["one text", "two texts"])
def test_an_explanation_adds_up_to_the_score(task: Task, made: BM25, several: bool) -> None:
    index = made.prepare(task)
    assert isinstance(index, Explains)
    for query in task.queries[:10]:
        asked = Queries.typed([query.text])
        if several:
            asked = Queries(asked.ids, asked.originals, [(QueryText(query.text), QueryText("kidney stone", 2.0))])
        run = index.search(asked, 300)
        documents = [document for document in run.docs[0][:8].tolist() if document >= 0]
        for score, document, explained in zip(run.scores[0], documents, index.explain(asked, documents), strict=False):
            assert sum(share.adds for share in explained.shares) == pytest.approx(score, rel=1e-5, abs=1e-6)
            terms = [share.part for share in explained.shares]
            assert len(terms) == len(set(terms))
            assert set(terms) <= set(get_analyzer(made.parameters.analyzer)(task.documents[document].contents))
            for share in explained.shares:
                assert share.adds == pytest.approx(np.prod([value for _, value in share.factors]), rel=1e-6)


def test_a_document_without_shared_terms_has_no_shares(task: Task) -> None:
    index = BM25().prepare(make_task(["fever", "cough"], ["fever"]))
    (found,) = index.explain(Queries.typed(["fever"]), [1])
    assert found.shares == ()
    (found,) = index.explain(Queries.typed(["fever fever"]), [0])
    (share,) = found.shares
    assert share.part == "fever"
    assert dict(share.factors)["idf"] == pytest.approx(0.693, abs=0.001)


def test_feedback_is_explained_too(task: Task) -> None:
    from r2med.expand import expanders, queries_for
    from r2med.pipeline import Builder

    one = replace(task, queries=task.queries[:1])
    with Builder() as builder:
        expansions = builder.expander(expanders.parse("rm3")).expand(one)
    queries, _ = queries_for(BM25(), one, expansions)
    index = BM25().prepare(one)
    run = index.search(queries, 5)
    (found,) = index.explain(queries, [int(run.docs[0][0])])
    assert sum(share.adds for share in found.shares) == pytest.approx(run.scores[0][0], rel=1e-5)
