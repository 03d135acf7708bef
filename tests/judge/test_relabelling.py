"""Judges against judgments: agreement, and an LLM over a real connection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from r2med.core import DataError, UsageError
from r2med.core.options import Options
from r2med.judge.relabelling import (
    Label,
    LlmJudge,
    agreement,
    agreement_cases,
    label_pool,
    relabel,
    relabel_task,
)
from r2med.llm import get_llm
from r2med.scoring.holes import PoolEntry, read_labels, read_pool, write_pool
from r2med.tasks import load
from tests.builders import small_task

TASK = "mini@1/MedQA-Diag"


class Reader(BaseHTTPRequestHandler):
    """Knows which passages are positive, shrugs at one word, and counts the calls."""

    relevant: frozenset[str] = frozenset()
    shrug = "\0"
    calls = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).calls += 1
        asked = body["messages"][-1]["content"]
        said = "Hard to say." if self.shrug in asked else "Yes." if any(p in asked for p in self.relevant) else "No."
        reply = {
            "choices": [{"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 2},
            "model": "reader",
        }
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Silent."""


@pytest.fixture
def reader() -> Iterator[type[Reader]]:
    class Mine(Reader):
        pass

    Mine.url = ""  # type: ignore[attr-defined]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mine)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Mine.url = f"http://127.0.0.1:{server.server_port}/v1"  # type: ignore[attr-defined]
    yield Mine
    server.shutdown()
    server.server_close()
    thread.join()


def judge(reader: type[Reader], store: Path) -> LlmJudge:
    chat = get_llm("openai:reader", Options(base_url=reader.url, concurrency=4))  # type: ignore[attr-defined]
    return LlmJudge(chat, store=store)


def passages(query_id: str, *, positive: bool) -> list[str]:
    task = load(TASK)
    judged = task.qrels.of(query_id)
    found = (task.documents.get(d) for d, grade in judged.items() if (grade > 0) == positive)
    return [" ".join(d.text.split()[:25]) for d in found if d is not None]


def test_agreement_with_a_judge_that_knows(reader: type[Reader], tmp_path: Path) -> None:
    task = load(TASK)
    first, second = task.qrels.query_ids[:2]
    reader.relevant = frozenset(p for q in (first, second) for p in passages(q, positive=True))
    perfect = agreement(relabel_task(judge(reader, tmp_path), task, negatives=1, limit=2))
    assert (perfect.kappa, perfect.agree, perfect.without_answer) == (1.0, 1.0, 0)
    assert perfect.pairs == sum(len(task.qrels.of(q)) for q in (first, second)) + perfect.assumed_negatives
    calls = reader.calls
    assert calls == perfect.pairs
    again = agreement(relabel_task(judge(reader, tmp_path), task, negatives=1, limit=2))
    assert again == perfect
    assert reader.calls == calls  # nothing is paid twice


def test_an_answer_that_is_neither_is_no_label(reader: type[Reader], tmp_path: Path) -> None:
    reader.relevant = frozenset(passages(load(TASK).qrels.query_ids[0], positive=True)[:1])
    reader.shrug = passages(load(TASK).qrels.query_ids[0], positive=False)[0]
    mine = judge(reader, tmp_path)
    found = agreement(relabel_task(mine, load(TASK), negatives=0, limit=1))
    assert found.without_answer == 1
    assert mine.notes["unparsed"] == 1
    assert found.table["both"] == 1
    assert found.table["only_known"] == 2
    assert found.kappa is not None
    assert 0 < found.kappa < 1


@pytest.mark.parametrize("suffix", ["jsonl", "tsv"])
def test_a_pool_is_labelled_and_says_by_whom(reader: type[Reader], tmp_path: Path, suffix: str) -> None:
    reader.relevant, reader.shrug = frozenset({"copper"}), "nobody knows"
    pool = [
        PoolEntry(task=TASK, query_id="q", doc_id=str(i), query="Why?", passage=text, grade=grade, systems=["a", "b"])
        for i, (text, grade) in enumerate([("copper", None), ("iron", None), ("nobody knows", None), ("copper", 0)])
    ]
    write_pool(pool, tmp_path / f"open.{suffix}")
    filled = label_pool(judge(reader, tmp_path), read_pool(tmp_path / f"open.{suffix}"))
    write_pool(filled, tmp_path / f"done.{suffix}")
    back = read_pool(tmp_path / f"done.{suffix}")
    assert back == filled
    by = f"openai:reader,host={reader.url.split('/')[2]}"  # type: ignore[attr-defined]
    assert [(e.grade, e.judge) for e in back] == [(1, by), (0, by), (None, ""), (0, "")]
    assert back[0].systems == ["a", "b"]
    assert len(read_labels(tmp_path / f"done.{suffix}")) == 3
    assert reader.calls == 3  # what a person graded is not asked


def command(*arguments: str, url: str = "", home: Path) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"R2MED_HOME": str(home), "OPENAI_BASE_URL": url, "OPENAI_API_KEY": ""}
    return subprocess.run(
        [sys.executable, "-m", "r2med", "judge", "relabel", *arguments],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        cwd=home,
    )


