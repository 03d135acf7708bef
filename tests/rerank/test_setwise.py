"""Setwise rerankers against a real chat server."""

from __future__ import annotations

from r2med.core import Run, Task
from tests.llm.server import ChatServer

from .conftest import MakeReranker
from .test_listwise import by_worth, notes, shown, worth


def test_setwise(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    server.text = lambda body: f"The most helpful passage is [{worth(body)[0]}]."
    run = make_reranker("setwise:any-model,top=4,children=3").rerank(task, first, 20)
    for row in range(3):
        top = first.docs[row, :20].tolist()
        best = by_worth(task, top)[:4]
        assert [len(task.documents.contents[d]) for d in run.docs[row, :4].tolist()] == [
            len(task.documents.contents[d]) for d in best
        ]
        assert run.docs[row, 4:20].tolist() == [d for d in top if d not in run.docs[row, :4]]
    assert notes(run)["unparsed"] == 0
    server.text = lambda body: "hard to say"
    other = make_reranker("setwise:other-model,top=5,children=3").rerank(task, first, 20)
    assert other.docs.tolist() == first.docs.tolist()
    assert notes(other)["unparsed"] == notes(other)["asked"] > 0


def test_rank_r1(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    """Thinks about twenty at a time, then picks one."""
    server.text = lambda body: f"<think>[1] or [2]?</think>\n<answer>[{worth(body)[0]}]</answer>"
    run = make_reranker("rank-r1:any-model,top=3").rerank(task, first, 30)
    assert max(len(shown(body)) for body in server.asked) == 20
    for row in range(3):
        top = first.docs[row, :30].tolist()
        assert [len(task.documents.contents[d]) for d in run.docs[row, :3].tolist()] == [
            len(task.documents.contents[d]) for d in by_worth(task, top)[:3]
        ]
    assert notes(run)["ok"] == notes(run)["asked"]
    server.text = lambda body: "<think>[2], no, [3], no"
    endless = make_reranker("rank-r1:other-model").rerank(task, first, 30)
    assert notes(endless)["unparsed"] == notes(endless)["unfinished"] == notes(endless)["asked"]
    assert endless.docs.tolist() == first.docs.tolist()
