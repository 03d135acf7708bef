from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from r2med.cache import pair_keys
from r2med.core import Document, Documents, ModelError, Run, UsageError
from r2med.rerank import Reranker, as_reranker

from . import tiny


class Counting:
    """Scores pairs by shared words and counts how many it was asked about."""

    revision = "1"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def predict(self, pairs: list[tuple[str, str]]) -> list[float]:
        self.asked += pairs
        return tiny.by_length(pairs)


def notes(run: Run) -> dict[str, Any]:
    found = run.notes["rerank"]
    assert isinstance(found, dict)
    assert msgspec.json.decode(msgspec.json.encode(found)) == found  # goes into a result file as it is
    return found


def test_the_order_is_that_of_the_scores() -> None:
    task = tiny.a_task()
    first = tiny.first_stage(task, 12)
    run = as_reranker(tiny.by_length).rerank(task, first, 8)
    for row, query in enumerate(task.queries):
        top = first.docs[row, :8].tolist()
        scores = dict(zip(top, tiny.by_length([(query.text, task.documents.contents[d]) for d in top]), strict=True))
        expected = sorted(top, key=lambda d: (-np.float32(scores[d]), top.index(d)))
        assert run.docs[row].tolist() == [*expected, *first.docs[row, 8:].tolist()]
    assert re.fullmatch(r"first\.tests\.rerank\.tiny:by_length~\w{8}@8", run.name)
    assert notes(run)["pairs"] == 32


def test_rest_dropped_and_fewer_candidates_than_the_depth() -> None:
    task = tiny.a_task()
    first = tiny.first_stage(task, 12)
    short = Run(first.query_ids, first.doc_ids, first.docs.copy(), first.scores.copy())
    short.docs[1, 3:], short.scores[1, 3:] = -1, -np.inf
    short.docs[2], short.scores[2] = -1, -np.inf
    run = as_reranker(tiny.by_length).rerank(task, short, 10, rest="drop")
    assert run.lengths().tolist() == [10, 3, 0, 10]
    assert notes(run)["queries_below_depth"] == 2
    deep = as_reranker(tiny.by_length).rerank(task, short, 1000)
    assert deep.lengths().tolist() == [12, 3, 0, 12]


def test_scores_are_cached_by_content(tmp_path: Path) -> None:
    task = tiny.a_task()
    first = tiny.first_stage(task)
    model = Counting()
    once = as_reranker(model).rerank(task, first, 10)
    assert len(model.asked) == len(set(model.asked)) == notes(once)["scored"]
    renamed = replace(
        task, documents=Documents.of(Document(f"other{i}", t) for i, t in enumerate(task.documents.contents))
    )
    moved = Run(first.query_ids, renamed.documents.ids, first.docs, first.scores)
    again = as_reranker(model).rerank(renamed, moved, 10)
    assert (again.docs == once.docs).all()
    assert notes(again)["scored"] == 0
    assert notes(again)["cache_hits"] == notes(once)["distinct_pairs"]
    deeper = as_reranker(model).rerank(task, first, 12)
    assert notes(deeper)["scored"] == 8
    model.revision = "2"
    assert notes(as_reranker(model).rerank(task, first, 10))["cache_hits"] == 0


def test_equal_texts_are_scored_once_and_keep_their_order() -> None:
    task = tiny.a_task(queries=1, documents=6)
    twice = [*task.documents.contents, *task.documents.contents]
    task = replace(task, documents=Documents.of(Document(f"d{i:02d}", t) for i, t in enumerate(twice)))
    model = Counting()
    docs = np.array([[5, 11, 0, 6, 4, 10, 3, 9]], dtype=np.int32)
    run = as_reranker(model).rerank(task, Run(task.query_ids, task.documents.ids, docs, -docs.astype(np.float32)), 8)
    assert len(model.asked) == 4
    order = run.docs[0].tolist()
    assert all(order.index(a) < order.index(b) for a, b in ((5, 11), (0, 6), (4, 10), (3, 9)))


