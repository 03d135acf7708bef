"""What `r2med run` says beside its table: once, and only what is of use."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from r2med.cli import app
from r2med.cli.run import command
from r2med.core.files import home
from tests.llm.conftest import KEY, _own_keys, server
from tests.llm.server import ChatServer
from tests.retrieve.encoders.service import serving as serving_vectors
from tests.retrieve.encoders.weights import HOME, real_model

__all__ = ["_own_keys", "server"]
TASKS = "mini@1/Biology,mini@1/MedQA-Diag"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def call(*arguments: str) -> Result:
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_what_systems_and_tasks_share_is_said_once(folder: Path) -> None:
    """`had no usable expansion` stood there once for each system and task."""
    (folder / "blank_texts.py").write_text("def nothing(text):\n    return [] if 'a' in text else [text]\n")
    said = call("-t", TASKS, "-e", "blank_texts:nothing", "-r", "bm25", "-r", "bm25-lucene").stderr.splitlines()
    (line,) = [line for line in said if "usable expansion" in line]
    names = "expand=blank_texts:nothing+bm25, expand=blank_texts:nothing+bm25-lucene"
    assert line == (
        f"{names}: 26 queries had no usable expansion; the raw query was used (mini@1/Biology 13, mini@1/MedQA-Diag 13)"
    )


def test_a_plan_lists_what_is_left_to_do(folder: Path) -> None:
    """24 finished results were 24 rows."""
    call("-t", TASKS, "-r", "bm25")
    assert call("-t", TASKS, "-r", "bm25", "--plan").stdout == "2 of 2 stages are finished: nothing is left to do.\n"
    more = call("-t", TASKS, "-r", "bm25", "-r", "bm25-lucene", "--plan")
    rows = [line.split() for line in more.stdout.splitlines()]
    assert ["score", "bm25-lucene", "no", "2", "tasks", "–", "1"] in rows, "one row for all tasks"
    assert ["score", "bm25"] not in [row[:2] for row in rows]
    assert not [row for row in rows if "yes" in row]
    assert "are finished and not listed (--json lists every stage of every task)" in more.stderr


def test_a_plan_says_what_it_cannot_estimate(folder: Path) -> None:
    """Candidates of a reranker are not known before there are any: nothing of them is in the sums."""
    rerank = ("-r", "bm25", "--rerank", "tests.pipeline.test_system:by_length@10", "--plan")
    said = call("-t", TASKS, *rerank).stdout
    assert "2 of them cannot be estimated before others have run." in said
    assert [line.split()[2:5] for line in said.splitlines() if line.startswith("rerank ")] == [
        ["unknown", "2", "tasks"]
    ]


def test_files_have_names_of_their_own(folder: Path) -> None:
    """`report` and `plot` asked for the name of a file."""
    call("-t", TASKS, "-r", "bm25")
    for arguments, name in ((["plot", "scores", "--resamples", "200"], "scores.svg"), (["report"], "report.html")):
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert name in done.output
        assert (folder / name).stat().st_size > 1000


MODEL = """
class Encoder:
    version = "1"

    def encode(self, texts):
        return [[float(len(text) % 7), 1.0] for text in texts]
"""


def test_documents_that_all_score_the_same_are_pointed_out(folder: Path) -> None:
    (folder / "blank.py").write_text(MODEL.replace("float(len(text) % 7), 1.0", "0.0, 0.0"))
    said = call("-t", "mini@1/Biology", "-r", "bm25", "-r", "blank:Encoder").stderr
    assert "blank:Encoder: 13 queries whose documents all have the same score" in " ".join(said.split())
    assert said.count("the same score") == 1


def test_a_model_may_be_named_by_its_file(folder: Path) -> None:
    (folder / "my_encoder.py").write_text(MODEL)
    (folder / "inside").mkdir()
    (folder / "inside" / "other_encoder.py").write_text(MODEL)
    named = ("-r", "my_encoder.py:Encoder", "-r", "./inside/other_encoder.py:Encoder")
    shown = call("-t", "mini@1/Biology", *named).stdout.splitlines()
    assert [line.split()[0] for line in shown[2:4]] == ["my_encoder:Encoder", "inside.other_encoder:Encoder"]
    mine = ("-t", "mini@1/Biology", "-r", str(folder / "my_encoder.py") + ":Encoder", "--verify-cache", "2")
    again = call(*mine)
    assert "1 of 1 results were there already" in again.stderr
    nothing = "--verify-cache compared nothing, because no result was made this time"
    assert nothing in again.stderr
    assert nothing not in call(*mine, "--overwrite").stderr


BIOLOGY = ("-t", "mini@1/Biology", "-r", "bm25")


def without_key_or_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without the extra `api` and without a key."""
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setitem(sys.modules, "httpx", None)


