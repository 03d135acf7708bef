"""Code of somebody else's that meets our protocols and then misbehaves: one line, and nothing of it in our output."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import r2med
from r2med.core import ModelError
from r2med.core.containing import contained
from r2med.expand import get_expander
from r2med.retrieve import get_retriever
from r2med.retrieve.objects import as_retriever


@pytest.fixture(scope="module")
def task() -> r2med.Task:
    return r2med.load("mini/Biology")


class Ranking:
    """A retriever or reranker by our protocols, returning what the test says."""

    name, kind = "theirs", "custom"

    def __init__(self, answer: Callable[[r2med.Task], Any], facts: Any = None) -> None:
        self.answer = answer
        self.facts = {"version": 1} if facts is None else facts

    def describe(self) -> Any:
        return self.facts() if callable(self.facts) else self.facts


class Retrieving(Ranking):
    def retrieve(self, task: r2med.Task, *, depth: int = 1000) -> Any:
        return self.answer(task)


class Reranking(Ranking):
    def rerank(self, task: r2med.Task, candidates: r2med.Run, depth: int = 100, *, rest: str = "keep") -> Any:
        return self.answer(task)


class Expanding:
    """An expander by our protocol."""

    name, method, warning = "theirs", "custom", ""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer = answer

    def describe(self) -> dict[str, object]:
        return {}

    def plan(self, task: r2med.Task, *, limit: int | None = None) -> Any:
        return self.answer()

    def expand(self, task: r2med.Task, *, limit: int | None = None, on_progress: Any = None) -> Any:
        return self.answer()


def run_of(task: r2med.Task, query: str = "", doc: str = "", score: float = 1.0) -> r2med.Run:
    return r2med.Run.from_rankings({query or task.queries[0].id: [(doc or task.documents.ids[0], score)]})


def broken(*_: Any) -> Any:
    raise RuntimeError("CUDA out of memory\non device 0")


def with_nan(task: r2med.Task) -> r2med.Run:
    run = run_of(task)
    run.scores[:] = np.nan
    return run


def beyond_the_documents(task: r2med.Task) -> r2med.Run:
    run = run_of(task)
    run.docs[:] = 99_999
    return run


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (broken, r"theirs failed on .*13 queries of mini/Biology \(RuntimeError: CUDA out of memory on device 0\)"),
        (lambda task: None, "theirs returned NoneType for .*13 queries of mini/Biology, not a Run"),
        (lambda task: run_of(task, query="nobody"), "'nobody', which mini/Biology does not hold"),
        (lambda task: run_of(task, doc="nothing"), "unknown document 'nothing'"),
        (with_nan, "scores that are not numbers"),
        (beyond_the_documents, "cannot be used"),
    ],
)
def test_one_line_names_retriever_and_reranker(answer: Any, words: str, task: r2med.Task) -> None:
    for given in ({"system": Retrieving(answer)}, {"system": "bm25", "rerank": Reranking(answer)}):
        with pytest.raises(ModelError, match=words) as caught:
            r2med.evaluate(task=task, **given)
        assert "\n" not in str(caught.value)


def test_a_good_one_passes_through(task: r2med.Task) -> None:
    run = r2med.BM25().retrieve(task, depth=20)
    theirs = get_retriever(Retrieving(lambda _: run))
    assert list(theirs.retrieve(task, depth=5)) == list(run.top(5))
    assert theirs.describe() == {"version": 1}
    assert r2med.evaluate("bm25", task, rerank=Reranking(lambda _: run)).mean() == r2med.evaluate(run, task).mean()
    ours = r2med.BM25()
    assert get_retriever(ours) is ours


def test_descriptions_are_plain_data() -> None:
    for facts, words in (
        (broken, "describing itself"),
        (object, "describing itself"),
        ([1], "by a list, not a dict"),
    ):
        with pytest.raises(ModelError, match=words):
            get_retriever(Retrieving(broken, facts)).describe()


def test_expanders_too(task: r2med.Task) -> None:
    for answer, words in ((broken, "theirs failed on 13 queries"), (lambda: [], "returned list for 13 queries")):
        with pytest.raises(ModelError, match=words):
            get_expander(Expanding(answer)).expand(task)
    with pytest.raises(ModelError, match="theirs failed on planning mini/Biology"):
        get_expander(Expanding(broken)).plan(task)


CHATTY = """
import os
import zlib

import numpy as np

print("loading")


class Model:
    def __init__(self):
        print("making")
        os.fork()

    def encode(self, texts):
        print("encoding")
        return np.array([[zlib.crc32(t.encode()) % 97, len(t)] for t in texts])


def overlap(pairs):
    print("scoring")
    return [len(set(q.split()) & set(d.split())) for q, d in pairs]
"""


def test_what_a_model_prints_stays_out_of_the_json(tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(CHATTY)
    flags = ("--tasks", "mini/Biology", "--retriever", "chatty:Model", "--rerank", "chatty:overlap", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "r2med", "run", *flags], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["systems"]) == 2
    assert {"loading", "making", "encoding", "scoring"} <= set(done.stderr.splitlines())
    assert done.stderr.count("forked on being made") == 1


def test_output_comes_back_whichever_thread_leaves_last(capsys: pytest.CaptureFixture[str]) -> None:
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with contained("a", "work"):
            entered.set()
            leave.wait(10)

    output, thread = sys.stdout, threading.Thread(target=stay)
    with contained("b", "work"):
        thread.start()
        assert entered.wait(10)
        print("aside")
    leave.set()
    thread.join()
    assert sys.stdout is output
    assert capsys.readouterr() == ("", "aside\n")


def test_a_similarity_for_tensors_is_asked_with_tensors(task: r2med.Task) -> None:
    torch = pytest.importorskip("torch")
    documents = np.random.default_rng(0).normal(size=(len(task.documents), 3)).astype(np.float32)

    class Near:
        def encode(self, texts: list[str]) -> Any:
            return documents[: len(texts)]

        def similarity(self, a: Any, b: Any) -> Any:
            return -torch.cdist(a, b)

    retriever = as_retriever(Near())
    assert retriever.describe()["similarity"] == "own"
    run = retriever.retrieve(task, depth=1)
    assert run.docs[:, 0].tolist() == list(range(len(task.queries)))  # each is nearest to itself; by cosine too,
    assert np.allclose(run.scores, 0, atol=1e-3)  # but then at 1


def test_a_similarity_of_its_own_width_is_left_to_the_object(task: r2med.Task) -> None:
    class Weighted:
        weights = np.array([5.0, 0.1, 2.0], dtype=np.float32)

        def encode(self, texts: list[str]) -> Any:
            return np.random.default_rng(1).normal(size=(len(texts), 3)).astype(np.float32)

        def similarity(self, a: Any, b: Any) -> Any:
            return (a * self.weights) @ b.T

    model = Weighted()
    best = model.similarity(model.encode(list(task.query_texts)), model.encode(list(task.documents.contents))).max(1)
    assert np.allclose(as_retriever(model).retrieve(task, depth=1).scores[:, 0], best, rtol=1e-5)
