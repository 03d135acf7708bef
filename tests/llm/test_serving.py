"""Serving open weights: start commands as text; waiting and asking against llama.cpp's own server on loopback."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from r2med.cli import app
from r2med.core import ModelError, Unavailable, UsageError
from r2med.core.files import home
from r2med.core.options import Options
from r2med.llm import get_llm
from r2med.llm.serving import start_of, wait_for
from r2med.models import ChatCard, chat_cards, find_chat_card
from r2med.pipeline import Builder
from tests.llm.conftest import ask
from tests.llm.server import ChatServer
from tests.rerank import tiny

OUTSIDE = home()
# Before a fixture gives every test a home of its own.
FILE = OUTSIDE / "models" / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
GB = 1 << 30


def card_of(name: str) -> ChatCard:
    card = find_chat_card(name)
    assert card is not None
    return card


def value(command: list[str], option: str) -> str:
    return command[command.index(option) + 1]


@pytest.mark.parametrize("server", ["vllm", "sglang", "llama.cpp"])
@pytest.mark.parametrize("name", sorted(card.name for card in chat_cards() if card.served))
def test_every_open_model_has_a_start_command(name: str, server: Any) -> None:
    start = start_of(card_of(name), server)
    assert start.served in start.shell
    assert "None" not in start.shell
    assert start.memory.weights
    assert start.url.endswith("/v1")


def test_what_a_start_command_says() -> None:
    start = start_of(card_of("reasonrank-32b"), gpus=2)
    assert start.shell == (
        "vllm serve liuwenhan/reasonrank-32B --served-model-name liuwenhan/reasonrank-32B --dtype bfloat16 "
        "--max-model-len 32768 --tensor-parallel-size 2 --gpu-memory-utilization 0.9 --enable-prefix-caching "
        "--max-logprobs 20 --generation-config vllm --port 8000"
    )
    assert value(start_of(card_of("qwq-32b")).command, "--reasoning-parser") == "deepseek_r1"
    assert value(start_of(card_of("qwq-32b"), "sglang").command, "--reasoning-parser") == "deepseek-r1"
    retro = start_of(card_of("retro-qwen3-8b"), context=16_384)
    assert json.loads(value(retro.command, "--override-generation-config")) == {"top_k": 40}
    assert json.loads(value(retro.command, "--default-chat-template-kwargs")) == {"enable_thinking": False}
    assert value(retro.command, "--max-model-len") == "16384"
    adapter = start_of(card_of("rank-r1-7b"))
    assert adapter.command[2] == "Qwen/Qwen2.5-7B-Instruct"
    assert value(adapter.command, "--lora-modules") == "ielabgroup/Rank-R1-7B-v0.1=ielabgroup/Rank-R1-7B-v0.1"
    llama = start_of(card_of("reasonrank-7b"), "llama.cpp")
    assert value(llama.command, "--ctx-size") == str(4 * 32768)
    assert any("GGUF" in note for note in llama.notes)
    assert any("no context length is published" in note for note in start_of(card_of("retro-qwen2.5-7b")).notes)
    pinned = start_of(msgspec.structs.replace(card_of("qwen-7b"), revision="a" * 40))
    assert value(pinned.command, "--revision") == pinned.revision == "a" * 40
    assert not pinned.notes


def test_memory_against_what_the_gpus_have() -> None:
    card = card_of("reasonrank-32b")
    memory = start_of(card, gpu_memory=80 * GB).memory
    assert memory.weights == 2 * 32_763_876_352
    assert memory.one_context == 32_768 * 262_144
    assert memory.contexts == (int(0.9 * 80 * GB) - 2 * 32_763_876_352) // (32_768 * 262_144) == 1
    with pytest.raises(
        UsageError, match=r"needs 76\.\dGB of GPU memory, 61\.1GB of it for weights, not 48\.0GB .try --gpus 2"
    ):
        start_of(card, gpu_memory=48 * GB)
    with pytest.raises(UsageError, match=r"not 70\.0GB \(try --gpus 2 or --context \d+\)"):
        start_of(card, gpu_memory=70 * GB)
    shorter = start_of(card, gpu_memory=70 * GB, context=4096).memory
    assert shorter.contexts
    two = start_of(card, gpus=2, gpu_memory=48 * GB).memory
    assert two.given == 96 * GB


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt4", "gpt4 runs at https://api.openai.com/v1: there is nothing to serve"),
        ("smollm2", "smollm2 runs inside r2med"),
        ("bge", "bge is a dense model, which r2med runs itself"),
        ("reasonrank-7c", "did you mean reasonrank-7b"),
        ("reasonrank-7b --context 99999", "takes 32768 tokens"),
        ("reasonrank-7b --gpu-memory lots", "cannot read 'lots' as a size"),
        ("rank1-32b --gpus 2", "wrongly on more than 1 GPU"),
        ("reasonrank-7b --gpu-memory 12GB", "needs .* not 12.0GB"),
        ("reasonrank --gpu-memory 12GB", "reasonrank-7b needs .* not 12.0GB"),
    ],
)
def test_what_cannot_be_served(name: str, words: str) -> None:
    done = CliRunner().invoke(app, ["models", "serve", *name.split()])
    assert isinstance(done.exception, UsageError)
    assert re.search(words, str(done.exception))


def test_the_command() -> None:
    plain = CliRunner().invoke(app, ["models", "serve", "reasonrank-7b", "--gpu-memory", "80GB"])
    assert plain.exit_code == 0, plain.stderr
    assert plain.stdout.startswith("vllm serve liuwenhan/reasonrank-7B ")
    assert len(plain.stdout.splitlines()) == 1
    assert "contexts of full length fit" in plain.stderr
    assert "OPENAI_BASE_URL=http://localhost:8000/v1 r2med run" in plain.stderr
    found = json.loads(CliRunner().invoke(app, ["models", "serve", "reasonrank-7b", "--json"]).stdout)
    assert found["shell"] == plain.stdout.strip()
    assert found["memory"]["needed"] > found["memory"]["weights"]
    assert (found["ready"], found["revision"]) == (False, "")


@pytest.mark.parametrize(
    ("given", "served"),
    [
        ("reasonrank --gpus 1", "reasonrank-7b"),
        ("reasonrank --gpu-memory 24GB --context 8192", "reasonrank-7b"),
        ("reasonrank --gpu-memory 80GB", "reasonrank-32b"),
        ("reasonrank --gpus 4 --gpu-memory 40GB", "reasonrank-32b"),
        ("rank1 --gpus 2 --gpu-memory 80GB", "rank1-7b"),
    ],
)
def test_a_method_stands_for_the_largest_of_its_models_that_fits(given: str, served: str) -> None:
    done = CliRunner().invoke(app, ["models", "serve", *given.split(), "--json"])
    assert done.exit_code == 0, done.exception
    found = json.loads(done.stdout)
    assert found["name"] == served
    assert f":{served}@100" in found["use"]


def test_waiting_for_nobody() -> None:
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(Unavailable, match=r"no model is served at http://127\.0\.0\.1:\d+/v1 after 1 seconds"):
        wait_for(url, card_of("qwen-7b"), 1.0)
    with pytest.raises(UsageError, match="is not the URL of a service"):
        wait_for("localhost:8000", card_of("qwen-7b"), 1.0)


def test_waiting_for_something_else(server: ChatServer) -> None:
    with pytest.raises(ModelError, match="gives no list of models"):
        wait_for(server.url, card_of("qwen-7b"), 5.0)


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    """llama.cpp's HTTP server with the embedded model, under the name of an open model."""
    runtime = pytest.importorskip("xllamacpp", reason="the extra `local-llm` is not installed")
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    if not FILE.is_file():
        pytest.skip("the weights are not here: r2med models fetch smollm2")
    given = runtime.CommonParams()
    given.model.path, given.model_alias = str(FILE), {"Qwen/Qwen2.5-7B-Instruct"}
    given.n_parallel, given.n_ctx, given.port = 4, 4 * 4096, 0
    given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 1
    given.n_gpu_layers, given.cache_ram_mib, given.warmup, given.verbosity = 0, 0, False, -1
    given.cache_prompt = False  # what is kept of an earlier prompt moves probabilities
    running = runtime.Server(given)
    yield f"{running.listening_address}/v1"
    del running


