"""The key goes to the server and nowhere else."""

from __future__ import annotations

import logging
import re
import traceback
from pathlib import Path
from urllib.parse import unquote

import pytest

from r2med.core import R2MedError, UsageError
from r2med.llm import GenerationStore, StoreKey, generate, get_llm
from tests.llm.conftest import KEY, MakeChat, ask
from tests.llm.server import BEHAVIOURS, ChatServer


@pytest.mark.parametrize("behaviour", sorted(set(BEHAVIOURS) - {"hang", "drip", "drip-headers", "huge", "bomb"}))
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
    shown = "\n".join(seen)
    for spelling in (shown, unquote(shown), re.sub(r"\\+u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), shown)):
        assert KEY not in spelling
    assert KEY not in caplog.text


def test_no_key_at_all() -> None:
    with pytest.raises(UsageError, match="gpt4 needs a key: export OPENAI_API_KEY"):
        get_llm("gpt4").check()


@pytest.mark.parametrize("key", ["sk-one sk-two", "sk-ä", "sk-a\nsk-b"])
def test_a_key_that_cannot_be_sent(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httpx")
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(UsageError, match="characters that no key has") as caught:
        get_llm("gpt4").check()
    assert key not in str(caught.value)
