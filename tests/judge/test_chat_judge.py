"""A chat model as a judge, over a real connection, and what it makes of answers that are not as asked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from r2med.cli import app
from r2med.core import DataError, Document, R2MedError, UsageError
from r2med.core.budget import Budget
from r2med.core.files import home
from r2med.core.options import Options
from r2med.judge import Project, Settings, open_project
from r2med.judge.chat_judge import ChatJudge, Judging, read_answer, standing_in
from r2med.judge.summary import summarise
from r2med.llm import GenerationStore, Replay, get_llm
from r2med.scoring.intervals import Settings as Intervals
from tests.judge.projects import judges, slots, small_project
from tests.llm.conftest import server as server_of_llm
from tests.llm.server import ChatServer

__all__ = ["server_of_llm"]

OUTSIDE = home()
# Before a fixture gives every test a home of its own.
PASSAGE = Document("d", "Salt is craved.\nThe adrenal glands  fail. It ends.", "Addison")


@pytest.fixture
def server(server_of_llm: ChatServer) -> ChatServer:
    server_of_llm.text = grader
    return server_of_llm


def doc_in(body: dict[str, Any]) -> str:
    found = re.search(r"Passage (q\d+d\d+) says", body["messages"][-1]["content"])
    return found[1] if found else ""


def grader(body: dict[str, Any]) -> str:
    """Grades a passage by the digit its name ends with."""
    doc_id = doc_in(body)
    return f"Reason: it says so.\nSupport: Passage {doc_id} says so.\nGrade: {doc_id[-1]}"


def judging(project: Project, *, limit: int | None = None, prompt: Path | None = None, name: str = "llm:any",
            llm: str = "any", max_cost: float | None = None, retry: tuple[str, ...] = ()) -> Judging:  # fmt: skip
    chat = get_llm(llm, Options(concurrency=4, attempts=1, budget=None if max_cost is None else Budget(max_cost)))
    try:
        return ChatJudge(project, chat, name, prompt=prompt, retry=retry).run(limit=limit)
    finally:
        chat.close()


def journal_lines(project: Project, name: str = "llm:any") -> list[dict[str, Any]]:
    return [json.loads(line) for line in project.journal_path(name).read_bytes().splitlines()[1:]]


def settings(**asked: Any) -> Settings:
    return Settings(name="x", depth=1, source="", corpus_fingerprint="", documents=1, **asked)


def test_a_project_is_judged_once(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p")
    found = judging(project)
    assert (found.graded, found.left, found.failed, found.finished) == (24, 0, 0, True)
    assert (found.without_grade, found.support_dropped, found.stopped) == ({}, 0, "")
    (journal,) = project.journals("llm")
    assert journal.grades() == {(query, doc): int(doc[-1]) for query, doc in slots(project)}
    assert journal.finished
    assert journal.header.spec.startswith("any:host=127.0.0.1")
    entry = journal.current("q1", "q1d2")
    assert entry is not None
    assert (entry.reason, entry.support) == ("it says so.", "Passage q1d2 says so.")
    assert entry.details["model"] == "any-0001"
    before = project.journal_path("llm:any").read_bytes()
    assert msgspec.structs.replace(judging(project), usage=found.usage) == found
    assert project.journal_path("llm:any").read_bytes() == before
    assert len(server.asked) == 24


def test_answers_outlive_the_journal(server: ChatServer, tmp_path: Path) -> None:
    """A journal that was lost is written again from the store, with the same ids, and nothing is asked."""
    project = small_project(tmp_path / "p", queries=2)
    judging(project)
    first = {line["id"]: line.get("grade") for line in journal_lines(project)}
    project.journal_path("llm:any").unlink()
    judging(project)
    assert {line["id"]: line.get("grade") for line in journal_lines(project)} == first
    assert len(server.asked) == 8


def test_the_prompt_says_what_the_project_asks(server: ChatServer, tmp_path: Path) -> None:
    scale = ("no {{query}}", "a little", "all of it")
    project = small_project(tmp_path / "p", question="Does it {{help}}?", grades=scale, reason="no", support="no")
    judging(project, limit=1)
    order = [pooled.doc_id for pooled in project.shown_to("llm:any", "q0")]
    assert sorted(map(doc_in, server.asked)) == sorted(order)
    asked = server.asked[0]["messages"][-1]["content"]
    assert "Does it {{help}}?" in asked
    assert "0: no {{query}}\n1: a little\n2: all of it" in asked
    assert "Grade: one whole number from 0 to 2" in asked
    assert "Reason:" not in asked
    assert "Support:" not in asked
    assert "why does it hurt, number 0" in asked
    assert "q0d" in asked


def test_passages_come_in_the_judges_own_order(tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", queries=3, passages=8)
    judge = ChatJudge(project, Replay({}), "llm:any")
    journal = project.journal("llm:any", "llm")
    with GenerationStore(judge.key) as store:
        asked = [slot for pairs in judge.requests(journal, store).values() for slot in pairs]
    journal.close()
    assert asked == [(q, pooled.doc_id) for q in project.queries for pooled in project.shown_to("llm:any", q)]
    assert asked != slots(project)


def test_some_queries_first_and_the_rest_later(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p")
    some = judging(project, limit=2)
    assert (some.graded, some.left, some.finished) == (8, 16, False)
    rest = judging(project)
    assert (rest.graded, rest.left, rest.finished) == (24, 0, True)
    assert len(server.asked) == 24


def test_a_plan_asks_and_writes_nothing(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p")
    judging(project, limit=2)
    chat = get_llm("gpt4", Options())
    plan = ChatJudge(project, chat, "llm:gpt4").plan()
    assert (plan.calls, plan.stored) == (24, 0)
    assert plan.cost is not None
    assert plan.cost > 0
    assert not project.journal_path("llm:gpt4").exists()
    chat.close()
    chat = get_llm("any", Options())
    assert ChatJudge(project, chat, "llm:any").plan().calls == 16
    assert ChatJudge(project, chat, "llm:other").plan().stored == 8  # answered before, under another name
    chat.close()
    assert len(server.asked) == 8


def test_calls_that_fail_are_tried_again(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", queries=2)
    server.plan = ["400-length"]
    found = judging(project)
    assert (found.graded, found.left, found.failed, found.finished) == (7, 1, 1, False)
    assert "context length" in found.first_error
    assert not found.stopped
    again = judging(project)
    assert (again.graded, again.left, again.finished) == (8, 0, True)


def test_answers_without_a_grade_are_asked_for_again(server: ChatServer, tmp_path: Path) -> None:
    project, same = small_project(tmp_path / "p", queries=2), small_project(tmp_path / "q", queries=2)
    odd = {1: "", 2: "Grade: 1\nGrade: 2", 3: "I can't help with that."}
    server.text = lambda body: odd.get(len(server.asked), grader(body))
    found = judging(project)
    assert found.without_grade == {"no answer": 1, "refused": 1, "two grades": 1}
    assert judging(same).without_grade == found.without_grade
    assert len(server.asked) == 8
    assert judging(project, retry=("truncated", "failed")).graded == 5
    assert len(server.asked) == 8
    chat = get_llm("any", Options())
    assert ChatJudge(project, chat, "llm:any", retry=("empty", "unparsed")).plan().calls == 2
    chat.close()
    again = judging(project, retry=("empty", "unparsed"))
    assert (again.graded, again.without_grade, again.finished) == (7, {"refused": 1}, True)
    asked = [body["messages"] for body in server.asked]
    assert sorted(map(str, asked[8:])) == sorted(map(str, asked[:2]))
    assert judging(project, retry=("empty", "unparsed")).graded == 7
    (journal,) = project.journals("llm")
    replaced = [entry for entry in journal.entries() if entry.replaces]
    assert (len(replaced), journal.forks) == (2, set())
    # The other project shares the answers, and takes the newer ones without asking.
    assert judging(same).graded == 7
    assert len(server.asked) == 10


def test_answers_that_were_pruned_are_asked_for_again_by_what_the_journal_says(
    server: ChatServer, tmp_path: Path
) -> None:
    project = small_project(tmp_path / "p", queries=1)
    server.text = lambda body: "" if len(server.asked) == 1 else grader(body)
    assert judging(project).graded == 3
    shutil.rmtree(home() / "generations")
    assert judging(project).graded == 3
    assert judging(project, retry=("unparsed",)).graded == 3
    assert len(server.asked) == 4
    assert judging(project, retry=("empty",)).graded == 4
    assert len(server.asked) == 5


def test_the_command_says_what_was_asked_and_what_went_wrong(server: ChatServer, tmp_path: Path) -> None:
    small_project(tmp_path / "p", queries=1)
    server.plan = ["429-ms", "null"]
    given = ("judge", "run", str(tmp_path / "p"), "--judge", "llm:any", "--concurrency", "1")
    said = CliRunner().invoke(app, given, catch_exceptions=False)
    assert "This time: 4 calls, price unknown, 1 retry, rate limited 1 time" in said.stderr
    again = CliRunner().invoke(app, [*given, "--retry", "empty", "--json"], catch_exceptions=False)
    told = json.loads(again.stdout)
    assert (told["graded"], told["usage"]["calls"], told["usage"]["unpriced"], told["lost_calls"]) == (4, 1, 1, 0)
    assert "this time" not in CliRunner().invoke(app, given, catch_exceptions=False).stderr.lower()


def test_a_budget_stops_cleanly_and_goes_on(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p")
    chat = get_llm("gpt4", Options())
    one_call = (ChatJudge(project, chat, "llm:gpt4").plan().cost or 0.0) / 24
    chat.close()
    stopped = judging(project, llm="gpt4", name="llm:gpt4", max_cost=1.1 * one_call)
    assert "budget" in stopped.stopped
    assert stopped.exit_code == 3
    assert not stopped.finished
    assert 0 < stopped.graded < 24
    done = judging(project, llm="gpt4", name="llm:gpt4")
    assert (done.graded, done.finished) == (24, True)
    assert len(server.asked) == 24


def test_the_models_own_answer_first(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", queries=2, answer_first=True)
    server.text = lambda body: grader(body) if doc_in(body) else "Adrenal failure."
    found = judging(project)
    assert (found.graded, found.finished) == (8, True)
    (journal,) = project.journals("llm")
    answers = [entry.answer for entry in journal.entries() if entry.query_id and not entry.doc_id]
    assert answers == ["Adrenal failure."] * 2
    assert len(server.asked) == 10


def test_another_prompt_or_model_is_another_judge(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", queries=1)
    judging(project)
    own = tmp_path / "own.toml"
    own.write_text('user = "{{query}} | {{passage}} | {{grades}}"\n')
    with pytest.raises(UsageError, match="llm:any has judged here with another prompt"):
        judging(project, prompt=own)
    with pytest.raises(UsageError, match="llm:any has judged here as llm any:host"):
        judging(project, llm="other")
    assert judging(project, prompt=own, name="llm:any-own").graded == 4
    assert " | 0: does not help" in server.asked[-1]["messages"][-1]["content"]
    judges(project, "llm:ada", {})
    with pytest.raises(UsageError, match="llm:ada has judged here as person"):
        judging(project, name="llm:ada")
    with pytest.raises(UsageError, match="begins with llm:"):
        judging(project, name="Ada")
    own.write_text('user = "{{query}}"\n')
    with pytest.raises(DataError, match=r"does not hold \{\{passage\}\}"):
        judging(project, prompt=own)


def test_a_changed_question_is_another_prompt(server: ChatServer, tmp_path: Path) -> None:
    """The question is no part of what the journal belongs to, so the judge itself must notice."""
    project = small_project(tmp_path / "p", queries=1)
    judging(project)
    path = project.folder / "project.json"
    path.write_text(
        path.read_text().replace("How far does this passage help", "How long is this passage and does it help")
    )
    with pytest.raises(UsageError, match="another prompt"):
        judging(open_project(project.folder))


def test_equal_texts_are_asked_about_once(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", queries=1)
    path = project.folder / "passages.jsonl"
    path.write_text(path.read_text().replace("Passage q0d1", "Passage q0d3"))
    found = judging(open_project(project.folder))
    assert (found.graded, found.finished) == (4, True)
    assert len(server.asked) == 3


def test_recorded_answers_judge_alike(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", queries=2)
    found = judging(project)
    again = judging(project, llm=f"replay:{found.store}", name="llm:recorded")
    assert (again.graded, again.finished) == (8, True)
    assert len(server.asked) == 8
    assert again.spec.startswith("replay:")
    first, second = (journal.grades() for journal in project.journals("llm"))
    assert first == second
    summary = summarise(project, intervals=Intervals(resamples=100))
    assert [p.agree for p in summary.llms[0].each] == [1.0]


HOSTILE = [
    ("Grade: 2", 2, ""),
    ("**Grade:** 2 (supports a step)", 2, ""),
    ("- grade = 3", 3, ""),
    ("2", 2, ""),
    ("**[1]**.", 1, ""),
    ("Grade: 1\nGrade: 1", 1, ""),
    ("", None, "no answer"),
    ("I cannot say.", None, "no grade"),
    ("Grade: two", None, "no grade"),
    ("Grade:", None, "no grade"),
    ("The passage earns 2 points.", None, "no grade"),
    ("Grade: 4", None, "outside the scale"),
    ("Grade: -1", None, "outside the scale"),
    ("Grade: 2.5", None, "outside the scale"),
    ("Grade: ٢", None, "outside the scale"),
    ("Grade: " + "9" * 100_000, None, "outside the scale"),
    ("7", None, "outside the scale"),
    ("Grade: 1\nGrade: 2", None, "two grades"),
    ("Grade: 1 or 2", None, "two grades"),
    ("Grade: 1-2", None, "two grades"),
    ("Grade: 2/3", None, "two grades"),
    ("Grade: one whole number from 0 to 3", None, "two grades"),
]


@pytest.mark.parametrize(("text", "grade", "problem"), [case for case in HOSTILE if case[0]])
def test_answers_are_read_strictly(text: str, grade: int | None, problem: str) -> None:
    found = read_answer(text, settings(), PASSAGE)
    assert (found.grade, found.problem) == (grade, problem)


def test_hostile_answers_give_no_grade_and_are_shown(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", queries=1, passages=len(HOSTILE))
    server.text = lambda body: HOSTILE[int(doc_in(body).split("d")[1])][0]
    found = judging(project)
    wanted = [problem for _, _, problem in HOSTILE if problem]
    assert found.without_grade == {problem: wanted.count(problem) for problem in sorted(set(wanted))}
    assert found.graded == len(HOSTILE) - len(wanted)
    assert (found.left, found.finished) == (0, True)  # asked and answered, though not with a grade
    (journal,) = project.journals("llm")
    assert sum(entry.skipped for entry in journal.entries()) == len(wanted)
    assert all(len(entry.details.get("answer", "")) <= 4000 for entry in journal.entries())
    asked = len(server.asked)
    assert msgspec.structs.replace(judging(project), usage=found.usage) == found
    assert len(server.asked) == asked


def test_an_answer_that_was_cut_gives_no_grade(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", queries=1)
    server.default = "cut"
    found = judging(project)
    assert found.without_grade == {"cut short": 4}


@given(st.text(max_size=60))
def test_no_answer_gives_a_grade_off_the_scale(text: str) -> None:
    for answer in (text, f"Grade: {text}", f"Support: {text}\nGrade: 1"):
        found = read_answer(answer, settings(), PASSAGE)
        assert found.grade in (None, 0, 1, 2, 3)
        assert (found.grade is None) == bool(found.problem)
        assert found.support in PASSAGE.contents


def test_a_supporting_sentence_must_stand_in_the_passage() -> None:
    good = read_answer('Support: "The adrenal glands fail."\nGrade: 2', settings(), PASSAGE)
    assert (good.support, good.support_dropped) == ("The adrenal glands  fail.", False)  # as the passage has it
    assert read_answer("Support: Salt is\ncraved.\nGrade: 2", settings(), PASSAGE).support == "Salt is craved."
    made_up = read_answer("Support: Cortisol is low.\nGrade: 2", settings(), PASSAGE)
    assert (made_up.grade, made_up.support, made_up.support_dropped) == (2, "", True)
    assert not read_answer("Support: -\nGrade: 0", settings(), PASSAGE).support_dropped
    required = settings(support="required", reason="required")
    assert read_answer("Reason: a\nSupport: Cortisol.\nGrade: 2", required, PASSAGE).problem == "no supporting sentence"
    assert read_answer("Support: Salt is craved.\nGrade: 2", required, PASSAGE).problem == "no reason"
    assert read_answer("Reason: a\nSupport: -\nGrade: 0", required, PASSAGE).grade == 0
    assert read_answer("Reason: a\nSupport: Salt is craved.\nGrade: 3", required, PASSAGE).grade == 3
    unasked = read_answer("Reason: a\nSupport: Salt is craved.\nGrade: 3", settings(support="no", reason="no"), PASSAGE)
    assert (unasked.reason, unasked.support) == ("", "")
    assert standing_in("a+b (c)", "a+b (c)") == "a+b (c)"
    assert standing_in("abc", "a.c") == ""


def test_the_embedded_model_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xllamacpp", reason="the extra `local-llm` is not installed")
    if not (OUTSIDE / "models" / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf").is_file():
        pytest.skip("the weights are not here: r2med models fetch smollm2")
    models = tmp_path / "home" / "models"
    models.mkdir(parents=True)
    (models / "smollm2").symlink_to(OUTSIDE / "models" / "smollm2")
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    project = small_project(tmp_path / "p", queries=1, passages=2)
    short = tmp_path / "short.toml"
    short.write_text('user = "{{query}} {{passage}} Grade: 0, 1, 2 or 3?"\nmax_tokens = 8\n')
    found = judging(project, llm="smollm2", name="llm:smollm2", prompt=short)
    assert found.graded + sum(found.without_grade.values()) == 2
    assert (found.left, found.finished) == (0, True)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["judge", *arguments])


def test_the_commands(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", queries=6, passages=4)
    grades = {slot: int(slot[1][-1]) for slot in slots(project)}
    judges(project, "Ada", grades)
    judges(project, "Bob", grades | {("q0", "q0d0"): 3})
    judges(project, "Eve", {("q0", "q0d1"): 0}, finished=False)
    asked = ("run", str(project.folder), "--judge", "llm:any")
    assert json.loads(run(*asked, "--dry-run", "--json").stdout)["calls"] == 24
    assert "Nothing was sent" in run(*asked, "--dry-run").stdout
    assert len(server.asked) == 0
    done = run(*asked, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["graded"] == 24
    assert re.search(r"llm:any +24 +24 +0 +0 +yes", run(*asked).stdout)
    said = run("agree", str(project.folder), "--resamples", "200")
    assert said.exit_code == 0, said.output
    for words in (
        "Not finished, so not shown below: Eve",
        "Ada – Bob",
        "people – llm:any",
        "Final grades: 23 of 24 pairs (agreed 23)",
        "open, no adjudicator has decided: 1",
        "llm:any may not fill: it was compared with people on 24 pairs, and 50 are needed",
    ):
        assert words in said.stdout
    assert "Eve –" not in said.stdout
    whole = json.loads(run("agree", str(project.folder), "--resamples", "200", "--json", "--unfinished").stdout)
    assert whole["left_out"] == []
    assert {(p["first"], p["second"]) for p in whole["pairs"]} == {("Ada", "Bob"), ("Ada", "Eve"), ("Bob", "Eve")}
    assert whole["llms"][0]["people"]["kappa"]["linear"]["value"] > 0.9


def test_mistakes_of_the_commands(server: ChatServer, tmp_path: Path) -> None:
    project = str(small_project(tmp_path / "p").folder)
    for arguments, words in (
        (("run", project, "--judge", "Ada"), "a judge that can be run is a chat model, as in llm:gpt4, not 'Ada'"),
        (("run", str(tmp_path), "--judge", "llm:any"), "project.json"),
        (("agree", str(tmp_path)), "project.json"),
    ):
        wrong = run(*arguments)
        assert isinstance(wrong.exception, R2MedError)
        assert words in str(wrong.exception)
        assert "\n" not in str(wrong.exception)
    assert "does not exist" in run("agree", "nowhere").stderr
    assert not server.asked


def test_a_server_that_refuses_ends_with_one_line(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", queries=1)
    server.default = "404-escaped"
    refused = run("run", str(project.folder), "--judge", "llm:any")
    assert refused.exit_code != 0
    assert "r2med: " in refused.stderr


def test_two_processes_of_one_judge_share_the_work(server: ChatServer, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p")
    server.seconds = 0.02
    line = [sys.executable, "-m", "r2med", "judge", "run", str(project.folder), "--judge", "llm:any", "--json"]
    started = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    for process in started:
        stdout, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
        assert json.loads(stdout)["graded"] == 24
    assert len(server.asked) == 24
    assert len(journal_lines(project)) == 25  # each pair once, and the end
