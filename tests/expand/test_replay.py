from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from r2med.core import DataError, Task, UsageError
from r2med.expand import Settings, get_expander, with_chat
from r2med.expand.replay import Replayed
from r2med.llm import GenerationStore, Sampling, StoreKey, get_llm
from tests.builders import lines
from tests.llm.conftest import MakeChat
from tests.llm.server import ChatServer

THOUGHT = "<think>Hmm.</think>Croup is viral."


def hydoc(path: Path, **texts: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines({"id": key, "text": "x", "hy_doc": value, "doc_id": []} for key, value in texts.items()))
    return path


def test_a_published_file(task: Task, tmp_path: Path) -> None:
    path = hydoc(tmp_path / "query_with_hydoc.jsonl", q1=["One.", "Two."], q2=THOUGHT, other="x")
    made = get_expander(f"hyde:replay:{path}").expand(task)
    assert [e.texts for e in made] == [("One.", "Two."), ("Croup is viral.",), ()]
    assert [e.status for e in made] == ["ok", "ok", "missing"]
    assert made.notes == {"queries_without_recorded_text": 1}
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    again = get_expander(f"hyde:replay:{packed}").expand(task)
    assert again.items == made.items
    assert again.description["content"] == made.description["content"]


def test_the_folder_names_the_llm_and_so_how_it_reasons(task: Task, tmp_path: Path) -> None:
    """QwQ's opening tag is part of its prompt: without a closing tag, all of it is thought."""
    cut = {"q1": "Let me think about croup and", "q2": THOUGHT}
    reasoning = hydoc(tmp_path / "hyde" / "qwq-32b" / "query_with_hydoc.jsonl", **cut)
    plain = hydoc(tmp_path / "hyde" / "qwen-7b" / "query_with_hydoc.jsonl", **cut)
    made = get_expander(f"hyde:replay:{reasoning}").expand(task)
    assert [e.status for e in made] == ["unparsed", "ok", "missing"]
    assert made.summary()["raw_query_used"] == 2
    assert get_expander(f"hyde:replay:{plain}").expand(task).items["q1"].texts == (cut["q1"],)


def test_a_store_replays_what_was_generated(
    server: ChatServer, make_chat: MakeChat, task: Task, tmp_path: Path
) -> None:
    for method in ("hyde", "search-r1"):
        server.text = lambda body: "<answer>Croup is viral.</answer>"
        made = with_chat(method, make_chat(), Settings(store=tmp_path)).expand(task)
        store = made.notes["store"]
        replayed = get_expander(f"{method}:replay:{store}").expand(task)
        assert [(e.texts, e.statuses) for e in replayed] == [(e.texts, e.statuses) for e in made]
        assert made.items["q1"].texts == ("Croup is viral.",)
    with pytest.raises(UsageError, match="holds generations of search-r1, not of lamer"):
        get_expander(f"lamer:replay:{store}").expand(task)


def test_a_folder_of_stores_and_a_store_of_another_task(
    server: ChatServer, make_chat: MakeChat, task: Task, tmp_path: Path
) -> None:
    other = replace(task, name="other", queries=tuple(q._replace(id=f"other-{q.id}") for q in task.queries))
    for one in (task, other):
        with_chat("hyde", make_chat(), Settings(store=tmp_path)).expand(one)
    for one in (task, other):
        made = get_expander(f"hyde:replay:{tmp_path}").expand(one)
        assert made.summary()["status"] == {"ok": 3}
    store = with_chat("hyde", make_chat(), Settings(store=tmp_path)).plan(task).store
    with pytest.raises(DataError, match="generated for another task"):
        get_expander(f"hyde:replay:{store}").expand(other)
    with_chat("hyde", make_chat(), Settings(store=tmp_path, max_tokens=9)).expand(task)
    with pytest.raises(UsageError, match="holds several stores"):
        get_expander(f"hyde:replay:{tmp_path}").expand(task)


def test_what_the_embedded_model_wrote_says_so_when_replayed(task: Task, tmp_path: Path) -> None:
    key = StoreKey.of("hyde", get_llm("local"), "t", Sampling(), task.fingerprint)
    with GenerationStore(key, tmp_path) as store:
        pass
    for path in (store.path, tmp_path):
        assert "more often wrong than right" in Replayed("hyde", path=path).warning
    assert Replayed("hyde", {"q1": ["x"]}).warning == ""


def test_a_folder_of_files(task: Task, tmp_path: Path) -> None:
    hydoc(tmp_path / "small.jsonl", q1="One.")
    assert get_expander(f"hyde:replay:{tmp_path}").expand(task).items["q1"].texts == ("One.",)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="no recorded texts of small"):
        get_expander(f"hyde:replay:{empty}").expand(task)


def test_published_texts_are_looked_up_by_task(task: Task) -> None:
    asked: list[tuple[str, str, str]] = []

    def published(of: Task, method: str, llm: str) -> dict[str, tuple[str, ...]]:
        asked.append((of.name, method, llm))
        return {"q1": ("Croup.",)}

    expander = get_expander("lamer:published:gpt4", published=published)
    assert expander.expand(task, limit=1).items["q1"].texts == ("Croup.",)
    assert asked == [("small", "lamer", "gpt4")]
    assert expander.name == "lamer:published:gpt4"


def test_content_counts_not_place(task: Task, tmp_path: Path) -> None:
    a, b = hydoc(tmp_path / "a.jsonl", q1="One."), hydoc(tmp_path / "b.jsonl", q1="One.")
    c = hydoc(tmp_path / "c.jsonl", q1="Two.")
    described = [Replayed("hyde", path=path).describe() for path in (a, b, c)]
    assert described[0] == described[1] != described[2]
    assert Replayed("hyde", {"q1": ["One."]}).describe() != Replayed("hyde", {"q1": ["Two."]}).describe()
    with pytest.raises(UsageError, match="from a file or from a mapping"):
        Replayed("hyde")


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b'{"id": 3}\n', b'{"id": "q1", "hy_doc": 3}\n'])
def test_bad_files_are_one_line(task: Task, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"bad\.jsonl"):
        get_expander(f"hyde:replay:{path}").expand(task)