def result_of(folder: Path) -> dict[str, Any]:
    found = [json.loads(path.read_bytes()) for path in (folder / "results").glob("hyde*/mini@1/Biology.json")]
    (result,) = (whole for whole in found if whole["system"]["name"].endswith("+bm25"))
    assert isinstance(result, dict)
    return result


def test_calls_are_counted_in_output_and_result(folder: Path, server: ChatServer) -> None:
    server.plan = ["429-ms", "500", "null"]
    said = call(*BIOLOGY, "-e", "hyde:openai:any-model,concurrency=1").stderr
    assert "Chat models, this time: 13 calls, price unknown, 2 retries, rate limited 1 time" in said
    assert ": 2 calls of chat models had to be sent again (mini@1/Biology 2)\n" in said
    assert ": 1 time the server of a chat model was asked too often (mini@1/Biology 1)\n" in said
    noted = result_of(folder)["notes"]["expansion"]
    assert (noted["retries"], noted["rate_limits"], noted["lost_calls"], noted["cost"]) == (2, 1, 0, None)
    again = call(*BIOLOGY, "-e", "hyde:openai:any-model", "--json")
    (system,) = [s for s in json.loads(again.stdout)["systems"] if s["kind"] == "expanded"]
    assert system["expansion"]["mini@1/Biology"]["retries"] == 2
    assert "usage" not in json.loads(again.stdout)  # nothing was asked this time
    assert "this time" not in call(*BIOLOGY, "-e", "hyde:openai:any-model").stderr
    assert len(server.asked) == 15


def test_run_asks_again_for_texts_that_are_not_wanted_and_results_follow(folder: Path, server: ChatServer) -> None:
    expanded = (*BIOLOGY, "-r", "bm25-lucene", "-e", "hyde:openai:any-model,concurrency=1")
    server.plan = ["null"] * 2
    call(*expanded)
    assert result_of(folder)["notes"]["expansion"]["generations"] == {"empty": 2, "ok": 11}
    kept = call(*expanded, "--json")
    assert len(server.asked) == 13
    again = call(*BIOLOGY, "-e", "hyde:openai:any-model", "--retry", "empty,failed")
    assert "is run again: it has answers that are asked for again (2 empty)" in again.stderr
    assert len(server.asked) == 15
    assert result_of(folder)["notes"]["expansion"]["generations"] == {"ok": 13}
    # The other retriever's result was made with the old texts: it is made again, and nothing is asked for that.
    both = call(*expanded)
    assert "hyde:openai:any-model,host=" in both.stderr
    why = "answers that it was made from were asked for again"
    assert f"+bm25-lucene on mini@1/Biology is run again: {why}" in both.stderr
    assert "+bm25 on mini@1/Biology is run again" not in both.stderr
    assert call(*expanded, "--json").stdout != kept.stdout
    assert "4 of 4 results were there already" in call(*expanded).stderr
    assert "4 of 4 results were there already" in call(*expanded, "--retry", "empty").stderr
    assert len(server.asked) == 15


READABLE = {"yesno": "Yes.", "erank": "<score>7</score>", "setwise": "[2]", "rankgpt": "[2] > [1] > [3]",
            "grouprank": '{"[1]": 3, "[2]": 9, "[3]": 1}'}  # fmt: skip


