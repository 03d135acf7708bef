from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import r2med
from r2med.core import DataError, Document, Documents, HostileData, Qrels, Query, Run, Task, UsageError
from r2med.judge import Settings, open_project
from r2med.judge.pool import Copies, build_pool
from r2med.retrieve import bm25

Write = Callable[..., Path]
LONG = "the patient had fever and a cough for three days and was given paracetamol by the nurse on the ward at night"


def settings(**more: Any) -> Settings:
    given: dict[str, Any] = {"name": "p", "depth": 2, "source": "x", "corpus_fingerprint": "", "documents": 0}
    return Settings(**given | more)


def corpus(*texts: str) -> Documents:
    return Documents.of(Document(f"d{i}", text) for i, text in enumerate(texts))


def task_of(documents: Documents, judgments: list[tuple[str, str, int]], queries: str = "q1 q2") -> Task:
    asked = tuple(Query(q, f"text of {q}") for q in queries.split())
    return Task("t", asked, documents, Qrels.from_judgments(judgments))


def run_of(**rankings: str) -> Run:
    return Run.from_rankings({q: [(d, -float(i)) for i, d in enumerate(r.split())] for q, r in rankings.items()})


@pytest.fixture
def folder(tmp_path: Path) -> Write:
    """Writes a corpus and, where they are given, queries and judgments."""

    def write(name: str = "own", *, documents: Any = None, queries: Any = None, qrels: Any = None) -> Path:
        made = tmp_path / name
        made.mkdir()
        texts = documents or {"a": "heart failure and digoxin", "b": "asthma and inhalers", "c": "fever in children"}
        for file, lines in (
            ("corpus.jsonl", [{"id": i, "text": t} for i, t in texts.items()]),
            ("query.jsonl", [{"id": i, "text": t} for i, t in (queries or {}).items()]),
            ("qrels.jsonl", [{"q_id": q, "p_id": d, "score": g} for q, d, g in qrels or []]),
        ):
            if lines:
                (made / file).write_text("".join(json.dumps(line) + "\n" for line in lines))
        return made

    return write


def test_tops_are_merged_and_the_best_ranked_copy_stands_for_all() -> None:
    documents = corpus(LONG, "asthma", LONG.upper(), "gout", f"{LONG} again", "unrelated")
    runs = {"one": run_of(q1="d2 d1 d0", q2="d3"), "two": run_of(q1="d1 d0", q2="")}
    pool = build_pool(task_of(documents, []), runs, settings())
    assert [(p.query_id, p.doc_id, p.copies, p.systems) for p in pool] == [
        ("q1", "d1", (), {"one": 2, "two": 1}),
        ("q1", "d2", ("d0", "d4"), {"one": 1, "two": 2}),  # d4 is in no ranking, and gets the grade all the same
        ("q2", "d3", (), {"one": 1}),
    ]


def test_copies_are_copies_of_the_passage_itself() -> None:
    words = [f"w{i}" for i in range(60)]
    chain = [" ".join(words[i : i + 50]) for i in (0, 1, 2)]  # neighbours are alike, the ends less so
    copies = Copies(corpus(*chain, "ÉTUDE", "étude", ""), 0.95)
    assert [copies.of(i) for i in range(6)] == [[1], [0, 2], [1], [4], [3], []]


def test_judgments_that_came_with_the_data_are_kept() -> None:
    documents = corpus(LONG, LONG.upper(), "asthma", "gout")
    task = task_of(documents, [("q1", "d1", 2), ("q1", "d3", 1), ("q1", "gone", 1)], "q1")
    runs = {"one": run_of(q1="d0 d2")}
    assert [(p.doc_id, p.known) for p in build_pool(task, runs, settings())] == [("d0", 2), ("d2", None)]
    more = build_pool(task, runs, settings(pool_known=True))
    assert [(p.doc_id, p.known, p.systems) for p in more][2:] == [("d3", 1, {})]


