"""What `generate_hydoc` sends and writes: parameters, roles and order as the repository's script has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from r2med.core import DataError, Document, Documents, Qrels, Query, Task, UnknownName, UsageError
from r2med.core.spec import Content
from r2med.expand import Expander, Expansion, expanders
from r2med.expand.generated import API_LLMS, OPEN_LLMS
from r2med.integrations.upstream import as_written, expander_spec, generate
from r2med.integrations.upstream.tree import prompts_of
from r2med.models.prompts import OWN
from r2med.pipeline import Builder
from r2med.pipeline.protocol_pack import SYSTEM, fetch_pack
from r2med.results.protocols import read_protocol
from tests.llm.conftest import _own_keys
from tests.llm.server import ChatServer, serving
from tests.paper_files import write_clone, write_protocol

__all__ = ["_own_keys"]
LONG = " ".join(f"word{i}" for i in range(600))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    with serving() as running:
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        yield running


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack of the repository's shape, fetched into R2MED_HOME."""
    done = fetch_pack(read_protocol(str(write_protocol(tmp_path / "own.toml"))), write_clone(tmp_path / "clone"))
    return Path(done.path)


@pytest.fixture
def task() -> Task:
    documents = Documents.of([Document("d1", "fever\nand rash"), Document("d2", f"fever {LONG}")])
    judged = Qrels.from_judgments([("q1", "d1", 1), ("q1", "d2", 0)])
    return Task("PMC-Treat", (Query("q1", "fever {TEXT} {{query}}"),), documents, judged)


def asked(server: ChatServer, task: Task, method: str, llm: str, path: Path) -> tuple[dict[str, Any], Expander]:
    with Builder() as builder:
        expander = builder.expander(expander_spec(method, llm))
        assert generate(path, task, expander, llm) == 1
    (body,) = server.asked
    return body, expander


