from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from r2med.cli.machine import models as command
from r2med.core import ModelError, UsageError
from r2med.core.files import home
from r2med.models import card_names, chat_names, fetch, find_chat_card, get_card, listing
from r2med.models.registry import row

KEYS = {"name", "kind", "source", "revision", "ready", "get", "proven"}


def test_every_model_is_listed_once_with_a_way_to_get_it() -> None:
    rows = listing()
    assert [r.name for r in rows[:3]] == ["bm25", "bm25-lucene", "bm25-nano"]
    assert sorted(r.name for r in rows[3:]) == sorted([*card_names(), *chat_names()])
    for r in rows:
        assert r.ready == (not r.missing) == (not r.get)
    assert all(r.kind == "dense" for r in listing("dense"))


def put(name: str) -> Path:
    folder = home() / "models" / name
    carrier = get_card(name).carrier
    assert carrier
    for file in carrier.files:
        (folder / file.name).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.name).write_bytes(b"{}")
    return folder


def test_weights_that_lie_here_are_not_missing() -> None:
    assert "weights" in row(get_card("bge-small")).missing
    folder = put("bge-small")
    found = row(get_card("bge-small"))
    assert "weights" not in found.missing
    assert found.path == str(folder)
    assert found.ready == all(find_spec(m) for m in ("onnxruntime", "tokenizers"))


def test_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    assert row(get_card("contriever")).get.endswith("r2med models fetch contriever --allow-pickle")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert row(get_card("openai")).get.endswith("export OPENAI_API_KEY=…")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    found = row(get_card("openai"))
    assert "key" not in found.missing
    assert "secret" not in str(found)
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert "key" not in row(get_card("openai")).missing


@pytest.mark.parametrize("name", ["openai", "voyage"])
def test_a_key_in_a_file_is_a_key(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = get_card(name)
    for variable in (card.key, card.url_variable):
        monkeypatch.delenv(variable, raising=False)
    file = tmp_path / "key"
    file.write_text("sk-secret")
    file.chmod(0o600)
    monkeypatch.setenv(f"{card.key}_FILE", str(file))
    assert "key" not in row(card).missing
    file.write_text("")
    assert "key" in row(card).missing


def test_chat_models_are_listed_with_how_to_get_each(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_API_KEY_FILE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    chats = {r.name: r for r in listing("chat")}
    assert chats["gpt4"].get.endswith("export OPENAI_API_KEY=…")
    serve = "export OPENAI_BASE_URL=http://localhost:8000/v1; vllm serve Qwen/Qwen2.5-7B-Instruct"
    assert chats["qwen-7b"].get.endswith(serve)
    assert chats["smollm2"].get.endswith("r2med models fetch smollm2")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    for name in ("gpt4", "qwen-7b"):
        card = find_chat_card(name)
        assert card
        assert not {"key", "server"} & set(row(card).missing)


def test_an_api_has_nothing_to_fetch() -> None:
    with pytest.raises(UsageError, match="export VOYAGE_API_KEY"):
        fetch("voyage")
    with pytest.raises(UsageError, match="export OPENAI_API_KEY"):
        fetch("gpt4")
    with pytest.raises(UsageError, match="set OPENAI_BASE_URL to the URL of a server"):
        fetch("qwen-7b")


def test_the_command_line() -> None:
    done = CliRunner().invoke(command, ["--json"])
    assert done.exit_code == 0
    data = json.loads(done.stdout)
    assert all(line.keys() >= KEYS for line in data)
    table = CliRunner().invoke(command, ["--kind", "cross-encoder"])
    assert table.exit_code == 0
    assert "monobert" in table.stdout
    assert "contriever" not in table.stdout
    assert "r2med[" in table.stdout or find_spec("torch")


def test_where() -> None:
    failed = CliRunner().invoke(command, ["where", "bge-small"])
    assert isinstance(failed.exception, ModelError)
    folder = put("bge-small")
    assert CliRunner().invoke(command, ["where", "bge-small"]).stdout.strip() == str(folder)
    assert json.loads(CliRunner().invoke(command, ["where", "bge-small", "--json"]).stdout)["path"] == str(folder)
