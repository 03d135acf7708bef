"""`r2med expand`: in this process, where a server is told how to behave, and as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from r2med.cli.expand import command
from r2med.core import R2MedError
from r2med.core.files import home
from r2med.expand import expanders
from tests.builders import lines
from tests.llm.conftest import KEY, _own_keys, server
from tests.llm.server import ChatServer, serving

__all__ = ["_own_keys", "server"]

HOME = home()  # before the tests get a home of their own


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def document(result: Result) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(result.stdout)
    return whole


def test_generate_report_and_resume(server: ChatServer) -> None:
    arguments = ("--method", "hyde", "--llm", "gpt4", "--tasks", "mini@1/MedQA-Diag", "--limit", "2", "--json")
    first = run(*arguments)
    assert first.exit_code == 0, first.output
    shown = document(first)
    (row,) = shown["tasks"]
    assert (row["task"], row["queries"], row["status"]) == ("mini@1/MedQA-Diag", 2, {"ok": 2})
    assert row["cost"] > 0
    assert Path(row["store"]).is_file()
    assert KEY not in first.output + Path(row["store"]).read_text()
    again = document(run(*arguments))
    assert again["tasks"] == shown["tasks"]
    assert (shown["usage"]["calls"], again["usage"]["calls"], again["usage"]["cost"]) == (2, 0, 0)
    assert "This time: 0 calls, $0.0000" in run(*arguments[:-1]).stderr
    assert len(server.asked) == 2


def test_a_dry_run_spends_nothing(server: ChatServer) -> None:
    for method in ("hyde", "query2doc", "lamer", "search-o1", "search-r1"):
        result = run("--method", method, "--llm", "gpt4", "--tasks", "mini@1/Biology", "--dry-run", "--json")
        shown = document(result)
        assert shown["dry_run"] is True
        assert shown["total"]["calls"] >= 13
        assert shown["total"]["cost"] > 0
    text = run("--method", "hyde", "--llm", "gpt4", "--tasks", "mini@1/Biology", "--dry-run")
    assert "Nothing was sent" in text.output
    assert not server.asked


@pytest.mark.parametrize("method", ["hyde", "query2doc", "lamer", "search-o1", "search-r1"])
def test_a_dry_run_needs_no_key_and_leaves_nothing_behind(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    for variable in ("OPENAI_API_KEY", "OPENAI_API_KEY_FILE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    for llm, priced in (("gpt4", True), ("o3-mini", True), ("qwen-7b", False)):
        result = run("--method", method, "--llm", llm, "--tasks", "mini@1/Biology", "--dry-run", "--json")
        assert result.exit_code == 0, result.output
        assert (document(result)["total"]["cost"] is not None) == priced
    assert not (home() / "generations").exists()


def test_a_recording_of_other_queries_is_no_success(tmp_path: Path) -> None:
    file = tmp_path / "query_with_hydoc.jsonl"
    file.write_bytes(lines([{"id": "somebody-else", "hy_doc": "A passage."}]))
    result = run("--method", "hyde", "--llm", f"replay:{file}", "--tasks", "mini@1/Biology", "--json")
    assert result.exit_code == 1
    assert "not one query got a text" in result.stderr


def test_a_judge_without_a_diagnosis_is_a_mistake() -> None:
    result = run("--method", "oracle", "--judge", "gpt4")
    assert result.exit_code == 2
    assert "--judge needs --diagnose" in result.output


def test_a_budget_ends_the_command_with_its_own_code(server: ChatServer) -> None:
    arguments = (
        "--method",
        "hyde",
        "--llm",
        "gpt4",
        "--tasks",
        "mini@1/Biology",
        "--concurrency",
        "1",
        "--max-tokens",
        "50",
    )
    result = run(*arguments, "--max-cost", "0.002", "--json")
    assert result.exit_code == 3
    assert "budget" in document(result)["stopped"]
    assert "budget" in result.stderr
    paid = len(server.asked)
    assert 0 < paid < 13
    assert run(*arguments).exit_code == 0
    assert len(server.asked) == 13


def test_a_refused_key_is_one_line_without_the_key(server: ChatServer) -> None:
    server.default = "401"
    result = run("--method", "hyde", "--llm", "gpt4", "--tasks", "mini@1/Biology", "--json")
    assert result.exit_code == 2
    assert KEY not in result.output
    assert document(result)["stopped"]


def test_failures_of_all_queries_are_no_success(server: ChatServer) -> None:
    server.default = "400-length"
    result = run("--method", "hyde", "--llm", "gpt4", "--tasks", "mini@1/Biology", "--limit", "3", "--json")
    assert result.exit_code == 1
    assert "not one query got a text" in result.stderr


def test_replay_diagnose_and_published(tmp_path: Path) -> None:
    import r2med
    from r2med.tasks import write_task

    task = r2med.load("mini@1/MedQA-Diag")
    texts = lines({"id": q.id, "hy_doc": f"The diagnosis is {q.answer}."} for q in task.queries[:12])
    file = tmp_path / "query_with_hydoc.jsonl"
    file.write_bytes(texts)
    arguments = ("--method", "hyde", "--tasks", "mini@1/MedQA-Diag", "--diagnose", "bm25")
    result = run(*arguments, "--llm", f"replay:{file}", "--json")
    diagnosis = document(result)["tasks"][0]["diagnosis"]
    assert diagnosis["groups"]["right"]["queries"] == 12
    assert diagnosis["groups"]["right"]["gain"] > 0
    assert diagnosis["oracle"] > diagnosis["raw"]
    shown = run(*arguments, "--llm", f"replay:{file}")
    assert "the texts of 92 % of the queries name the answer (by words)" in shown.output
    write_task(task, tmp_path / "MedQA-Diag", to="r2med")
    own = tmp_path / "MedQA-Diag" / "hyde" / "gpt4" / "query_with_hydoc.jsonl"
    own.parent.mkdir(parents=True)
    own.write_bytes(texts)
    folder = str(tmp_path / "MedQA-Diag")
    result = run("--method", "hyde", "--llm", "published:gpt4", "--tasks", folder, "--json")
    assert document(result)["tasks"][0]["status"] == {"missing": 1, "ok": 12}
    result = run("--method", "lamer", "--llm", "published:gpt4", "--tasks", folder, "--json")
    assert "it has hyde:gpt4" in document(result)["stopped"]
    assert result.exit_code == 2


def test_the_judge_lives_on_what_is_left(server: ChatServer) -> None:
    server.text = lambda body: "yes" if "one word: yes or no" in body["messages"][-1]["content"] else "A passage."
    arguments = ("--method", "hyde", "--llm", "gpt4", "--tasks", "mini@1/Biology", "--limit", "2", "--max-tokens", "50")
    judged = run(*arguments, "--diagnose", "bm25", "--judge", "gpt4", "--json")
    diagnosis = document(judged)["tasks"][0]["diagnosis"]
    assert diagnosis["judged_by"] == f"gpt4:host={server.url.split('/')[2]}"
    assert diagnosis["named"] == 1.0
    assert diagnosis["groups"]["right"]["queries"] == 2
    server.text = lambda body: "Another passage."  # the verdict on the first one is kept
    asked = len(server.asked)
    poor = run(
        *arguments, "--temperature", "0.1", "--diagnose", "bm25", "--judge", "gpt4", "--max-cost", "0.0021", "--json"
    )
    assert poor.exit_code == 3
    assert document(poor)["tasks"][0]["status"] == {"ok": 2}  # what was generated is reported
    assert len(server.asked) - asked == 2


def test_a_missing_key_is_one_line_when_something_has_to_be_asked() -> None:
    result = run("--method", "hyde", "--llm", "gpt4", "--tasks", "mini@1/MedQA-Diag", "--limit", "1")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("r2med: gpt4 needs a key: export OPENAI_API_KEY=")


def test_what_is_stored_or_planned_needs_no_key_and_no_extra(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--method", "hyde", "--llm", "gpt4", "--tasks", "mini@1/MedQA-Diag", "--limit", "2", "--json")
    paid = document(run(*arguments))
    asked = len(server.asked)
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setitem(sys.modules, "httpx", None)
    assert document(run(*arguments))["tasks"] == paid["tasks"]
    assert document(run(*arguments, "--dry-run"))["total"]["calls"] == 0
    assert document(run(*arguments[:-3], "--dry-run", "--json"))["total"]["calls"] > 0
    assert len(server.asked) == asked


def test_texts_of_one_server_are_not_those_of_another(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of somebody's own that calls its model gpt-4o is not OpenAI, and not another such server either."""
    arguments = ("--method", "hyde", "--llm", "gpt4", "--tasks", "mini@1/MedQA-Diag", "--limit", "1", "--json")
    first = document(run(*arguments))
    with serving() as other:
        other.text = lambda body: "Another model's words."
        monkeypatch.setenv("OPENAI_BASE_URL", other.url)
        second = document(run(*arguments))
        assert len(other.asked) == 1
    stores = [Path(shown["tasks"][0]["store"]) for shown in (first, second)]
    assert stores[0] != stores[1]
    for shown, url in ((first, server.url), (second, other.url)):
        assert shown["description"]["model"]["host"] == url.removeprefix("http://").removesuffix("/v1")
    monkeypatch.delenv("OPENAI_BASE_URL")
    assert document(run(*arguments[:-1], "--dry-run", "--json"))["total"]["calls"] == 1


