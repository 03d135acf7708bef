"""The command as a user types it: in a process of its own, output and exit code and all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


class Answer:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def one_line(self) -> str:
        """An error is one line on stderr, nothing on stdout, and no stack trace."""
        assert self.code != 0
        assert self.out == ""
        assert self.err.startswith("r2med: ")
        assert len(self.err.strip().splitlines()) == 1, self.err
        return self.err


@pytest.fixture
def r2med(tmp_path: Path) -> Any:
    def call(*arguments: str, **environment: str) -> Answer:
        done = subprocess.run(
            [sys.executable, "-m", "r2med", *arguments],
            cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return Answer(done)

    return call


def test_run_prints_a_table_and_json(r2med: Any) -> None:
    table = r2med("run", "--retriever", "bm25", "--retriever", "bm25-lucene", "--fuse", "rrf")
    assert table.code == 0, table.err
    assert "Macro" in table.out
    assert "bm25+bm25-lucene.rrf" in table.out
    document = r2med("run", "-r", "bm25", "--json").json
    assert document["schema"] == 1
    (system,) = document["systems"]
    assert system["name"] == "bm25"
    assert system["kind"] == "lexical"
    assert len(system["tasks"]) == 8
    scores = [t["ndcg_at_10"] for t in system["tasks"].values()]
    assert system["macro"]["ndcg_at_10"] == pytest.approx(sum(scores) / 8)
    assert "mini/MedQA-Diag" in system["tasks"]
    assert f"{100 * system['macro']['ndcg_at_10']:.2f}" in table.out
    assert r2med("run", "-r", "bm25", "--markdown").out.startswith("| System |")
    assert "were there already" in r2med("run", "-r", "bm25").err


def test_run_on_a_folder(r2med: Any, tmp_path: Path) -> None:
    r2med("data", "convert", "mini@1/Biology", "mine", "--to", "beir")
    document = r2med("run", "--tasks", "./mine", "-r", "bm25-lucene", "--json").json
    assert list(document["systems"][0]["tasks"]) == ["mine"]
    assert (tmp_path / "results" / "bm25-lucene" / "own" / "mine.run.gz").is_file()


def test_score_equals_run(r2med: Any, tmp_path: Path) -> None:
    r2med("data", "convert", "mini@1/Biology", "mine", "--to", "beir")
    expected = r2med("run", "--tasks", "./mine", "-r", "bm25", "--json").json["systems"][0]["tasks"]["mine"]
    scored = r2med("score", "results/bm25/own/mine.run.gz", "mine/qrels/test.tsv", "--json").json
    assert scored["queries"] == 13
    assert scored["missing_queries"] == 0
    assert scored["measures"]["ndcg_at_10"] == pytest.approx(expected["ndcg_at_10"], abs=1e-12)
    few = r2med(
        "score", "results/bm25/own/mine.run.gz", "mine/qrels/test.tsv", "-m", "R@3", "--per-query", "--json"
    ).json
    assert list(few["measures"]) == ["recall_at_3"]
    assert len(few["per_query"]) == 13


def test_tasks_lists_five_collections(r2med: Any) -> None:
    tasks = r2med("tasks", "--json").json
    assert Counter(t["collection"] for t in tasks) == dict.fromkeys(["mini@1", "mini-dev", "mini", "nano", "r2med"], 8)
    assert {"name", "collection", "family", "queries", "documents", "judgments", "revision", "available"} <= tasks[
        0
    ].keys()
    assert {t["collection"] for t in tasks if t["available"]} == {"mini@1", "mini-dev", "mini"}
    for collection, queries in {"mini@1": 102, "mini-dev": 64, "mini": 564, "r2med": 876}.items():
        assert sum(t["queries"] for t in tasks if t["collection"] == collection) == queries
    assert len(r2med("tasks", "nano", "--json").json) == 8


def test_stats_and_validate(r2med: Any) -> None:
    assert len(r2med("data", "stats", "--tasks", "mini@1", "--json").json) == 8
    assert r2med("data", "validate", "--json").json["ok"] is True
    assert "#Q" in r2med("data", "stats", "mini@1/Biology").out


def test_validate_fails_on_errors(r2med: Any, tmp_path: Path) -> None:
    r2med("data", "convert", "mini@1/Biology", "mine", "--to", "r2med")
    corpus = tmp_path / "mine" / "corpus.jsonl"
    corpus.write_text(corpus.read_text() + corpus.read_text().splitlines()[0] + "\n{broken\n")
    answer = r2med("data", "validate", "./mine", "--json")
    assert answer.code == 1
    codes = {f["code"] for f in json.loads(answer.out)["tasks"][0]["errors"]}
    assert codes == {"duplicate-document-id", "broken-json"}


def test_convert_there_and_back(r2med: Any, shared_data: Path) -> None:
    there = r2med("data", "convert", str(shared_data / "scifact"), "out", "--to", "r2med", "--json").json
    back = r2med("data", "convert", "./out", "back", "--to", "beir", "--compress", "gz", "--json").json
    assert there[0]["fingerprint"] == back[0]["fingerprint"]
    assert r2med("data", "validate", str(shared_data / "scifact"), "--json").code == 0


def test_search_marks_what_matched(r2med: Any) -> None:
    found = r2med("search", "--task", "mini@1/MedQA-Diag", "salt craving and low sodium", "--json").json
    best = found["hits"][0]
    assert best["terms"]
    assert all("".join(best["text"][a:b]) for a, b in best["marks"])
    first = r2med("search", "--task", "mini@1/MedQA-Diag", "salt craving", "--top", "1").out
    assert "matched: craving, salt" in first, "words, not their stems"
    assert "matched: salt, craving" in r2med("search", "salt craving", "--top", "1").out, "in mini/MedQA-Diag"
    assert "Nothing found" in r2med("search", "xyzzy").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--tasks", "mini@1/Biolgy"], "did you mean mini@1/Biology"),
        (["run", "--tasks", "./nowhere"], "no such folder"),
        (["run", "--tasks", "r2med/Biology"], "r2med data download r2med/Biology"),
        (["run", "-r", "bm26"], "did you mean bm25"),
        (["run", "-r", "bm25:b=2"], "at least 0 and at most 1"),
        (["run", "--measure", "nDGC@10"], "did you mean nDCG@10"),
        (["run", "--depth", "0"], "depth"),
        (["run", "-r", "bm25", "--measure", "nDCG@7"], "nDCG@7 is not among the stored measures"),
        (["rnu"], "did you mean run"),
        (["relabel"], "did you mean judge relabel"),
        (["data", "vaildate"], "no such command 'vaildate'; did you mean validate? (see r2med data --help)"),
        (["run", "-r", "bm25", "--device", "gpu9"], "unknown device 'gpu9'"),
        (["run", "-r", "bm25", "--max-length", "64"], "max_length changes nothing: bm25 cuts no texts"),
        (["run", "-r", "bm25", "-s", "bm25-lucene+bm25.rrf", "--max-length", "64"], "max_length changes nothing"),
        (["run", "-r", "bm25", "--plan", "--latex"], "nothing is run here"),
        (["run", "@", "-r", "bm25"], "leave out --retriever, or @"),
        (["leaderboard", "--measured", "--protocol", "mteb"], "choose among published figures"),
        (["report", "--html", "report.pdf"], "ends in .html"),
        (["compare", "bm25", "bm25-lucene", "--flagged", "nowhere"], "File 'nowhere' does not exist"),
        (["score", "none.run", "none.qrels"], "no such file"),
        (["search", " "], "empty"),
        (["run", "-r", "bm25", "--depth", "1_0"], "'1_0' is not a number in plain digits"),
        (["run", "-r", "bm25", "-r", "bm25-lucene", "--fuse", "weighted", "--weights", "1_0,2"], "plain digits"),
        (["run", "-s", "bm25+bm25-lucene.weighted:w=1_0/2"], "numbers with / between them"),
        (["run", "-r", "bm25:k1=1_2"], "a number of at least 0, not '1_2'"),
        (["run", "-r", "bm25", "--max-cost", "nan"], "'nan' is not a finite number"),
        (["report", "--max-size", "nan"], "'nan' is not a finite number"),
        (["report", "--max-size", "inf"], "'inf' is not a finite number"),
        (["reproduce", "--tolerance", "nan"], "'nan' is not a finite number"),
        (["cache", "prune", "--unused-days", "nan"], "'nan' is not a finite number"),
        (["compare", "bm25", "bm25-lucene", "--depth", "5"], "--depth is how deep --holes and --pool look"),
        (["data", "audit", "mini@1/Biology", "--seed", "5"], "--seed belongs to --artefacts"),
        (["models", "serve", "erank", "--timeout", "5"], "--timeout is how long --wait waits"),
        (["nano", "profile", "--published", "--json", "--markdown"], "--json and --markdown exclude each other"),
        (["run", "@", "--tasks", "mini"], "@ alone lists the experiments"),
        (["data", "convert", "mini@1/Biology", "out", "--to", "bear"], "did you mean beir"),
    ],
)
def test_mistakes_are_one_line(r2med: Any, arguments: list[str], words: str) -> None:
    assert words in r2med(*arguments).one_line


def test_names_may_stand_in_one_list(r2med: Any, tmp_path: Path) -> None:
    listed = r2med("data", "stats", "-t", "mini@1/Biology,mini@1/MedQA-Diag,mini@1/Biology", "--json").json
    assert [t["task"] for t in listed] == ["mini@1/Biology", "mini@1/MedQA-Diag"]
    r2med("data", "convert", "mini@1/Biology", "a,b", "--to", "beir")
    assert [t["task"] for t in r2med("data", "stats", "a,b", "./a,b", "--json").json] == ["a,b"]


def test_two_folders_of_one_name_are_not_taken_for_one(r2med: Any) -> None:
    r2med("data", "convert", "mini@1/Biology", "one/mine", "--to", "beir")
    r2med("data", "convert", "mini@1/MedQA-Diag", "two/mine", "--to", "beir")
    done = r2med("run", "-t", "one/mine", "-t", "two/mine", "-r", "bm25")
    assert "two different tasks are called 'mine'" in done.one_line


def test_help_and_version(r2med: Any) -> None:
    from r2med import __version__

    assert r2med("--version").out.strip() == f"r2med, version {__version__}"
    assert "Run systems on tasks" in r2med("--help").out
    bare = r2med()
    assert (bare.code, bare.err.rstrip()) == (2, r2med("--help").out.rstrip())
    for name in ("run", "search", "score", "tasks", "data", "models", "completion"):
        assert r2med(name, "--help").code == 0


@pytest.mark.parametrize("group", ["data", "nano", "plot", "judge", "bundle", "export", "models", "cache", "protocol"])
def test_the_commands_of_a_group_are_described_in_whole_sentences(r2med: Any, group: str) -> None:
    """They ended in three dots."""
    said = r2med(group, "--help").out
    assert "..." not in said.partition("Commands:")[2]
    assert said.partition("Commands:")[2].strip()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(r2med: Any, shell: str) -> None:
    assert "_R2MED_COMPLETE" in r2med("completion", shell).out


def test_completion_completes(r2med: Any) -> None:
    answer = r2med(_R2MED_COMPLETE="bash_complete", COMP_WORDS="r2med da", COMP_CWORD="1")
    assert "data" in answer.out


def test_help_is_light() -> None:
    """No numpy, no rich, nothing heavy: the command answers at once."""
    code = "import sys; from r2med.cli import app; app.main(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"numpy", "rich", "msgspec", "torch", "pyarrow"}


def test_json_holds_before_and_after_and_warnings(r2med: Any) -> None:
    arguments = ["run", "-t", "mini@1/Biology", "-r", "bm25", "--expand", "oracle", "--rerank"]
    systems = r2med(*arguments, "tests.pipeline.test_system:by_length@10", "--json", PYTHONPATH=str(ROOT)).json[
        "systems"
    ]
    plain, expanded, reranked = systems
    assert "before_after" not in plain
    assert "warnings" not in plain
    assert "ceiling" in expanded["warnings"][0]
    effect = reranked["before_after"]["mini@1/Biology"]
    assert effect["before"]["ndcg_at_10"] == pytest.approx(expanded["tasks"]["mini@1/Biology"]["ndcg_at_10"])
    assert effect["after"]["ndcg_at_10"] == pytest.approx(reranked["tasks"]["mini@1/Biology"]["ndcg_at_10"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["tasks"], ["models", "--json"]])
def test_a_full_disk_behind_the_output_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "r2med", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "r2med: cannot write (No space left on device)\n")
