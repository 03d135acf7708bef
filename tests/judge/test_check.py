from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import r2med
from r2med.cli import app
from r2med.core import DataError, Document, Query, Run, UsageError
from r2med.judge import Pooled, Project, Settings, System, create_project, open_project
from r2med.judge.check import Check, check_project
from r2med.pipeline.artefacts import artefacts

from .judging import judge_all

TEN = 10


def project_of(folder: Path, rankings: dict[str, dict[str, list[str]]], depth: int = 3, **more: Any) -> Project:
    """A project whose pool is the first documents of these rankings."""
    queries = list(next(iter(rankings.values())))
    runs = {
        name: Run.from_rankings({q: [(d, -float(i)) for i, d in enumerate(docs)] for q, docs in of.items()}, name=name)
        for name, of in rankings.items()
    }
    pool = []
    for query in queries:
        ranks: dict[str, dict[str, int]] = {}
        for name, of in rankings.items():
            for rank, doc in enumerate(of[query][:depth], start=1):
                ranks.setdefault(doc, {})[name] = rank
        pool += [Pooled(query_id=query, doc_id=doc, systems=found) for doc, found in ranks.items()]
    settings = Settings(
        name="p", depth=depth, source="x", corpus_fingerprint="", documents=100, judges_per_pair=1,
        systems=tuple(System(name=name, run=f"{i}.trec") for i, name in enumerate(rankings)), **more,
    )  # fmt: skip
    passages = [Document(d, f"text of {d}") for d in sorted({p.doc_id for p in pool})]
    return create_project(
        folder, settings, queries=[Query(q, q) for q in queries], passages=passages, pool=pool, runs=runs
    )


def checked(project: Project, relevant: set[str]) -> Check:
    judge_all(project, "Ada", lambda pooled: int(pooled.doc_id in relevant))
    return check_project(project)


def test_a_system_as_if_it_had_not_been_pooled(tmp_path: Path) -> None:
    project = project_of(
        tmp_path / "p",
        {
            "one": {"q1": ["a", "b"], "q2": ["c"]},
            "two": {"q1": ["a", "x"], "q2": ["y"]},
        },
    )
    found = checked(project, {"a", "c", "y"})
    one, two = found.systems
    assert one.ndcg == pytest.approx((1 + 1 / (1 + 1 / np.log2(3))) / 2)
    assert (one.judged, one.found_alone) == (1.0, 2)
    # Without what only `one` found, b and c are unjudged: q1 stays 1, q2 becomes 0.
    assert (one.ndcg_outside, one.judged_outside) == (0.5, 0.25)
    assert two.ndcg == one.ndcg
    assert two.ndcg_outside == 0.5
    assert (one.rank, one.rank_outside) == (1, 2)
    assert found.verdicts[1].level == "warning"
    assert "Had one not been pooled" in found.verdicts[1].text or "Had two" in found.verdicts[1].text


def test_what_is_made_from_a_system_is_left_out_with_it(tmp_path: Path) -> None:
    both = {"q1": ["a", "b"], "q2": ["c"]}
    project = project_of(
        tmp_path / "p", {"bm25": both, "bm25-lucene": {"q1": ["x"], "q2": ["y"]}, "bm25+bm25-lucene.rrf": both}
    )
    bm25, lucene, fused = checked(project, {"a", "c", "x"}).systems
    assert bm25.derived == lucene.derived == ["bm25+bm25-lucene.rrf"]
    assert fused.derived == []
    assert (bm25.ndcg_outside, fused.ndcg_outside) == (0.0, fused.ndcg)


def test_a_system_with_another_expansion_or_reranker_is_not_made_from_it(tmp_path: Path) -> None:
    """It was left out with it, which made the pool look worse than it is."""
    ranked = {"q1": ["a", "b"], "q2": ["c"]}
    names = ["bm25", "hyde:gpt4+bm25", "lamer:gpt4+bm25+maxsim@50", "hyde:gpt4+bm25+maxsim@50", "bm25+maxsim@20"]
    found = checked(project_of(tmp_path / "p", dict.fromkeys(names, ranked)), {"a", "c"}).systems
    bm25, hyde, lamer, reranked, plain = (set(row.derived) for row in found)
    assert bm25 == set(names[1:])
    assert hyde == {"hyde:gpt4+bm25+maxsim@50"}
    assert lamer == reranked == plain == set()


def test_one_system_alone(tmp_path: Path) -> None:
    found = checked(project_of(tmp_path / "p", {"one": {"q1": ["a", "b"], "q2": ["c"]}}), {"a", "c"})
    assert found.systems[0].ndcg_outside is None
    assert found.depths == []
    assert found.power is None
    assert "one system" in found.verdicts[1].text


def test_the_depth_from_which_the_order_stays(tmp_path: Path) -> None:
    project = project_of(
        tmp_path / "p", {"one": {"q1": ["a", "b", "e"], "q2": ["c", "d"]}, "two": {"q1": ["x", "y"], "q2": ["c", "z"]}}
    )
    found = checked(project, {"a", "c", "x", "y", "z"})
    assert [(d.depth, d.same_order) for d in found.depths] == [(1, False), (2, True), (3, True)]
    assert found.stable_depth == 2
    assert found.depths[0].tau == 0.0  # the two are equal at depth 1
    assert found.depths[-1].tau == 1.0


