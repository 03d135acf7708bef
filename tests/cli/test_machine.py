"""`r2med models`, `r2med completion` and `r2med cache` as commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from r2med.cli import app
from r2med.core import ModelError
from tests.cache.test_admin import fill
from tests.retrieve.encoders import tiny

KEYS = {"name", "kind", "source", "revision", "ready", "get", "proven"}
CHATS = {
    "qwen-7b", "qwen-32b", "qwen-72b", "llama-70b", "r1-qwen-32b", "r1-llama-70b", "huatuo-o1-70b", "qwq-32b",
    "qwen3-32b", "gpt4", "o3-mini", "qwen-3b-ins", "qwen-7b-ins", "smollm2",
    "reasonrank-7b", "reasonrank-32b", "grouprank-7b", "grouprank-32b", "rank1-7b", "rank1-32b", "rank-r1-3b",
    "rank-r1-7b", "rank-r1-14b", "erank-4b", "erank-14b", "erank-32b", "retro-qwen2.5-7b", "retro-qwen2.5-32b",
    "retro-qwen3-8b", "retro-qwen3-14b", "retro-qwen3-32b",
}  # fmt: skip


def r2med(
    *arguments: str, code: int = 0, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    unset = {"OPENAI_API_KEY", "OPENAI_API_KEY_FILE", "OPENAI_BASE_URL", "VOYAGE_API_KEY"}
    given = {name: value for name, value in os.environ.items() if name not in unset} | (environment or {})
    command = [sys.executable, "-m", "r2med", *arguments]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, done.stderr
    return done


def rows(*arguments: str, **environment: str) -> dict[str, Any]:
    return {
        row["name"]: row for row in json.loads(r2med("models", *arguments, "--json", environment=environment).stdout)
    }


def test_every_row_has_the_fields_scripts_rely_on() -> None:
    listed = rows()
    assert all(row.keys() >= KEYS for row in listed.values())
    assert {name for name, row in listed.items() if row["kind"] == "chat"} == CHATS
    assert all(bool(row["get"]) != row["ready"] for row in listed.values())


def test_chat_models_say_how_to_get_each(tmp_path: Path) -> None:
    assert rows("--kind", "chat").keys() == rows("--kind", "llm").keys() == CHATS
    key = tmp_path / "key"
    key.write_text("sk-secret")
    key.chmod(0o600)
    listed = rows("--kind", "chat", OPENAI_API_KEY_FILE=str(key))
    assert "key" not in listed["gpt4"]["missing"]
    assert "server" in listed["qwen-7b"]["missing"]
    table = r2med("models", "--kind", "chat").stdout
    assert "r2med models serve qwen-7b " in table, "the server's own command would be broken over two lines"
    served = rows("--kind", "chat", OPENAI_BASE_URL="http://127.0.0.1:1/v1")
    assert not {"key", "server"} & set(served["qwen-7b"]["missing"])
    assert "sk-secret" not in json.dumps(listed)


def test_rerankers_that_any_chat_model_can_run_are_listed() -> None:
    listed = rows("--kind", "reranker")
    assert listed.keys() >= {"rankgpt", "reasonrank", "grouprank", "insertrank", "erank", "retro", "rank1", "rank-r1"}
    assert all(row["ready"] and row["proven"] and row["summary"] for row in listed.values())
    assert "maxsim" not in listed, "it asks no chat model"
    assert "GroupRank, 2025" in r2med("models", "show", "grouprank").stdout


def test_one_model_says_how_it_was_proven() -> None:
    shown = json.loads(r2med("models", "nv", "--json").stdout)
    assert shown.keys() >= KEYS
    assert "plain torch reference" in shown["proven"]
    assert shown["settings"]["pooling"] == "latent-attention"
    assert shown["paper"] == {"query_length": 4096, "document_length": 4096}
    assert shown["proven"] in r2med("models", "nv").stdout
    assert "BM25 as R2MED computes it" in r2med("models", "show", "bm25").stdout
    assert "did you mean nv" in r2med("models", "nvv", code=2).stderr


def test_one_switch_allows_pickles_and_changes_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: a start of torch for every command would take long on a busy machine."""
    torch = pytest.importorskip("torch", reason="the torch extra is not installed")
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    folder = tmp_path / "models" / "contriever"
    model = tiny.save_model(folder, "bert")
    tiny.save_tokenizer(folder, "bert")
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    name = "contriever:max_length=16"
    typed = [
        "run",
        "--tasks",
        "mini@1/Biology",
        "--retriever",
        name,
        "--device",
        "cpu",
        "--results",
        str(tmp_path / "r"),
    ]
    with pytest.raises(ModelError, match="--allow-pickle"):
        CliRunner().invoke(app, typed, catch_exceptions=False, standalone_mode=False)
    done = CliRunner().invoke(app, [*typed, "--allow-pickle", "--json"], catch_exceptions=False)
    assert [system["name"] for system in json.loads(done.stdout)["systems"]] == [name]
    for command in (
        ["search"],
        ["expand"],
        ["reproduce"],
        ["nano", "build"],
        ["data", "audit"],
        ["export", "training"],
    ):
        assert "--allow-pickle" in CliRunner().invoke(app, [*command, "--help"]).stdout