@given(st.integers(0, 5), st.integers(1, 4), st.permutations(["q1", "q2", "q3"]))
def test_another_query_changes_no_sample(seed: int, sample: int, order: list[str]) -> None:
    documents = corpus(*(f"word{i} text{i}" for i in range(8)))
    runs = {"one": run_of(q1="d0 d1", q2="d2", q3="d0")}
    all_of = build_pool(task_of(documents, [], " ".join(order)), runs, settings(seed=seed, sample=sample))
    for query in order:
        alone = build_pool(task_of(documents, [], query), {"one": run_of(**{query: " ".join(
            hit.doc_id for hit in runs["one"].of(query))})}, settings(seed=seed, sample=sample))  # fmt: skip
        assert [p for p in all_of if p.query_id == query] == alone
        drawn = [p for p in alone if p.sampled]
        assert len(drawn) == sample
        assert not {p.doc_id for p in drawn} & {hit.doc_id for hit in runs["one"].of(query)}


@given(st.data())
def test_a_document_is_in_one_group_of_a_query_at_most(data: st.DataObject) -> None:
    texts = data.draw(
        st.lists(st.sampled_from([LONG, LONG.upper(), f"{LONG} more", "a b", "c"]), min_size=1, max_size=8)
    )
    ids = [f"d{i}" for i in range(len(texts))]
    ranking = " ".join(data.draw(st.permutations(ids)))
    pool = build_pool(task_of(corpus(*texts), [], "q1"), {"one": run_of(q1=ranking)}, settings(depth=3, sample=2))
    named = [doc_id for p in pool for doc_id in (p.doc_id, *p.copies)]
    assert len(named) == len(set(named))
    assert set(ranking.split()[:3]) <= set(named)


def test_a_project_from_documents_alone(folder: Write, tmp_path: Path) -> None:
    queries = tmp_path / "asked.jsonl"
    queries.write_text('{"_id": "1", "text": "digoxin"}\n{"_id": "2", "text": "zzz"}\n')
    made = r2med.judge_pool(folder(), "bm25", "bm25-lucene", queries=queries, out=tmp_path / "p", depth=1000)
    assert (made.queries, made.pairs, made.documents, made.empty_queries) == (2, 1, 3, ["2"])
    project = open_project(tmp_path / "p")
    assert project.pool["1"][0].systems == {"bm25": 1, "bm25-lucene": 1}
    assert project.pool["2"] == []
    assert project.runs()["bm25"].of("1")[0].doc_id == "a"
    texts = [("a", "heart failure and digoxin"), ("b", "asthma and inhalers"), ("c", "fever in children")]
    assert project.settings.corpus_fingerprint == Documents.of(Document(*one) for one in texts).fingerprint


def test_one_compressed_file_is_a_corpus_too(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "facts.jsonl.gz", "wt") as stream:
        stream.write('{"_id": "a", "title": "Heart", "text": "digoxin"}\n')
    (tmp_path / "q.jsonl").write_text('{"id": "1", "text": "digoxin"}\n')
    made = r2med.judge_pool(tmp_path / "facts.jsonl.gz", "bm25", queries=tmp_path / "q.jsonl", out=tmp_path / "p")
    assert (made.name, made.pairs) == ("facts", 1)


def test_known_judgments_belong_to_the_same_text(folder: Write, tmp_path: Path) -> None:
    where = folder(queries={"1": "digoxin", "2": "asthma"}, qrels=[("1", "a", 1), ("2", "b", 1)])
    (tmp_path / "q.jsonl").write_text('{"id": "1", "text": "inhalers"}\n{"id": "2", "text": "asthma"}\n')
    made = r2med.judge_pool(where, "bm25", queries=tmp_path / "q.jsonl", out=tmp_path / "p", pool_known=True)
    assert (made.known, made.judgments_left_out) == (1, 1)
    assert [p.known for p in open_project(tmp_path / "p").pool["1"]] == [None]


