from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import r2med
from r2med.cli import app
from r2med.cli.run import command
from r2med.core import UnknownName, UsageError
from r2med.expand import expanders
from r2med.llm import chats
from r2med.pipeline.estimates import parts_of
from r2med.pipeline.experiment import experiment_for, get_shipped, shipped
from r2med.pipeline.system import SystemSpec
from r2med.report.leaderboard import board
from r2med.rerank import rerankers
from r2med.results.ledger import ledger
from r2med.retrieve import retrievers
from r2med.scoring import MAIN

GRAMMAR = re.compile(r"[\w./-]+(:[\w./:-]+)?(,[\w-]+=[\w.-]+)*(\+[\w./-]+(:[\w./:-]+)?(,[\w-]+=[\w.-]+)*)*@\d+")


def test_the_ten_best_published_systems_are_there() -> None:
    best = board("none", published=True, protocol="all").rows[:10]
    scores = [round(100 * (row.stated or row.macro or 0), 1) for row in best]
    assert sorted(scores, reverse=True) == [file.about.published for file in shipped().values()]


@pytest.mark.parametrize("name", list(shipped()))
def test_each_says_what_was_published_where(name: str) -> None:
    file = get_shipped(name)
    stated = [round(100 * figure.average[MAIN.key], 6) for figure in ledger().select(source=file.about.source)]
    assert file.about.published in stated
    assert ledger().select(system=file.about.figure or file.system[0].spec, source=file.about.source)
    assert file.tasks == ["r2med"]
    assert file.about.differs


@pytest.mark.parametrize("name", list(shipped()))
def test_each_is_a_system_in_the_grammar(name: str) -> None:
    (table,) = get_shipped(name).system
    assert GRAMMAR.fullmatch(table.spec)
    roles = [part.role for part in parts_of(table.spec)]
    assert roles == ["retriever", "reranker"]
    assert experiment_for(table.spec) == name


@pytest.mark.parametrize("name", list(shipped()))
def test_each_can_be_built_where_its_parts_are_registered(name: str) -> None:
    (table,) = get_shipped(name).system
    retriever, reranker = parts_of(table.spec)
    served = table.spec.partition("+")[2].partition(":")[2].startswith("openai:")
    lacking = [retriever.method] if retriever.method not in retrievers.names() else []
    lacking += [reranker.method] if reranker.method not in rerankers.names() else []
    lacking += [reranker.model] if not served and reranker.model not in chats.names() else []
    if lacking:
        pytest.skip(f"not in this version: {', '.join(lacking)}")
    assert str(SystemSpec.parse(table.spec)) == table.spec
    assert expanders.names()


def test_an_unknown_name_lists_them_all() -> None:
    with pytest.raises(UnknownName, match=r"did you mean grouprank-32b.*@rank-r1-14b"):
        get_shipped("grouprank-23b")
    done = CliRunner().invoke(command, ["@nothing"])
    assert isinstance(done.exception, UnknownName)
    assert "@grouprank-32b" in str(done.exception)


def test_the_list() -> None:
    done = CliRunner().invoke(command, ["@"])
    assert done.exit_code == 0
    assert done.stdout.index("@grouprank-32b") < done.stdout.index("@rank-r1-14b")
    documents = json.loads(CliRunner().invoke(command, ["@", "--json"]).stdout)
    assert [d["name"] for d in documents] == list(shipped()) == [e.name for e in r2med.list_experiments()]


def test_the_plan_says_what_it_needs_and_costs_without_the_data() -> None:
    done = CliRunner().invoke(command, ["@grouprank-32b", "--plan"])
    assert done.exit_code == 0, done.exception
    for words in (
        "AQ-MedAI/Diver-GroupRank-32B",
        "71.6GB",
        "4,380 calls",
        "chat endpoint: yes",
        "differs from what was",
    ):
        assert words in done.stdout
    document = json.loads(CliRunner().invoke(command, ["@grouprank-32b", "--plan", "--json"]).stdout)
    (needs,) = document["experiment"]["needs"]
    assert needs["chat_calls"] == 4_380
    assert document["stages"] is None
    assert document["missing"]


def test_what_depends_on_the_answers_is_said_once() -> None:
    said = CliRunner().invoke(command, ["@rank-r1-14b", "--plan"]).stdout
    assert "on R2MED once: how many calls and tokens depends on the answers\n" in said
    assert "at most unknown" not in said
    assert "on R2MED once: 4,380 calls; prompts 36.1 million tokens, answers" in (
        CliRunner().invoke(command, ["@grouprank-32b", "--plan"]).stdout
    )


def test_the_plan_has_the_stages_where_the_data_are_here(tmp_path: Path) -> None:
    """The stages were left to another command, which named several tasks as no option takes them."""
    asked = ["@insertrank-deepseek-r1", "--plan", "-t", "mini@1/Biology", "-t", "mini@1/MedQA-Diag", "--depth", "50"]
    done = CliRunner().invoke(command, [*asked, "--results", str(tmp_path)])
    assert done.exit_code == 0, done.exception
    assert re.search(r"search +bm25 +no +2 tasks", done.stdout)
    planned = json.loads(CliRunner().invoke(command, [*asked, "--results", str(tmp_path), "--json"]).stdout)
    assert {s["task"] for s in planned["stages"]} == {"mini@1/Biology", "mini@1/MedQA-Diag"}
    deeper = json.loads(CliRunner().invoke(command, [*asked[:-1], "60", "--results", str(tmp_path), "--json"]).stdout)
    keys = [[s["key"] for s in d["stages"] if s["stage"] == "search"] for d in (planned, deeper)]
    assert not set(keys[0]) & set(keys[1]), "the depth counts"


def test_flags_that_name_systems_are_refused() -> None:
    done = CliRunner().invoke(command, ["@grouprank-32b", "-r", "bm25"])
    assert isinstance(done.exception, UsageError)
    assert "@grouprank-32b names the systems" in str(done.exception)


def test_names_complete() -> None:
    found = ShellComplete(app, {}, "r2med", "_R2MED_COMPLETE").get_completions(["run"], "@reason")
    assert [item.value for item in found] == ["@reasonrank-32b"]