def answers_of(folder: Path, system: str) -> dict[str, int]:
    """How many answers a reranker got, by their status."""
    found = [json.loads(path.read_bytes()) for path in (folder / "results").glob("*/mini@1/Biology.json")]
    (result,) = (whole for whole in found if whole["system"]["name"].startswith(system))
    counts = result["notes"]["rerank"]["answers"]["generations"]
    assert isinstance(counts, dict)
    return counts


@pytest.mark.parametrize("method", READABLE)
def test_run_asks_rerankers_again_for_answers_that_are_not_wanted_and_results_follow(
    folder: Path, server: ChatServer, method: str
) -> None:
    whole = READABLE[method]
    server.text = lambda body: {1: "", 2: "They all look fine to me."}.get(len(server.asked), whole)
    one = ("-t", "mini@1/Biology", "-s", f"bm25+{method}:openai:any-model,concurrency=1@3")
    other = ("-t", "mini@1/Biology", "-s", f"bm25:b=0.75+{method}:openai:any-model,concurrency=1@3")
    said = call(*one).stderr
    assert ": 2 answers of chat models told a reranker nothing; passages kept their order" in said
    call(*other)
    asked, shared = len(server.asked), answers_of(folder, "bm25:b=0.75+")
    first = answers_of(folder, f"bm25+{method}")
    assert (first["empty"], first["unparsed"]) == (1, 1)
    assert "1 of 1 results were there already" in call(*one, "--retry", "failed,refused").stderr
    again = call(*one, "--retry", "empty,failed").stderr
    assert "is run again: it has answers that are asked for again (1 empty)" in again
    assert server.asked[asked]["messages"] == server.asked[0]["messages"]
    last = call(*one, "--retry", "empty,unparsed").stderr
    assert "is run again: it has answers that are asked for again (1 unparsed)" in last
    if method != "setwise":  # another pick leads to other questions
        assert len(server.asked) == asked + 2
        assert answers_of(folder, f"bm25+{method}") == {"ok": first["ok"] + 2}
    # What the other system was made from changed, if it used one of the two.
    followed = call(*other).stderr
    assert ("is run again: answers that it was made from" in followed) == bool(set(shared) - {"ok"})
    kept = len(server.asked)
    for system in (one, other):
        assert "1 of 1 results were there already" in call(*system).stderr
        assert "1 of 1 results were there already" in call(*system, "--retry", "empty,unparsed").stderr
    assert len(server.asked) == kept


def test_calls_of_a_reranker_that_failed_are_made_again(folder: Path, server: ChatServer) -> None:
    server.text, server.plan = (lambda body: "[2] > [1] > [3]"), ["ok", "400-length", "429-ms"]
    reranked = (*BIOLOGY, "--rerank", "rankgpt:openai:any-model,concurrency=1@3")
    said = call(*reranked).stderr
    assert ": 1 answer of chat models told a reranker nothing" in said
    assert ": 1 time the server of a chat model was asked too often" in said
    assert answers_of(folder, "bm25+rankgpt") == {"failed": 1, "ok": 12}
    assert "2 of 2 results were there already" in call(*reranked).stderr
    assert "(1 failed)" in call(*reranked, "--retry", "failed").stderr
    assert answers_of(folder, "bm25+rankgpt") == {"ok": 13}
    assert len(server.asked) == 15


def test_what_was_asked_is_said_where_an_error_ends_the_run(folder: Path, server: ChatServer) -> None:
    server.plan, server.default = ["ok", "ok"], "401"
    reranked = (*BIOLOGY, "--rerank", "rankgpt:openai:any-model,concurrency=1@3")
    for form in ((), ("--json",)):
        done = CliRunner().invoke(command, [*reranked, *form])
        assert "refused the API key" in str(done.exception)
        calls = 0 if form else 2
        assert f"Chat models, this time: {calls} calls, " in done.stderr
        assert done.stdout == ""