def test_stored_runs_are_pooled_also_where_they_answer_more_queries(folder: Write, tmp_path: Path) -> None:
    where = folder(queries={"1": "digoxin"})
    run = tmp_path / "mine.trec"
    run.write_text("1 Q0 c 1 2.5 x\n9 Q0 a 1 2.5 x\n")
    r2med.judge_pool(where, "bm25", runs=[run], out=tmp_path / "p")
    pool = open_project(tmp_path / "p").pool["1"]
    assert {p.doc_id: [name.partition("~")[0] for name in p.systems] for p in pool} == {
        "c": ["run:mine"],
        "a": ["bm25"],
    }
    run.write_text("9 Q0 a 1 2.5 x\n")
    with pytest.raises(DataError, match="nothing for any query"):
        r2med.judge_pool(where, runs=[run], out=tmp_path / "p2")
    run.write_text("1 Q0 nowhere 1 2.5 x\n")
    with pytest.raises(DataError, match="unknown document 'nowhere'"):
        r2med.judge_pool(where, runs=[run], out=tmp_path / "p2")


def test_a_stored_result_of_other_data_is_refused(folder: Write, tmp_path: Path) -> None:
    where = folder(queries={"1": "digoxin"}, qrels=[("1", "a", 1)])
    r2med.run("bm25", tasks=str(where), results=tmp_path / "results")
    stored = next((tmp_path / "results").rglob("*.run.gz"))
    r2med.judge_pool(where, runs=[stored], out=tmp_path / "p")
    other = folder("other", queries={"1": "digoxin"}, qrels=[("1", "a", 1)],
                   documents={"a": "digoxin", "b": "x"})  # fmt: skip
    with pytest.raises(DataError, match="whose data are not those"):
        r2med.judge_pool(other, runs=[stored], out=tmp_path / "p2")


def test_pooling_searches_each_retriever_once(folder: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    search = bm25.PreparedBM25.search

    def counted(self: Any, *arguments: Any, **named: Any) -> Run:
        searched.append(1)
        return search(self, *arguments, **named)

    monkeypatch.setattr(bm25.PreparedBM25, "search", counted)
    where = folder(queries={"1": "digoxin", "2": "asthma"})
    r2med.judge_pool(where, "bm25", "bm25-lucene", "bm25+bm25-lucene.rrf", out=tmp_path / "p")
    assert len(searched) == 2


def test_the_ranking_of_a_fusion_is_that_of_a_run(folder: Write, tmp_path: Path) -> None:
    task = r2med.load("mini@1/Biology")
    r2med.judge_pool("mini@1/Biology", "bm25+bm25-lucene.rrf", out=tmp_path / "p", depth=5)
    ranked = open_project(tmp_path / "p").runs()["bm25+bm25-lucene.rrf"]
    r2med.run("bm25+bm25-lucene.rrf", tasks="mini@1/Biology", results=tmp_path / "results")
    stored = r2med.read_run(next((tmp_path / "results").rglob("*.run.gz")))
    for query in task.queries:
        assert [hit.doc_id for hit in ranked.of(query.id)] == [hit.doc_id for hit in stored.of(query.id)[:100]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"id": "1", "text": "a"}', '{"id": "1", "text": "b"}'], r"q\.jsonl:2: query id '1' stands 2 times"),
        (['{"id": "1", "text": "a"}', '{"id": "2", "text": "  "}'], r"q\.jsonl:2: query '2' has no text"),
        (['{"id": "a b", "text": "a"}'], "query id 'a b' is empty or holds white space"),
        (['{"id": "", "text": "a"}'], "query id '' is empty"),
        (['{"id": 1, "text": "a"}'], "expected text, got a whole number"),
        (["nonsense"], "broken JSON"),
        ([], "there are no queries"),
        (['{"id": "1", "text": "a\\u0000"}'], "NUL"),
    ],
)
def test_queries_that_cannot_be_asked(folder: Write, tmp_path: Path, lines: list[str], message: str) -> None:
    (tmp_path / "q.jsonl").write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(DataError, match=message):
        r2med.judge_pool(folder(), "bm25", queries=tmp_path / "q.jsonl", out=tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_what_cannot_be_pooled_is_refused_before_anything_is_written(folder: Write, tmp_path: Path) -> None:
    where, out = folder(queries={"1": "digoxin"}), tmp_path / "p"
    alone = folder("alone")
    empty = tmp_path / "empty"
    empty.mkdir()
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: r2med.judge_pool(alone, "bm25", out=out), "has no queries"),
        (lambda: r2med.judge_pool(where, out=out), "at least one system"),
        (lambda: r2med.judge_pool(where, "bm26", out=out), "bm25"),
        (lambda: r2med.judge_pool(where, "bm25", out=out, near=0.2), "between 0.5 and 1"),
        (lambda: r2med.judge_pool(where, "bm25", out=out, grades=["only"]), "two grades"),
        (lambda: r2med.judge_pool(where, "bm25", out=out, relevant_from=9), "two grades"),
        (lambda: r2med.judge_pool(where, "bm25", out=out, rule="mine"), "Invalid enum"),  # type: ignore[arg-type]
        (lambda: r2med.judge_pool(tmp_path / "nowhere", "bm25", out=out), "nowhere"),
        (lambda: r2med.judge_pool(empty, "bm25", out=out), "no layout"),
        (lambda: r2med.judge_pool("mini@1", "bm25", out=out), "stands for 8 tasks"),
        (lambda: r2med.judge_pool(folder("spaces", documents={"a b": "x"}, queries={"1": "x"}), "bm25", out=out),
         "document id 'a b'"),
        (lambda: r2med.judge_pool(folder("none", queries={"1": "zzz"}), "bm25", out=out), "nothing to judge"),
    ]  # fmt: skip
    for refused, message in refusals:
        with pytest.raises((UsageError, DataError), match=message) as stopped:
            refused()
        assert "\n" not in str(stopped.value)
        assert not out.exists()


