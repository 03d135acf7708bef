from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from r2med.core import DataError, Task, UsageError
from r2med.core.files import home
from r2med.core.options import Options
from r2med.expand import Expander
from r2med.expand.contract import Chain, Expansions
from r2med.expand.generated import HyDE, HydeParameters
from r2med.expand.replay import Replayed
from r2med.expand.rounds import LameR, LamerParameters
from r2med.expand.searching import SearchR1
from r2med.llm import GenerationStore, Sampling, StoreKey, get_llm
from r2med.pipeline import Builder
from tests.builders import lines
from tests.llm.conftest import MakeChat
from tests.llm.server import ChatServer

THOUGHT = "<think>Hmm.</think>Croup is viral."


def named(spec: str) -> Expander:
    with Builder() as builder:
        return builder.expander(spec)


def hydoc(path: Path, **texts: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines({"id": key, "text": "x", "hy_doc": value, "doc_id": []} for key, value in texts.items()))
    return path


def test_a_published_file(task: Task, tmp_path: Path) -> None:
    path = hydoc(tmp_path / "query_with_hydoc.jsonl", q1=["One.", "Two."], q2=THOUGHT, other="x")
    made = named(f"hyde:replay:{path}").expand(task)
    assert [e.texts for e in made] == [("One.", "Two."), ("Croup is viral.",), ()]
    assert [e.status for e in made] == ["ok", "ok", "missing"]
    assert made.notes == {"queries_without_recorded_text": 1}
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    again = named(f"hyde:replay:{packed}").expand(task)
    assert again.items == made.items
    assert again.description["content"] == made.description["content"]


def test_the_folder_names_the_llm_and_so_how_it_reasons(task: Task, tmp_path: Path) -> None:
    """QwQ's opening tag is part of its prompt: without a closing tag, all of it is thought."""
    cut = {"q1": "Let me think about croup and", "q2": THOUGHT}
    reasoning = hydoc(tmp_path / "hyde" / "qwq-32b" / "query_with_hydoc.jsonl", **cut)
    plain = hydoc(tmp_path / "hyde" / "qwen-7b" / "query_with_hydoc.jsonl", **cut)
    made = named(f"hyde:replay:{reasoning}").expand(task)
    assert [e.status for e in made] == ["unparsed", "ok", "missing"]
    assert made.summary()["raw_query_used"] == 2
    assert named(f"hyde:replay:{plain}").expand(task).items["q1"].texts == (cut["q1"],)