def test_a_damaged_shard_is_counted_and_made_again() -> None:
    from r2med.core.files import home

    task = tiny.a_task()
    first = tiny.first_stage(task)
    once = as_reranker(Counting()).rerank(task, first, 10)
    (shard,) = (home() / "rerank").rglob("*.shard")
    shard.write_bytes(shard.read_bytes()[:-3])
    again = as_reranker(Counting()).rerank(task, first, 10)
    assert notes(again)["damaged_shards"] == 1
    assert notes(again)["scored"] == notes(once)["scored"]
    assert (again.scores == once.scores).all()


def test_without_a_revision_nothing_is_kept() -> None:
    from r2med.core.files import home

    task = tiny.a_task()
    as_reranker(tiny.by_length).rerank(task, tiny.first_stage(task), 10)
    assert not (home() / "rerank").exists()


def test_pair_keys_tell_the_two_sides_apart() -> None:
    keys = pair_keys(["a", "b"], ["a", "b"], np.array([0, 1, 0], np.int32), np.array([1, 0, 1], np.int32)).tolist()
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda pairs: [1.0], "shape"),
        (lambda pairs: ["good"] * len(pairs), "did not return scores"),
        (lambda pairs: [float("nan")] * len(pairs), "not finite"),
        (lambda pairs: np.zeros((len(pairs), 3)), "which with logit"),
    ],
)
def test_scorers_that_return_nonsense(answer: Any, message: str) -> None:
    task = tiny.a_task()
    with pytest.raises((ModelError, UsageError), match=message):
        as_reranker(answer).rerank(task, tiny.first_stage(task), 10)


def test_several_outputs_and_things_that_cannot_score() -> None:
    task = tiny.a_task()
    first = tiny.first_stage(task)
    two = as_reranker(lambda pairs: np.array([[0.0, s] for s in tiny.by_length(pairs)]), logit=1)
    assert (two.rerank(task, first, 10).docs == as_reranker(tiny.by_length).rerank(task, first, 10).docs).all()
    with pytest.raises(UsageError, match="does not score pairs"):
        as_reranker(3)
    assert isinstance(two, Reranker)
    assert as_reranker(two) is two


def test_empty_documents_and_an_empty_run() -> None:
    task = tiny.a_task(documents=5)
    task = replace(task, documents=Documents.of(Document(f"d{i}", "fever" if i else " ") for i in range(5)))
    run = as_reranker(tiny.by_length).rerank(task, tiny.first_stage(task, 5), 5)
    assert notes(run)["empty_documents"] == 1
    nothing = np.zeros((4, 0), dtype=np.int32)
    empty = Run(task.query_ids, task.documents.ids, nothing, nothing.astype(np.float32))
    assert as_reranker(tiny.by_length).rerank(task, empty, 5).depth == 0


SLOW = """
import sys, time
from r2med.cache import arrays
from r2med.rerank import as_reranker
from tests.rerank import tiny
arrays.FLUSH_SECONDS = 0.0
class Slow:
    revision = "1"
    def predict(self, pairs):
        time.sleep(0.15)
        return tiny.by_length(pairs)
from r2med.rerank import custom
custom.CHUNK = 2
task = tiny.a_task(6)
run = as_reranker(Slow()).rerank(task, tiny.first_stage(task), 10)
print(run.notes["rerank"]["scored"], run.docs.tolist())
"""


def test_killed_in_the_middle_it_goes_on_where_it_was() -> None:
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, text=True, env=environment)

    folder = Path(os.environ["R2MED_HOME"]) / "rerank"
    process = start()
    until = time.monotonic() + 60
    while len(list(folder.rglob("*.shard"))) < 4 and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    shards = len(list(folder.rglob("*.shard")))
    assert 4 <= shards < 30
    finished = start()
    output, _ = finished.communicate(timeout=300)
    scored, _, docs = output.partition(" ")
    assert int(scored) == 60 - 2 * shards
    task = tiny.a_task(6)
    assert docs.strip() == str(as_reranker(tiny.by_length).rerank(task, tiny.first_stage(task), 10).docs.tolist())