def test_waiting_for_a_real_server(llama: str) -> None:
    assert wait_for(llama, card_of("qwen-7b"), 60.0) == "Qwen/Qwen2.5-7B-Instruct"
    with pytest.raises(ModelError, match=r"serves Qwen/Qwen2\.5-7B-Instruct, not liuwenhan/reasonrank-7B"):
        wait_for(llama, card_of("reasonrank-7b"), 60.0)
    done = CliRunner().invoke(app, ["models", "serve", "qwen-7b", "--wait", llama, "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["ready"]
    assert json.loads(done.stdout)["use"].startswith(f"OPENAI_BASE_URL={llama} r2med run")


def test_yes_or_no_over_http_equals_the_embedded_path(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log-probabilities included: every score is the odds of the first token, and the same either way."""
    (home() / "models").mkdir(parents=True, exist_ok=True)
    (home() / "models" / "smollm2").symlink_to(FILE.parent)
    monkeypatch.setenv("OPENAI_BASE_URL", llama)
    task = tiny.a_task(queries=2, documents=8)
    first = tiny.first_stage(task, depth=6)
    runs = {}
    for chat in ("qwen-7b", "smollm2"):
        with Builder(Options(threads=1, concurrency=1)) as builder:
            run = builder.reranker(f"yesno:{chat}").rerank(task, first, 6)
        notes: Any = run.notes["rerank"]
        assert notes["scorer"]["with_logits"] == 12
        runs[chat] = run
    assert np.ptp(runs["smollm2"].scores) > 0.1
    assert (runs["qwen-7b"].docs == runs["smollm2"].docs).all()
    np.testing.assert_allclose(runs["qwen-7b"].scores, runs["smollm2"].scores, atol=1e-5)


def test_the_embedded_model_gives_log_probabilities(llama: str) -> None:
    (home() / "models").mkdir(parents=True, exist_ok=True)
    (home() / "models" / "smollm2").symlink_to(FILE.parent)
    local = get_llm("smollm2", Options(threads=1))
    request = ask("Is the sky blue? Answer yes or no.", max_tokens=2, temperature=0.0, top_logprobs=5)
    reply = local.complete_one(request)
    assert len({token for token, _ in reply.choices[0].first_token}) >= 5
    assert all(number <= 0 for _, number in reply.choices[0].first_token)
    assert not local.complete_one(ask(max_tokens=2)).choices[0].first_token
    assert local.describe()["logprobs"]
    local.close()


def test_calls_that_share_a_prefix_go_out_together(server: ChatServer) -> None:
    """A server keeps what it has read of a question while its passages are judged."""
    task = tiny.a_task(queries=3, documents=12)
    first = tiny.first_stage(task, depth=5)
    server.text = lambda body: "yes"
    with Builder(Options(concurrency=1)) as builder:
        builder.reranker("yesno:any-model").rerank(task, first, 5)
    asked = [body["messages"][-1]["content"] for body in server.asked]
    order = [next(i for i, query in enumerate(task.queries) if query.text in text) for text in asked]
    assert len(asked) == 15
    assert order == sorted(order)
    starts = [text[: text.index("Passage:")] for text in asked]
    assert all(len(set(starts[i : i + 5])) == 1 for i in range(0, 15, 5))
