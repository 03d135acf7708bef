"""The key goes to the server and nowhere else."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest

from r2med.core import R2MedError, UsageError
from r2med.http import completions_url
from r2med.llm import GenerationStore, Options, StoreKey, generate, get_llm
from r2med.llm.load import read_key
from tests.llm.conftest import KEY, MakeChat, ask
from tests.llm.server import BEHAVIOURS, ChatServer


@pytest.mark.parametrize("behaviour", sorted(set(BEHAVIOURS) - {"hang", "drip", "huge"}))
def test_the_key_is_in_no_message_log_or_result(
    server: ChatServer, make_chat: MakeChat, behaviour: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    server.default = behaviour
    chat = make_chat(attempts=2)
    seen = [repr(chat), str(chat.describe()), str(chat.usage.snapshot()), repr(vars(chat))]
    request = ask()
    with GenerationStore(StoreKey.of("hyde", chat, "t", request.sampling, "task"), tmp_path) as store:
        try:
            seen += [repr(generation) for generation in generate(chat, [request], store, keep_prompt=True)]
        except R2MedError as error:
            seen += [str(error), repr(error), "".join(traceback.format_exception(error))]
    seen += [path.read_text("utf-8") for path in tmp_path.rglob("*") if path.is_file()]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in "\n".join(seen)
    assert KEY not in caplog.text


def test_a_key_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(path))
    assert read_key() == KEY
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    assert read_key() == "sk-other"
    monkeypatch.delenv("OPENAI_API_KEY")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        read_key()
    monkeypatch.setenv("OPENAI_API_KEY_FILE", str(tmp_path / "absent"))
    with pytest.raises(UsageError, match="absent cannot be read"):
        read_key()


def test_no_key_at_all() -> None:
    with pytest.raises(UsageError, match="gpt4 needs a key: export OPENAI_API_KEY"):
        get_llm("gpt4")


@pytest.mark.parametrize("key", ["sk-one sk-two", "sk-ä", "sk-a\nsk-b"])
def test_a_key_that_cannot_be_sent(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httpx")
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(UsageError, match="characters that no key has") as caught:
        get_llm("gpt4")
    assert key not in str(caught.value)


def test_azure_wants_another_header_and_keeps_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httpx")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    base = "https://mine.openai.azure.com/openai/deployments/gpt4o?api-version=2024-10-21"
    chat = get_llm("gpt4", Options(base_url=base))
    endpoint = chat._endpoint  # type: ignore[attr-defined]
    assert endpoint.url == base.replace("gpt4o?", "gpt4o/chat/completions?")
    assert endpoint._headers()["api-key"] == KEY
    assert "Authorization" not in endpoint._headers()
    chat.close()


def test_urls() -> None:
    assert completions_url("http://h:1/v1/") == "http://h:1/v1/chat/completions"
    assert completions_url("http://h/v1/chat/completions") == "http://h/v1/chat/completions"
    for bad in ("", "localhost:8000", "ftp://h/v1", "http://"):
        with pytest.raises(UsageError, match="is not the URL of a chat endpoint"):
            completions_url(bad)
    with pytest.raises(UsageError) as caught:
        completions_url("htp://me:secret@h/v1")
    assert "secret" not in str(caught.value)