def test_a_store_replays_what_was_generated(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    for method in (HyDE, SearchR1):
        server.text = lambda body: "<answer>Croup is viral.</answer>"
        made = method(make_chat()).expand(task)
        store = made.notes["store"]
        replayed = named(f"{made.method}:replay:{store}").expand(task)
        assert [(e.texts, e.statuses) for e in replayed] == [(e.texts, e.statuses) for e in made]
        assert made.items["q1"].texts == ("Croup is viral.",)
    with pytest.raises(UsageError, match="holds generations of search-r1, not of lamer"):
        named(f"lamer:replay:{store}").expand(task)


def test_a_store_with_answers_to_an_earlier_prompt(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    """HyDE is asked again, so that LameR finds other passages: what it answered to those of before is not in use."""

    def answered(text: str, retry: frozenset[str] = frozenset()) -> Expansions:
        server.text, options = lambda body: text, Options(retry=retry)
        lamer = LameR(make_chat(), LamerParameters(top=1), options=options)
        return Chain([HyDE(make_chat(), options=options), lamer]).expand(task)

    server.default = "cut"
    assert [e.texts[1] for e in answered("Lactose, milk and the gut")] == ["Lactose, milk and the gut"] * 3
    made = answered("A barking cough", frozenset({"truncated"}))
    replayed = named(f"lamer:replay:{made.notes['store']}").expand(task)
    assert [e.texts for e in replayed] == [e.texts[1:] for e in made] == [("A barking cough",)] * 3


def test_a_compressed_store_is_the_same_store(
    server: ChatServer, make_chat: MakeChat, task: Task, tmp_path: Path
) -> None:
    server.text = lambda body: "Sure! Here is a passage:\n\nCroup is viral."
    made = HyDE(make_chat()).expand(task)
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(Path(str(made.notes["store"])).read_bytes()))
    replayed = named(f"hyde:replay:{packed}").expand(task)
    assert [e.texts for e in replayed] == [e.texts for e in made] == [("Croup is viral.",)] * len(task.queries)
    with pytest.raises(UsageError, match="holds generations of hyde, not of lamer"):
        named(f"lamer:replay:{packed}").expand(task)
    other = replace(task, queries=tuple(query._replace(id=f"other-{query.id}") for query in task.queries))
    with pytest.raises(DataError, match="was generated for another task"):
        named(f"hyde:replay:{packed}").expand(other)


def test_a_folder_of_stores_and_a_store_of_another_task(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    folder = home() / "generations"
    other = replace(task, name="other", queries=tuple(q._replace(id=f"other-{q.id}") for q in task.queries))
    for one in (task, other):
        HyDE(make_chat()).expand(one)
    for one in (task, other):
        made = named(f"hyde:replay:{folder}").expand(one)
        assert made.summary()["status"] == {"ok": 3}
    store = HyDE(make_chat()).plan(task).store
    with pytest.raises(DataError, match="generated for another task"):
        named(f"hyde:replay:{store}").expand(other)
    HyDE(make_chat(), HydeParameters(max_tokens=9)).expand(task)
    with pytest.raises(UsageError, match="holds several stores"):
        named(f"hyde:replay:{folder}").expand(task)


def test_what_the_embedded_model_wrote_says_so_when_replayed(task: Task, tmp_path: Path) -> None:
    key = StoreKey.of("hyde", get_llm("local"), "t", Sampling(), task.fingerprint)
    with GenerationStore(key, tmp_path) as store:
        pass
    for path in (store.path, tmp_path):
        assert "more often wrong than right" in Replayed("hyde", path=path).warning
    assert Replayed("hyde", published="gpt4").warning == ""


def test_a_folder_of_files(task: Task, tmp_path: Path) -> None:
    hydoc(tmp_path / "small.jsonl", q1="One.")
    assert named(f"hyde:replay:{tmp_path}").expand(task).items["q1"].texts == ("One.",)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="no recorded texts of small"):
        named(f"hyde:replay:{empty}").expand(task)


def test_published_texts_come_with_the_task(task: Task) -> None:
    """They are part of what a result depends on, though the task's own content does not cover them."""
    asked: list[tuple[str, str]] = []
    texts: dict[str, tuple[str, ...]] = {"q1": ("Croup.",)}

    def published(method: str, llm: str) -> dict[str, tuple[str, ...]]:
        asked.append((method, llm))
        return texts

    expander = named("lamer:published:gpt4")
    with pytest.raises(UsageError, match="small comes without published expansions"):
        expander.expand(task)
    given = replace(task, published=published)
    assert expander.expand(given, limit=1).items["q1"].texts == ("Croup.",)
    assert asked == [("lamer", "gpt4")]
    assert expander.name == "lamer:published:gpt4"
    facts = expander.task_facts(given)
    texts["q1"] = ("Laryngitis.",)
    assert expander.task_facts(given) != facts


def test_the_method_decides_how_recorded_texts_are_used(task: Task, tmp_path: Path) -> None:
    path = hydoc(tmp_path / "texts.jsonl", q1="One.")
    made = {method: named(f"{method}:replay:{path}").expand(task) for method in ("hyde", "lamer", "query2doc")}
    assert [found.policies["dense"] for found in made.values()] == ["mean", "mean", "query+passages.tokenizer"]
    assert made["hyde"].policies["lexical"] == "passages"


@pytest.mark.parametrize(
    ("spec", "unused"),
    [
        ("hyde:{},temperature=0.1", "temperature"),
        ("hyde:{},passages=2", "passages"),
        ("hyde:{},protocol=r2med-paper", "protocol"),
        ("lamer:{},top=3,policy=passages", "top"),
        ("thinkqe:{},rounds=1", "rounds"),
        ("search-o1:{},retriever=bm25-lucene", "retriever"),
    ],
)
def test_how_texts_are_generated_cannot_be_said_of_recorded_ones(tmp_path: Path, spec: str, unused: str) -> None:
    """It gave the same texts another name."""
    path = hydoc(tmp_path / "query_with_hydoc.jsonl", q1="One.")
    for source in (f"replay:{path}", "published:gpt4"):
        with pytest.raises(UsageError, match=f"texts that are recorded are not generated: leave out {unused}$"):
            named(spec.format(source))
    assert named(f"hyde:replay:{path},policy=mean").name.startswith("hyde:replay:query_with_hydoc~")


def test_content_counts_not_place(tmp_path: Path) -> None:
    a, b = hydoc(tmp_path / "a.jsonl", q1="One."), hydoc(tmp_path / "b.jsonl", q1="One.")
    c = hydoc(tmp_path / "c.jsonl", q1="Two.")
    described = [Replayed("hyde", path=path).describe() for path in (a, b, c)]
    assert described[0] == described[1] != described[2]
    same, other = (hydoc(tmp_path / folder / "a.jsonl", q1=text) for folder, text in (("x", "One."), ("y", "Two.")))
    specs = [named(f"hyde:replay:{path}").spec for path in (a, same, other)]
    assert specs[0] == specs[1] != specs[2]
    for both in ({}, {"path": a, "published": "gpt4"}):
        with pytest.raises(UsageError, match="from a file or from a task"):
            Replayed("hyde", **both)  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"", b"nonsense\n", b'{"id": 3}\n', b'{"id": "q1", "hy_doc": 3}\n'])
def test_bad_files_are_one_line(task: Task, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"bad\.jsonl"):
        named(f"hyde:replay:{path}").expand(task)
