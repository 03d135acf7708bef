from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import r2med
from r2med.cli import app
from r2med.core import DataError, UsageError
from r2med.judge import Pooled, Project, open_project
from r2med.judge.finish import Kappa
from r2med.tasks import stats

from .judging import judge_all


def call(*arguments: str | Path | int) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def by_known(pooled: Pooled) -> int:
    """What Mini's own judgments say."""
    return 3 * (pooled.known or 0)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of Mini's texts, judged by two people who agree."""
    folder = tmp_path_factory.mktemp("judged") / "project"
    made = call(
        "judge", "pool", "mini@1/Biology", "-s", "bm25", "-s", "bm25-lucene", "--run", _run(folder.parent),
        "--depth", 5,
        "--sample", 2, "--out", folder, "--name", "own-biology", "--licence", "CC0 <b>", "--language", "en",
        "--description", "Questions about cells.", "--json",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["pairs"] > 60
    for name in ("Ada", "Bob"):
        judge_all(open_project(folder), name, by_known)
    return folder


def _run(folder: Path) -> Path:
    task = r2med.load("mini@1/Biology")
    r2med.write_run(r2med.get_retriever("bm25:b=0.2,k1=3").retrieve(task, depth=20), folder / "other.trec")
    return folder / "other.trec"


@pytest.fixture
def copy(judged: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return shutil.copytree(judged, tmp_path / "project")


def test_the_finished_task_passes_every_command(judged: Path, tmp_path: Path) -> None:
    out = tmp_path / "own-biology"
    done = call("judge", "finish", judged, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    counts = json.loads(done.stdout)["counts"]
    assert counts["queries"] + counts["left_out_without_relevant"] == 13
    for command in (
        ("data", "validate", out),
        ("data", "audit", out),
        ("data", "stats", out),
        ("run", "--tasks", out, "-r", "bm25", "--results", tmp_path / "results"),
        ("nano", "build", out, "--out", tmp_path / "nano", "--docs", 40, "--dense", "none"),
        ("pages", tmp_path / "nano", "--out", tmp_path / "pages"),
    ):
        answer = call(*command)
        assert answer.exit_code == 0, (command, answer.output)
    task = r2med.load(str(out))
    assert task.fingerprint == json.loads(done.stdout)["fingerprint"]
    assert len(task.documents) == len(r2med.load("mini@1/Biology").documents)
    assert stats(task).queries == counts["queries"]
    known = {(q, d): g for q, d, g in r2med.load("mini@1/Biology").qrels}
    assert {g for _, _, g in task.qrels} == {0, 3}
    assert all((grade == 3) == (known.get((q, d), 0) > 0) for q, d, grade in task.qrels)


def test_finishing_twice_writes_the_same_bytes(judged: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        r2med.judge_finish(judged, tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["README.md", "corpus.jsonl", "judging.json", "qrels.jsonl", "query.jsonl"]
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_datasheet(judged: Path, tmp_path: Path) -> None:
    judge_all(open_project(judged), "llm:gpt4", by_known, kind="llm")
    made = r2med.judge_finish(judged, tmp_path / "out")
    page = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert made.canary in page
    assert not any(made.canary in (tmp_path / "out" / f"{name}.jsonl").read_text() for name in ("corpus", "query"))
    assert "| llm:gpt4 | LLM |" in page
    assert "| Ada | person |" in page
    assert "CC0 \\<b\\>" in page  # a text from data is no mark-up
    assert made.project in page
    assert "(100 %) equal" in " ".join(page.split())
    (pair,) = r2med.judge_agree(judged).pairs  # of people: the LLM does not count here
    assert made.agreement.kappa == [Kappa(first="Ada", second="Bob", pairs=pair.pairs, linear=pair.kappa["linear"])]
    assert f"- Ada and Bob, {pair.pairs} pairs: κ (Cohen's, linear weights) 1.00" in page
    assert max(map(len, (line for line in page.splitlines() if not line.startswith("|")))) <= 80
    (judged / "judgments").joinpath(open_project(judged).journal_path("llm:gpt4").name).unlink()


def test_copies_get_the_grade(tmp_path: Path) -> None:
    task = tmp_path / "own"
    task.mkdir()
    text = "digoxin slows the heart and strengthens its beat in patients with failure of the left chamber"
    rows = {"a": text, "b": text.upper(), "c": "asthma"}
    (task / "corpus.jsonl").write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in rows.items()))
    (task / "query.jsonl").write_text('{"id": "1", "text": "digoxin"}\n')
    r2med.judge_pool(task, "bm25", out=tmp_path / "p", judges=1, relevant_from=2, sample=1)
    project = open_project(tmp_path / "p")
    judge_all(project, "Ada", lambda pooled: 1 if pooled.sampled else 2)
    made = r2med.judge_finish(tmp_path / "p", tmp_path / "out")
    grades = r2med.load(str(tmp_path / "out")).qrels.of("1")
    assert grades == {"a": 2, "b": 2, "c": 0}  # 1 is below the lowest grade that counts
    assert (made.counts.copies, made.counts.relevant) == (1, 2)


def test_a_changed_corpus_is_refused(tmp_path: Path, judged: Path) -> None:
    task = tmp_path / "own"
    r2med.convert("mini@1/Biology", task, to="r2med")
    r2med.judge_finish(judged, tmp_path / "same", corpus=task)
    lines = (task / "corpus.jsonl").read_text().splitlines(keepends=True)
    (task / "corpus.jsonl").write_text("".join(lines[1:] + lines[:1]))  # another order is another corpus
    with pytest.raises(DataError, match="documents have changed"):
        r2med.judge_finish(judged, tmp_path / "out", corpus=task)
    assert not (tmp_path / "out").exists()


def test_a_corpus_that_is_gone(copy: Path, tmp_path: Path) -> None:
    path = copy / "project.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"source": "/nowhere/at/all"}))
    with pytest.raises(UsageError, match="--corpus"):
        r2med.judge_finish(copy, tmp_path / "out")


def without(project: Project, judge: str, query_id: str) -> None:
    """Take the journal of a judge away, and judge again without one query."""
    project.journal_path(judge).unlink()
    judge_all(project, judge, lambda pooled: None if pooled.query_id == query_id else by_known(pooled))


def test_queries_that_are_not_wholly_judged(copy: Path, tmp_path: Path) -> None:
    whole = r2med.judge_finish(copy, tmp_path / "whole")
    project = open_project(copy)
    some = r2med.load(str(tmp_path / "whole")).queries[0].id
    without(project, "Bob", some)
    made = r2med.judge_finish(copy, tmp_path / "out")
    assert made.counts.left_out_open == 1
    assert made.counts.queries == whole.counts.queries - 1
    assert some not in r2med.load(str(tmp_path / "out")).query_ids


def test_the_figures_of_the_datasheet_are_of_the_published_queries(copy: Path, tmp_path: Path) -> None:
    """A query with one open passage was left out of the task, and counted in the figures about it."""
    project = open_project(copy)
    relevant = next(p.query_id for pool in project.pool.values() for p in pool if p.known)
    skipped = next(p for p in project.pool[relevant] if not p.known)
    project.journal_path("Bob").unlink()
    judge_all(project, "Bob", lambda pooled: None if pooled == skipped else by_known(pooled))
    made = r2med.judge_finish(copy, tmp_path / "out")
    task = r2med.load(str(tmp_path / "out"))
    assert relevant not in task.query_ids
    assert made.check.queries == made.counts.queries == len(made.check.per_query)
    for row in made.check.systems:
        assert row.ndcg == pytest.approx(r2med.score(project.runs()[row.system], task.qrels).mean("ndcg@10"))
    partial = r2med.judge_finish(copy, tmp_path / "partial", partial=True)
    assert partial.check.queries == partial.counts.queries == made.counts.queries + 1


def test_queries_without_a_relevant_passage(copy: Path, tmp_path: Path) -> None:
    project = open_project(copy)
    first = next(iter(project.queries))
    for judge in ("Ada", "Bob"):
        project.journal_path(judge).unlink()
        judge_all(project, judge, lambda pooled: 0 if pooled.query_id == first else by_known(pooled))
    made = r2med.judge_finish(copy, tmp_path / "out")
    assert made.counts.left_out_without_relevant >= 1
    assert first not in r2med.load(str(tmp_path / "out")).query_ids
    kept = r2med.judge_finish(copy, tmp_path / "kept", keep_empty=True)
    assert kept.counts.left_out_without_relevant == 0
    assert first in r2med.load(str(tmp_path / "kept")).query_ids


def test_nothing_is_published_before_judges_have_finished(copy: Path, tmp_path: Path) -> None:
    project = open_project(copy)
    project.journal_path("Bob").unlink()
    with pytest.raises(UsageError, match="no query can be published"):
        r2med.judge_finish(copy, tmp_path / "out")
    judge_all(project, "Bob", by_known, finished=False)
    with pytest.raises(UsageError, match="no query can be published"):
        r2med.judge_finish(copy, tmp_path / "out")


def test_a_pool_that_names_documents_elsewhere(copy: Path, tmp_path: Path) -> None:
    pool = copy / "pool.jsonl"
    lines = [json.loads(line) for line in pool.read_text().splitlines()]
    pool.write_text(
        "".join(json.dumps(line | {"copies": ["../../etc/passwd"]}) + "\n" for line in lines[:1] + lines[1:])
    )
    with pytest.raises(DataError, match="twice"):
        r2med.judge_finish(copy, tmp_path / "out")
    lines[0]["copies"] = ["../../etc/passwd"]
    pool.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(DataError, match="not in the corpus"):
        r2med.judge_finish(copy, tmp_path / "out", keep_empty=True)


def test_a_full_folder_is_not_written_into(judged: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="not an empty folder"):
        r2med.judge_finish(judged, tmp_path)