def test_what_cannot_be_fetched_is_one_line() -> None:
    for name, words in (
        ("gpt4", "runs at an API and has nothing to fetch: export OPENAI_API_KEY=…"),
        ("bge-smal", "did you mean bge-small"),
    ):
        said = r2med("models", "fetch", name, code=2).stderr
        assert words in said
        assert len(said.splitlines()) == 1
    assert "r2med models fetch smollm2" in r2med("models", "where", "smollm2", code=1).stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    assert "_R2MED_COMPLETE" in r2med("completion", shell).stdout


def test_names_of_models_are_completed() -> None:
    asked = {"COMP_WORDS": "r2med models fetch bge-s", "COMP_CWORD": "3", "_R2MED_COMPLETE": "bash_complete"}
    done = r2med(environment=asked)
    assert done.stdout.split() == ["plain,bge-small"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    fill(tmp_path / "home")
    return tmp_path / "home"


def cache(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "r2med", "cache", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, done.stderr
    return done


def document(*arguments: str, code: int = 0) -> Any:
    return json.loads(cache(*arguments, "--json", code=code).stdout)


def test_what_is_shown(home: Path) -> None:
    shown = document()
    assert (shown["root"], shown["bytes"]) == (str(home), sum(shown["kinds"].values()))
    assert [sorted(shown["kinds"]), len(shown["entries"])] == [["generations", "indexes", "scores", "vectors"], 4]
    for entry in shown["entries"]:
        assert entry.keys() == {"kind", "path", "label", "detail", "about", "bytes", "files", "last_used"}
        assert Path(entry["path"]).exists()
    table = cache().stdout
    rows = [" ".join(line.split()[:4]) for line in table.splitlines()[2:]]
    assert rows == ["vectors bge-small document 1", "scores monobert document 1", "generations replay:test hyde 1",
                    "indexes bm25 mini@1/Biology 1"]  # fmt: skip
    assert "monobert" not in cache("--kind", "vectors").stdout


def test_verifying_and_pruning(home: Path) -> None:
    assert document("verify")["damaged"] == []
    (shard,) = home.glob("embeddings/*/*/*.shard")
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    (damage,) = document("verify", code=1)["damaged"]
    assert (damage["kind"], damage["path"], damage["lost"]) == ("vectors", str(shard), True)
    assert f"{shard}: wrong checksum" in cache("verify", code=1).stdout
    assert document("prune")["damaged"] == 1
    assert document("verify")["damaged"] == []
    assert document("prune", "--max-size", "0")["entries"] == 3
    assert [e["kind"] for e in document()["entries"]] == ["generations"]
    for path in home.rglob("*.jsonl"):
        os.utime(path, (1, 1))
    assert document("prune", "--unused-days", "1")["entries"] == 0
    assert document("prune", "--kind", "generations", "--unused-days", "1")["entries"] == 1


def test_mistakes_are_one_line(home: Path) -> None:
    for arguments in (("prune", "--max-size", "much"), ("--kind", "vector"), ("prune", "--kind", "x")):
        said = cache(*arguments, code=2).stderr
        assert said.startswith("r2med: ")
        assert said.count("\n") == 1