def test_the_command(reader: type[Reader], tmp_path: Path) -> None:
    reader.relevant = frozenset({*passages(load(TASK).qrels.query_ids[0], positive=True), "copper"})
    write_pool([PoolEntry(task=TASK, query_id="q", doc_id="d", query="?", passage="copper")], tmp_path / "open.tsv")
    url, asked = reader.url, ("--llm", "reader", "--limit", "1")  # type: ignore[attr-defined]
    done = command(*asked, "--pool", "open.tsv", "--out", "done.tsv", "--json", url=url, home=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["tasks"][TASK] == document["overall"]
    assert document["overall"]["kappa"] == 1.0
    assert document["pool"] == {"path": "done.tsv", "entries": 1, "without_answer": 0}
    assert [label.grade for _, label in read_labels(tmp_path / "done.tsv")] == [1]
    table = command(*asked, "-t", TASK, url=url, home=tmp_path)
    assert "1.000" in table.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--llm", "nope"), "unknown LLM 'nope'"),
        (("--llm", "local", "--pool", "p.tsv"), "give both or neither"),
        (("--llm", "local", "--pool", "p.tsv", "--out", "o.tsv"), "p.tsv: cannot be read"),
        (("--llm", "local", "--pool", "bare.tsv", "--out", "o.tsv"), "entries without texts"),
        (("--llm", "local", "--pool", "texts.tsv", "--out", "o.csv"), "a .tsv or a .jsonl"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    write_pool([PoolEntry(task=TASK, query_id="q", doc_id="d")], tmp_path / "bare.tsv")
    write_pool([PoolEntry(task=TASK, query_id="q", doc_id="d", query="?", passage="p")], tmp_path / "texts.tsv")
    done = command(*arguments, home=tmp_path)
    assert done.returncode != 0
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_no_answer_is_no_disagreement() -> None:
    """A judge that answered nothing agreed, it was said, on 0.0 % of the pairs."""
    silent = agreement([Label("q", "d", 1), Label("q", "e", 0)])
    assert (silent.agree, silent.kappa, silent.without_answer) == (None, None, 2)


def test_labels_without_agreement_are_called_worthless(reader: type[Reader], tmp_path: Path) -> None:
    write_pool([PoolEntry(task=TASK, query_id="q", doc_id="d", query="?", passage="iron")], tmp_path / "open.tsv")
    url = reader.url  # type: ignore[attr-defined]
    asked = ("--llm", "reader", "--limit", "1", "--pool", "open.tsv", "--out", "done.tsv")
    done = command(*asked, url=url, home=tmp_path)
    assert "do not use these labels" in done.stderr


def test_relabelling_a_real_task() -> None:
    """A judge that goes by shared words: it answers, agrees in part, and Mini's hard negatives mislead it."""
    task = load("mini@1/MedQA-Diag")
    cases = agreement_cases(task, negatives=2, seed=1)
    judged = sum(len(task.qrels.of(q)) for q in task.qrels.query_ids)
    assert len(cases) == judged + 2 * task.qrels.positives
    assert all(c.doc_id not in task.qrels.of(c.query_id) for c in cases if c.assumed)
    assert cases == agreement_cases(task, negatives=2, seed=1)
    truth = {(c.query_id, c.doc_id): c.grade for c in cases}
    texts = {task.documents[i].contents: task.documents[i].id for i in range(len(task.documents))}
    queries = {q.text: q.id for q in task.queries}
    perfect = relabel(task, lambda q, p: truth[queries[q], texts[p]], cases)
    assert agreement(perfect).kappa == pytest.approx(1.0)

    def by_words(query: str, passage: str) -> int:
        return int(len(set(query.split()) & set(passage.split())) > 12)

    found = agreement(relabel(task, by_words, cases))
    assert found.kappa is not None
    assert found.kappa < 0.5
    assert sum(found.table.values()) == found.pairs == len(cases)


def test_answers_that_are_not_given_are_counted() -> None:
    cases = agreement_cases(small_task(), negatives=0)
    labels = relabel(small_task(), lambda query, passage: None if "β" in passage else 1, cases)
    found = agreement(labels)
    assert found.without_answer == 1
    assert found.pairs == len(labels)
    assert found.kappa is None  # the judge knows only one grade
    assert found.table["both"] + found.table["only_judge"] == found.pairs - 1


def test_what_a_judge_may_not_do() -> None:
    with pytest.raises(UsageError, match="whole number or None, not 'yes'"):
        relabel(small_task(), lambda query, passage: "yes", [Label("q1", "d1", 1)])  # type: ignore[arg-type,return-value]
    with pytest.raises(DataError, match="no document 'd9'"):
        relabel(small_task(), lambda query, passage: 1, [Label("q1", "d9", 1)])
    with pytest.raises(UsageError, match="cannot draw -1"):
        agreement_cases(small_task(), negatives=-1)