def test_a_project_that_is_there_is_left_alone(folder: Write, tmp_path: Path) -> None:
    where = folder(queries={"1": "digoxin"})
    r2med.judge_pool(where, "bm25", out=tmp_path / "p")
    before = {path: path.read_bytes() for path in (tmp_path / "p").rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="is a judging project already"):
        r2med.judge_pool(where, "bm25-lucene", out=tmp_path / "p")
    assert before == {path: path.read_bytes() for path in (tmp_path / "p").rglob("*") if path.is_file()}


def test_a_hostile_project_file(folder: Write, tmp_path: Path) -> None:
    r2med.judge_pool(folder(queries={"1": "digoxin"}), "bm25", out=tmp_path / "p")
    path = tmp_path / "p" / "project.json"
    whole = json.loads(path.read_text())
    elsewhere: list[tuple[dict[str, Any], str]] = [
        ({"systems": [{"name": "x", "run": "../../outside.trec"}]}, "cannot be part of a path"),
        ({"systems": [{"name": "x", "run": "/etc/passwd"}]}, "leads out of its folder"),
    ]
    for change, message in elsewhere:
        path.write_text(json.dumps(whole | change))
        with pytest.raises(HostileData, match=message):
            open_project(tmp_path / "p").runs()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"schema": 2}, "newer r2med"),
        ({"depth": -1}, "counts"),
        ({"depth": 10**40}, "counts"),
        ({"surprise": 1}, "unknown field"),
        ({"grades": ["one"]}, "two grades"),
        ({"seed": "x"}, "Expected `int`"),
    ]
    for change, message in wrong:
        path.write_text(json.dumps(whole | change))
        with pytest.raises(DataError, match=message):
            open_project(tmp_path / "p")
    path.write_text(json.dumps(whole))
    pool = tmp_path / "p" / "pool.jsonl"
    pool.write_text(json.dumps({"query_id": "1", "doc_id": "a", "systems": {"bm25": 10**40}}) + "\n")
    with pytest.raises(DataError, match=r"pool\.jsonl:1: cannot be read"):
        _ = open_project(tmp_path / "p").pool
    path.write_text("[" * 100_000)
    with pytest.raises(DataError, match="not the description"):
        open_project(tmp_path / "p")


def test_rankings_of_a_project_keep_their_order(folder: Write, tmp_path: Path) -> None:
    r2med.judge_pool("mini@1/Biology", "bm25", out=tmp_path / "p", depth=3)
    run = open_project(tmp_path / "p").runs()["bm25"]
    made = r2med.BM25().retrieve(r2med.load("mini@1/Biology")).top(100)
    rows = made.query_ids.positions(run.query_ids)
    assert np.allclose(run.scores, made.scores[rows, : run.depth], rtol=1e-6)