def test_json_says_what_became_of_the_answers_of_rerankers(folder: Path, server: ChatServer) -> None:
    server.text, server.plan = (lambda body: "[2] > [1] > [3]"), ["429-ms", "null"]
    reranked = (*BIOLOGY, "--rerank", "rankgpt:openai:any-model,concurrency=1@3", "--json")
    for _ in range(2):  # made, and kept
        systems = json.loads(call(*reranked).stdout)["systems"]
        (told,) = (system["reranker_answers"]["mini@1/Biology"] for system in systems if "reranker_answers" in system)
        assert [told[0][key] for key in ("generations", "retries", "rate_limits", "lost_calls", "cost")] == [
            {"empty": 1, "ok": 12}, 1, 1, 0, None,
        ]  # fmt: skip


@pytest.mark.parametrize(
    "options", [("-e", "hyde:{}"), ("-e", "search-r1:{}"), ("--rerank", "rankgpt:{}@3"), ("--rerank", "yesno:{}@3")]
)
def test_calls_in_flight_are_as_many_as_the_spec_says(
    folder: Path, server: ChatServer, options: tuple[str, str]
) -> None:
    """`concurrency` and the limits of a minute were read and left aside."""
    server.seconds, (flag, spec) = 0.02, options
    call(*BIOLOGY, flag, spec.format("openai:any-model,concurrency=2"))
    assert server.most_in_flight == 2


def test_retry_needs_a_chat_model(folder: Path) -> None:
    for more in ((), ("--plan",)):
        done = CliRunner().invoke(command, [*BIOLOGY, "--retry", "empty", *more])
        assert str(done.exception) == "--retry asks chat models again, and no system here asks one"


def test_stored_texts_need_no_key_and_no_client(
    folder: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    expander = f"hyde:openai:any-model,host={server.url.removeprefix('http://').removesuffix('/v1')}"
    call(*BIOLOGY, "-e", expander)
    without_key_or_client(monkeypatch)
    for more in (["--overwrite"], ["--plan"], ["-r", "bm25-lucene"]):
        call(*BIOLOGY, "-e", expander, *more)
    assert len(server.asked) == 13


def test_stored_vectors_need_no_key_and_no_client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing key ended the run, though everything was in the cache."""
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    with serving_vectors() as service:
        service.limit = 10_000
        monkeypatch.setenv("OPENAI_BASE_URL", service.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        call("-t", "mini@1/Biology", "-r", "openai-small:dim=8")
    without_key_or_client(monkeypatch)
    monkeypatch.setenv("OPENAI_BASE_URL", service.url)
    call("-t", "mini@1/Biology", "-r", "openai-small:dim=8")
    call("-t", "mini@1/Biology", "-r", "openai-small:dim=8", "--overwrite")
    missing = CliRunner().invoke(command, ["-t", "mini@1/MedQA-Diag", "-r", "openai-small:dim=8"])
    assert "r2med[api]" in str(missing.exception)


@pytest.mark.parametrize("reranker", ["yesno", "setwise"])
def test_stored_answers_of_rerankers_need_no_key_and_no_client(
    folder: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch, reranker: str
) -> None:
    host = server.url.removeprefix("http://").removesuffix("/v1")
    reranked = (*BIOLOGY, "--rerank", f"{reranker}:openai:any-model,host={host}@3")
    call(*reranked)
    asked = len(server.asked)
    without_key_or_client(monkeypatch)
    for more in ((), ("--plan",), ("--overwrite",)):
        call(*reranked, *more)
    assert len(server.asked) == asked > 0


def test_stored_vectors_and_scores_need_no_engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without the extra `onnx`: vectors of an encoder, and scores of a cross-encoder."""
    for name in ("bge-small", "msmarco-minilm"):
        real_model(name, "tokenizer.json")
    home().mkdir(parents=True)
    (home() / "models").symlink_to(HOME / "models")
    given = ("-t", "mini@1/Biology", "-r", "bge-small", "--rerank", "msmarco-minilm@3")
    call(*given)
    for module in ("onnxruntime", "tokenizers"):
        monkeypatch.setitem(sys.modules, module, None)
    for more in ((), ("--plan",), ("--overwrite",)):
        call(*given, *more)
    missing = CliRunner().invoke(command, ["-t", "mini@1/MedQA-Diag", "-r", "bge-small"])
    assert "r2med[onnx]" in str(missing.exception)