def test_the_oracle_says_what_it_is() -> None:
    result = run("--method", "oracle", "--tasks", "mini@1/Biology", "--diagnose", "bm25-lucene")
    assert "ceiling, not a result" in result.stderr
    assert "the texts of 100 % of the queries name the answer" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--method", "hyde"), "hyde needs --llm"),
        (("--method", "hide", "--llm", "gpt4"), "unknown expansion method 'hide'; did you mean hyde"),
        (("--method", "oracle", "--llm", "gpt4"), "oracle asks no chat model: leave out --llm"),
        (("--method", "tests.own_models:shout", "--llm", "gpt4"), "asks no chat model"),
        (("--method", "oracle", "--temperature", "0"), "leave out --temperature"),
        (("--method", "hyde", "--llm", "replay:x", "--max-tokens", "9"), "leave out --max-tokens"),
        (("--method", "search-r1", "--llm", "local", "--passages", "2"), "one answer a query"),
        (("--method", "hyde", "--llm", "gpt5000"), "unknown LLM"),
        (("--method", "hyde", "--llm", "replay:/no/such"), "there is no /no/such"),
        (("--method", "lamer", "--llm", "x", "--retriever", "bm26"), "unknown"),
        (("--method", "hyde", "--llm", "smollm2", "--retriever", "bge-small"), "leave out --retriever"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], complaint: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, R2MedError)
    assert complaint in str(result.exception)
    assert result.exception.exit_code == 2