def test_queries_that_nobody_or_everybody_solves(tmp_path: Path) -> None:
    filler = [f"f{i}" for i in range(TEN)]
    project = project_of(
        tmp_path / "p",
        {
            "one": {"easy": ["a"], "hard": [*filler, "h"], "empty": ["n"], "fair": ["g", "b"]},
            "two": {"easy": ["a"], "hard": [*filler, "h"], "empty": ["n"], "fair": ["b", "g"]},
        },
        depth=11,
    )
    found = checked(project, {"a", "h", "b"})
    assert (found.unsolved, found.solved_by_all, found.queries_without_relevant) == (["hard"], ["easy"], ["empty"])
    assert found.queries == 3


def test_discrimination_is_the_correlation_with_the_other_queries(tmp_path: Path) -> None:
    names = ["s1", "s2", "s3", "s4"]
    rng = np.random.default_rng(3)
    docs = ["r", "u", "v", "w"]
    rankings = {n: {f"q{q}": [f"{d}{q}" for d in rng.permutation(docs)] for q in range(6)} for n in names}
    found = checked(project_of(tmp_path / "p", rankings, depth=4), {f"r{q}" for q in range(6)})
    matrix = np.array([[1 / np.log2(2 + rankings[n][f"q{q}"].index(f"r{q}")) for q in range(6)] for n in names])
    for q, row in enumerate(found.per_query):
        others = np.delete(matrix, q, axis=1).mean(axis=1)
        if np.ptp(matrix[:, q]) > 0:
            assert row.discrimination == pytest.approx(np.corrcoef(matrix[:, q], others)[0, 1])
        else:
            assert row.discrimination is None
    assert found.power is not None


def test_judgments_in_progress(tmp_path: Path) -> None:
    project = project_of(tmp_path / "p", {"one": {"q1": ["a", "b"]}, "two": {"q1": ["b", "a"]}})
    with pytest.raises(UsageError, match="no query has a passage"):
        check_project(project)
    judge_all(project, "Ada", lambda pooled: 1 if pooled.doc_id == "a" else None, finished=False)
    with pytest.raises(UsageError, match="Ada have not finished"):
        check_project(project)
    found = check_project(project, unfinished=True)
    assert (found.graded, found.pairs, found.queries_open) == (1, 2, ["q1"])
    assert found.verdicts[0].level == "warning"
    assert [(j.name, j.finished, j.graded, j.seconds) for j in found.judges] == [("Ada", False, 1, 7.0)]


def test_scores_are_those_of_the_published_judgments(tmp_path: Path) -> None:
    made = tmp_path / "p"
    r2med.judge_pool("mini@1/Biology", "bm25", "bm25-lucene", "bm25:b=0.1", out=made, depth=10, judges=1)
    judge_all(open_project(made), "Ada", lambda pooled: pooled.known or 0)
    found = r2med.judge_check(made)
    done = r2med.judge_finish(made, tmp_path / "own")
    task = r2med.load(str(tmp_path / "own"))
    assert {s.system: s.ndcg for s in found.systems} == pytest.approx(
        {name: r2med.evaluate(name, task, depth=100).mean() for name in ("bm25", "bm25-lucene", "bm25:b=0.1")}
    )
    assert done.counts.queries == found.queries
    assert all(s.judged == 1.0 for s in found.systems)
    (audited,) = artefacts([task]).tasks
    assert found.artefacts == done.check.artefacts == audited.findings
    warned = [remark.text for remark in found.verdicts if remark.text.startswith("Artefact: ")]
    assert len(warned) == sum(finding.verdict == "fails" for finding in found.artefacts) > 0  # the first Mini had some


def test_artefacts_are_looked_for_where_the_corpus_is(tmp_path: Path) -> None:
    folder, corpus = tmp_path / "p", tmp_path / "corpus.jsonl"
    shutil.copy(Path(r2med.__file__).parent / "tasks" / "mini1" / "Biology" / "corpus.jsonl", corpus)
    r2med.judge_pool(corpus, "bm25", out=folder, depth=3, judges=1, queries=_questions(tmp_path))
    judge_all(open_project(folder), "Ada", lambda pooled: int(pooled.systems["bm25"] == 1))
    assert {finding.verdict for finding in r2med.judge_check(folder).artefacts} == {"cannot be told"}  # one query
    moved = corpus.rename(tmp_path / "moved.jsonl")
    without = r2med.judge_check(folder)
    assert without.artefacts == []
    assert "not at hand" in without.verdicts[-1].text
    assert r2med.judge_check(folder, corpus=moved).artefacts
    moved.write_bytes(moved.read_bytes().replace(b"cell", b"sell"))
    with pytest.raises(DataError, match="changed since"):
        r2med.judge_check(folder, corpus=moved)


def _questions(folder: Path) -> Path:
    (folder / "questions.jsonl").write_text('{"id": "q1", "text": "why do cells divide"}\n')
    return folder / "questions.jsonl"


def test_the_command_prints_what_was_found(tmp_path: Path) -> None:
    project = project_of(tmp_path / "p", {"one": {"q1": ["a", "b"]}, "two": {"q1": ["b", "a"]}})
    judge_all(project, "Ada", lambda pooled: int(pooled.doc_id == "a"))
    shown = CliRunner().invoke(app, ["judge", "check", str(tmp_path / "p")])
    assert shown.exit_code == 0
    assert "Had two not been pooled" in shown.output or "Had one not been pooled" in shown.output
    document = json.loads(CliRunner().invoke(app, ["judge", "check", str(tmp_path / "p"), "--json"]).stdout)
    assert document["schema"] == 1
    assert [s["system"] for s in document["systems"]] == ["one", "two"]
    gone = CliRunner().invoke(app, ["judge", "check", str(tmp_path / "nowhere")])
    assert gone.exit_code
