from __future__ import annotations

import gzip
import json
import re
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.core import DataError
from r2med.llm import MARKINGS, Choice, GenerationStore, Replay, Reply, StoreKey, generate, get_llm, parse, read_reply
from tests.llm.conftest import ask, asks
from tests.llm.test_parsing import CHOICES

LINES: list[dict[str, object]] = [
    {"id": "q0", "text": "Case 0", "hy_doc": "Measles.", "doc_id": ["1"]},
    {"id": "q1", "text": "Case 1", "hy_doc": ["Mumps.", "Rubella."]},
]


def hydoc(path: Path) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def test_published_expansions(tmp_path: Path) -> None:
    chat = get_llm(f"replay:{hydoc(tmp_path / 'query_with_hydoc.jsonl')}")
    found = {(g.query_id, g.sample): (g.final, g.status, g.cost) for g in generate(chat, asks(2, n=2))}
    assert found == {
        ("q0", 0): ("Measles.", "ok", 0.0),
        ("q1", 0): ("Mumps.", "ok", 0.0),
        ("q1", 1): ("Rubella.", "ok", 0.0),
    }
    assert chat.estimate(ask()).cost == 0.0


def test_compressed(tmp_path: Path) -> None:
    path = tmp_path / "query_with_hydoc.jsonl.gz"
    path.write_bytes(gzip.compress(hydoc(tmp_path / "x").read_bytes()))
    assert Replay.from_file(path).answers["q0", ""][0].text == "Measles."
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match="truncated"):
        Replay.from_file(path)


def test_a_mapping_handed_in() -> None:
    chat = Replay({"q0": ("Fever.</think>Measles.",)}, "R2MED hyde/r1-qwen-32b")
    (g,) = generate(chat, asks(1))
    assert (g.final, g.reasoning, chat.name) == ("Measles.", "Fever.", "replay:R2MED%20hyde/r1-qwen-32b")


def test_the_same_content_is_the_same_model_wherever_it_lies(tmp_path: Path) -> None:
    one, two = Replay.from_file(hydoc(tmp_path / "a")), Replay.from_file(hydoc(tmp_path / "b"))
    assert one.describe() == two.describe()
    assert one.describe() != Replay({"q0": ["Measles"]}).describe()


def test_a_missing_answer_is_a_failure_of_that_query(tmp_path: Path) -> None:
    chat = Replay.from_file(hydoc(tmp_path / "a"))
    assert [g.status for g in generate(chat, asks(4))] == ["ok", "ok", "failed", "failed"]
    assert chat.usage.failures == 2


def test_a_recording_of_another_task(tmp_path: Path) -> None:
    chat = Replay.from_file(hydoc(tmp_path / "a"))
    with pytest.raises(DataError, match="none of the first 10 queries has an answer here"):
        list(generate(chat, [ask(key=f"other{i}") for i in range(30)]))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"<html>", "neither a generation store nor"),
        (b'{"id": "q0"}\n', "neither a generation store nor"),
        (b'{"id": "q0", "hy_doc": 3}\n', "neither a generation store nor"),
        (b'{"id": "q0", "hy_doc": "a"}\n{"id": "q0", "hy_doc": "b"}\n', "a:2: query 'q0' stands twice"),
        (b'\xff\xfe{"id"', "neither a generation store nor"),
        (b'{"schema":1,"key":{}}\n', "is not a generation store"),
    ],
)
def test_files_that_are_no_recording(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataError, match=words):
        Replay.from_file(tmp_path / "a")
    with pytest.raises(DataError, match="cannot be read"):
        Replay.from_file(tmp_path / "absent")


def test_a_store_answers_what_was_asked_and_nothing_else(tmp_path: Path) -> None:
    """The answers to all questions about one query stand under its id: the first was given to each of them."""
    first, second, other = (ask(text, "q1") for text in ("Passages 1 to 4", "Passages 3 to 6", "Passages 5 to 8"))
    key = StoreKey(method="m", llm="x", model={}, template="t", sampling=first.sampling, task="task")
    with GenerationStore(key, tmp_path) as store:
        for request, text in ((first, "[2] > [1]"), (second, "[1] > [2]")):
            said = Choice(text, first_token=(("[", -0.5),), decision=((("2", -0.25), ("3", -1.5)),))
            store.append(read_reply(request, Reply(key="q1", choices=(said,))))
    replay = Replay.from_file(store.path)
    assert [replay.complete_one(request).text for request in (first, second)] == ["[2] > [1]", "[1] > [2]"]
    assert replay.complete_one(second).choices[0] == said
    assert replay.complete_one(other).error.endswith("has no answer to what is asked for query 'q1'")
    store.path.write_bytes(re.sub(rb',"crc32":\d+', b"", store.path.read_bytes()).replace(b"-0.25", b'"x"'))
    with pytest.raises(DataError, match="log-probabilities that cannot be read"):
        Replay.from_file(store.path)


def test_another_reading_or_other_probabilities_are_another_model() -> None:
    said = [Choice("yes"), Choice("yes", first_token=(("yes", -0.5),)), Choice("yes", first_token=(("yes", -0.25),))]
    described = [Replay({"q": [choice]}).describe() for choice in said]
    described.append(Replay({"q": said[:1]}, marking="think").describe())
    assert all(one != other for one, other in combinations(described, 2))


@given(st.lists(CHOICES, min_size=1, max_size=4), st.sampled_from(sorted(MARKINGS)))
def test_a_store_replays_to_the_same_results(choices: list[Choice], marking: str) -> None:
    """Whatever the model wrote: status and text of the replay are those of the recording."""
    recorder = Replay({"q": choices}, marking=marking)
    requests = [ask("Case", "q", n=len(choices))]
    sampling = requests[0].sampling
    key = StoreKey(method="m", llm="x", model={"marking": marking}, template="t", sampling=sampling, task="task")
    with TemporaryDirectory() as folder, GenerationStore(key, Path(folder)) as store:
        recorded = list(generate(recorder, requests, store))
        replay = Replay.from_file(store.path)
    replayed = list(generate(replay, requests))
    assert [(g.status, g.final) for g in replayed] == [(g.status, g.final) for g in recorded]
    assert [(p.status, p.final) for p in (parse(c, marking) for c in choices)] == [
        (g.status, g.final) for g in recorded
    ]


def test_a_recording_of_the_embedded_model_keeps_its_warning(tmp_path: Path) -> None:
    local = get_llm("local")
    request = ask()
    with GenerationStore(StoreKey.of("hyde", local, "t", request.sampling, "task"), tmp_path) as store:
        store.append(read_reply(request, Reply(key="q1", choices=(Choice("Measles."),))))
    assert Replay.from_file(store.path).warning == local.warning