def test_a_folder_whose_name_drives_terminals(tmp_path: Path) -> None:
    import r2med
    from r2med.tasks import write_task

    folder = tmp_path / "a\u202eb"
    write_task(r2med.load("mini@1/Biology"), folder, to="r2med")
    result = run("--method", "oracle", "--tasks", str(folder), "--diagnose", "bm25")
    assert result.exit_code == 0, result.output
    assert r"a\u202eb: nDCG@10 × 100 is " in result.stdout
    assert "\u202e" not in result.output


def test_the_embedded_model() -> None:
    pytest.importorskip("xllamacpp", reason="the extra `local-llm` is not installed")
    if not any((HOME / "models" / "smollm2").glob("*.gguf")):
        pytest.skip("smollm2 is not here: r2med models fetch smollm2")
    (home() / "models").mkdir(parents=True)
    (home() / "models" / "smollm2").symlink_to(HOME / "models" / "smollm2")
    arguments = (
        "--method",
        "hyde",
        "--llm",
        "local",
        "--tasks",
        "mini@1/Biology",
        "--limit",
        "1",
        "--max-tokens",
        "24",
    )
    result = run(*arguments, "--json")
    shown = document(result)
    assert result.exit_code == 0
    assert "SmolLM2" in shown["warning"]
    assert shown["tasks"][0]["completion_tokens"] > 0


def typed(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "r2med", "expand", *arguments]
    environment, root = dict(os.environ), Path(__file__).parents[2]
    return subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False, timeout=120)


def test_as_a_user_types_it(server: ChatServer) -> None:
    arguments = ("-m", "hyde", "-l", "gpt4", "-t", "mini@1/Biology", "--limit", "2", "-n", "2", "--temperature", "0.2")
    table = typed(*arguments)
    assert table.returncode == 0, table.stderr
    assert "mini@1/Biology" in table.stdout
    assert "ok 2" in table.stdout
    assert KEY not in table.stdout + table.stderr
    assert {(body["n"], body["temperature"], body["seed"]) for body in server.asked} == {(2, 0.2, 0)}
    again = typed(*arguments, "--json")
    shown = json.loads(again.stdout)
    assert shown["expander"] == f"hyde:gpt4,host={server.url.split('/')[2]},passages=2,temperature=0.2"
    assert shown["usage"]["calls"] == 0
    assert len(server.asked) == 2


def test_a_method_of_the_users_own() -> None:
    shown = json.loads(typed("-m", "tests.own_models:shout", "-t", "mini@1/Biology", "--limit", "1", "--json").stdout)
    assert shown["expander"] == "tests.own_models:shout"
    assert shown["tasks"][0]["raw_query_used"] == 0


