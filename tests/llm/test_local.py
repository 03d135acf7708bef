"""The embedded model with its real weights, where the person who runs the tests has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from r2med.core import ModelError
from r2med.core.files import home
from r2med.core.options import Options
from r2med.llm import Chat, GenerationStore, StoreKey, generate, get_llm
from r2med.llm.local import LocalChat
from r2med.models import find_chat_card
from tests.llm.conftest import ask, asks

OUTSIDE = home()
# Before a fixture gives every test a home of its own.
CARD = "smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalChat]:
    pytest.importorskip("xllamacpp", reason="the extra `local-llm` is not installed")
    if not (OUTSIDE / "models" / CARD / FILE).is_file():
        pytest.skip(f"the weights are not here: r2med models fetch {CARD}")
    monkeypatch.setenv("R2MED_HOME", str(OUTSIDE))
    chat = get_llm("local")
    assert isinstance(chat, LocalChat)
    yield chat
    chat.close()


def test_it_answers(local: LocalChat) -> None:
    request = ask("Name one symptom of measles.", max_tokens=24, temperature=0.9, n=2, seed=1)
    found = list(generate(local, [request]))
    assert [g.sample for g in found] == [0, 1]
    assert all(len(g.raw) > 10 for g in found)
    assert found[0].raw != found[1].raw  # each with a seed of its own
    reply = local.complete_one(request)
    assert (reply.text, reply.more) == (found[0].raw, True)
    assert 20 < reply.prompt_tokens < 120
    assert reply.cost == 0.0
    assert "SmolLM2" in reply.model


def test_the_same_seed_gives_the_same_text_and_stop_words_stop(local: LocalChat) -> None:
    request = ask("Describe a fever.", max_tokens=16, temperature=0.8, seed=3)
    first = local.complete_one(request)
    assert local.complete_one(request).text == first.text
    assert first.finish_reason == "length"
    word = first.text.split()[2]
    stopped = local.complete_one(ask("Describe a fever.", max_tokens=16, temperature=0.8, seed=3, stop=(word,)))
    assert word not in stopped.text
    assert first.text.startswith(stopped.text)
    assert stopped.finish_reason == "stop"


def test_a_prompt_that_is_too_long_fails_alone(local: LocalChat, tmp_path: Path) -> None:
    requests = [ask("fever " * 6000, "long", max_tokens=8), *asks(2, max_tokens=8)]
    with GenerationStore(StoreKey.of("hyde", local, "t", requests[0].sampling, "task"), tmp_path) as store:
        found = {g.query_id: g for g in generate(local, requests, store)}
    assert found["long"].status == "failed"
    assert "tokens, the embedded model takes 4096" in found["long"].error
    assert all(found[key].status in ("ok", "truncated") for key in ("q0", "q1"))


def test_weights_that_are_broken() -> None:
    pytest.importorskip("xllamacpp", reason="the extra `local-llm` is not installed")
    folder = home() / "models" / CARD
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(b"GGUF" + bytes(1000))
    chat: Chat = get_llm("local", Options(threads=1))
    with pytest.raises(
        ModelError, match=r"is not the file that the card of smollm2 names.*r2med models fetch smollm2 --force"
    ):
        chat.complete_one(ask())


def test_the_card_names_the_file() -> None:
    card = find_chat_card(CARD)
    assert card
    assert card.kind == "chat"
    assert card.carrier
    assert [file.name for file in card.carrier.files] == [FILE]