@pytest.mark.parametrize(
    ("llm", "sent"),
    [
        ("gpt4", {"model": "gpt-4o-2024-11-20", "temperature": 0.8, "top_p": 0.8}),
        ("o3-mini", {"model": "o3-mini", "temperature": 0.8, "top_p": 0.8}),
        ("qwen-7b", {"model": "Qwen/Qwen2.5-7B-Instruct", "temperature": 0.7, "seed": 42, "max_tokens": 10_240}),
        ("r1-qwen-32b", {"model": "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "temperature": 0.7, "seed": 42,
                         "max_tokens": 10_240}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["hyde", "query2doc", "lamer"])
def test_requests_field_by_field(
    server: ChatServer, pack: Path, task: Task, tmp_path: Path, method: str, llm: str, sent: dict[str, Any]
) -> None:
    """Nothing is sent that the script leaves to the server, and the task is found by the name of its folder."""
    del pack
    body, expander = asked(server, task, method, llm, tmp_path / "texts.jsonl")
    messages = body.pop("messages")
    assert body == sent
    query = "fever {TEXT} {{query}}"
    shown = "".join(
        f"Post: {which} PMC-Treat\nPassage:\n{answer} answer\n{gap}"
        for which, answer, gap in (("first question of", "first", "\n"), ("second of", "second", ""))
    )
    first = " ".join(f"fever {LONG}".split()[:512])
    user = {
        "hyde": f"Write what settles the PMC-Treat post.\nPost: {query}\nPassage: ",
        "query2doc": f"As in the examples, settle PMC-Treat.\n\n{shown}\n\nPost: {query}\nPassage: ",
        "lamer": f"Settle the PMC-Treat post.\n\nPost: {query}\n\nPages: \n[1]. fever and rash\n[2]. {first}",
    }[method]
    assert messages == [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]
    assert isinstance(expander.spec.get("prompts"), Content)


@pytest.mark.parametrize(
    "text", ["<think>never ends", "  I cannot help with this.\n", "<think>a</think>\n\nb", "Sure! Here:\n\nx"]
)
def test_answers_are_written_as_they_came(
    server: ChatServer, pack: Path, task: Task, tmp_path: Path, text: str
) -> None:
    del pack
    server.text = lambda body: text
    path = tmp_path / "texts.jsonl"
    asked(server, task, "hyde", "r1-qwen-32b", path)
    (line,) = (json.loads(line) for line in path.read_text("utf-8").splitlines())
    assert line == {"id": "q1", "text": "fever {TEXT} {{query}}", "hy_doc": text, "doc_id": ["d1"]}


def test_a_model_that_takes_no_temperature_is_asked_without(
    server: ChatServer, pack: Path, task: Task, tmp_path: Path
) -> None:
    del pack
    server.plan = ["no-temperature"]
    with pytest.warns(UserWarning, match="takes no temperature"), Builder() as builder:
        generate(tmp_path / "texts.jsonl", task, builder.expander(expander_spec("hyde", "o3-mini")), "o3-mini")
    assert [{"temperature", "top_p"} & set(body) for body in server.asked] == [{"temperature", "top_p"}, set()]


def test_without_the_pack_the_texts_say_whose_prompts_they_are_made_with(
    server: ChatServer, task: Task, tmp_path: Path
) -> None:
    path = tmp_path / "texts.jsonl"
    with Builder() as builder:
        expander = builder.expander(expander_spec("hyde", "gpt4"))
        assert expander.spec.get("prompts") is None
        assert expander.expand(task).summary()["prompts"] == OWN
        generate(path, task, expander, "gpt4", prompts=OWN)
        assert prompts_of(path) == OWN
        assert generate(path, task, expander, "gpt4", prompts=OWN) == 0, "what is there is kept"
        with pytest.raises(
            DataError, match="was made with r2med's own prompts, not with the repository's: --overwrite"
        ):
            generate(path, task, expander, "gpt4")
        assert generate(path, task, expander, "gpt4", overwrite=True) == 1
    assert prompts_of(path) == ""
    assert len(server.asked) == 1, "answers are kept, whatever becomes of the file"


def test_with_and_without_the_pack_nothing_is_shared(server: ChatServer, task: Task, tmp_path: Path) -> None:
    with Builder() as builder:
        own = builder.expander(expander_spec("hyde", "gpt4"))
        own.expand(task)
    fetch_pack(read_protocol(str(write_protocol(tmp_path / "own.toml"))), write_clone(tmp_path / "clone"))
    with Builder() as builder:
        theirs = builder.expander(expander_spec("hyde", "gpt4"))
        theirs.expand(task)
    assert own.name != theirs.name
    assert own.describe() != theirs.describe()
    assert len(server.asked) == 2


def test_a_task_that_the_pack_lacks_is_refused_before_anything_is_sent(
    server: ChatServer, pack: Path, task: Task
) -> None:
    del pack
    other = Task("Dermatology", task.queries, task.documents, task.qrels)
    with Builder() as builder, pytest.raises(UsageError, match="r2med-paper has no hyde prompt for Dermatology"):
        builder.expander(expander_spec("hyde", "gpt4")).expand(other)
    assert server.asked == []


def test_what_the_protocol_sets_cannot_be_set_beside_it() -> None:
    spec = expanders.changed(expander_spec("hyde", "gpt4"), temperature=0.1)
    with Builder() as builder, pytest.raises(UsageError, match="protocol r2med-paper sets temperature"):
        builder.expander(spec)


def test_an_agent_without_an_answer_writes_nothing() -> None:
    assert as_written(Expansion(query_id="q", original="?", raw=("",))) == ""
    assert as_written(Expansion(query_id="q", original="?", texts=("found",))) == "found"


def test_every_llm_of_the_repository_is_known() -> None:
    for llm in (*OPEN_LLMS, *API_LLMS):
        assert expander_spec("hyde", llm).get("protocol") == "r2med-paper"
    with pytest.raises((UnknownName, UsageError), match="qwen-77b"):
        expander_spec("hyde", "qwen-77b")