def test_mistakes_as_a_user_sees_them() -> None:
    for arguments in (("-m", "hide"), ("-m", "hyde"), ("-m", "hyde", "-l", "qwen-7"), ("-m", "hyde", "-l", "replay:")):
        done = typed(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("r2med: ")
        assert len(done.stderr.strip().splitlines()) == 1


def test_help_lists_every_method() -> None:
    shown = " ".join(typed("--help").stdout.split())
    for entry in expanders:
        assert (entry.name in shown) == getattr(entry.target, "makes_text", True)


def test_what_makes_no_texts_is_refused() -> None:
    for arguments in (("-m", "rm3"), ("-m", "hyde+rm3", "-l", "gpt4"), ("-m", "oracle+rm3")):
        done = typed(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"r2med run --expand {arguments[1]}" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


MODEL = ("--llm", "openai:any-model", "--tasks", "mini@1/Biology", "--limit", "3", "--concurrency", "1")


def test_a_price_that_nobody_knows_is_said(server: ChatServer) -> None:
    """It was $0.0000."""
    shown = run("--method", "hyde", *MODEL)
    assert "price unknown" in shown.stdout
    assert "This time: 3 calls, price unknown; what was stored" in shown.stderr
    assert "$" not in shown.output
    assert "price unknown" in run("--method", "hyde", *MODEL[:-4], "--limit", "4", "--dry-run").stdout
    whole = document(run("--method", "hyde", *MODEL, "--json"))
    assert whole["tasks"][0]["cost"] is None
    assert len(server.asked) == 3


def test_retries_and_rate_limits_are_shown(server: ChatServer) -> None:
    server.plan = ["429-ms", "500", "ok"]
    shown = run("--method", "hyde", *MODEL)
    assert "This time: 3 calls, price unknown, 2 retries, rate limited 1 time, " in shown.stderr
    assert " s waited in between; what was stored" in shown.stderr
    again = run("--method", "hyde", *MODEL)
    assert "mini@1/Biology: 2 retries in all, rate limited 1 time\n" in again.stderr  # also when nothing is asked
    assert "This time: 0 calls" in again.stderr
    row = document(run("--method", "hyde", *MODEL, "--json"))["tasks"][0]
    assert (row["retries"], row["rate_limits"], row["lost_calls"]) == (2, 1, 0)


def test_only_what_is_asked_for_is_asked_again(server: ChatServer) -> None:
    """Empty answers were kept for ever."""
    server.plan = ["ok", "null", "refusal"]
    assert document(run("--method", "hyde", *MODEL, "--json"))["tasks"][0]["generations"] == {
        "empty": 1, "ok": 1, "refused": 1,
    }  # fmt: skip
    planned = document(run("--method", "hyde", *MODEL, "--retry", "empty, failed", "--dry-run", "--json"))
    assert (planned["total"]["calls"], planned["total"]["stored"]) == (1, 2)
    again = run("--method", "hyde", *MODEL, "--retry", "empty,failed", "--json")
    assert document(again)["tasks"][0]["generations"] == {"ok": 2, "refused": 1}
    assert len(server.asked) == 4
    assert server.asked[3]["messages"] == server.asked[1]["messages"]
    wrong = run("--method", "hyde", *MODEL, "--retry", "blank")
    assert isinstance(wrong.exception, R2MedError)
    assert "'blank'" in str(wrong.exception)


def test_a_call_that_a_kill_lost_is_counted(tmp_path: Path) -> None:
    """A real `kill -9` while two calls are under way."""
    pytest.importorskip("httpx", reason="the extra `api` is not installed")
    arguments = ["--method", "hyde", "--llm", "openai:any-model", "--tasks", "mini@1/Biology", "--limit", "2"]
    with serving() as server:
        server.most = 0
        settings = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": KEY, "R2MED_HOME": str(tmp_path / "home")}
        environment = {**os.environ, **settings}
        command = [sys.executable, "-m", "r2med", "expand", *arguments]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        with server.lock:
            assert server.lock.wait_for(lambda: len(server.asked) == 2, timeout=120)
        process.kill()
        process.wait()
        with server.lock:
            server.most = None
            server.lock.notify_all()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            shown = run(*arguments)
            assert shown.exit_code == 0, shown.output
            lost = "mini@1/Biology: 2 calls sent and lost when a process ended, which may have been charged"
            assert lost in shown.stderr.splitlines()
            assert document(run(*arguments, "--json"))["tasks"][0]["lost_calls"] == 2
        assert len(server.asked) == 4
