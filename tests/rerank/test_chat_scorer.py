"""A chat model asked about one passage at a time, over a real connection."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med.api.experiments import LoadedTask
from r2med.core import Run, Task, UsageError
from r2med.core.files import home
from r2med.pipeline import Builder, SystemSpec, run_experiment
from r2med.report import as_json
from r2med.rerank import rerankers
from r2med.results import ResultStore
from tests.llm.server import BEHAVIOURS, ChatServer, Handler, completion, error

from .conftest import MakeReranker
from .test_listwise import by_worth, notes


def with_logits(handler: Handler, body: dict[str, Any]) -> None:
    """Yes, the likelier the longer the passage is."""
    passage = re.search(r"^Passage: (.*)$", body["messages"][-1]["content"], re.MULTILINE)
    assert passage
    yes = 1 - 1 / (2 + len(passage[1]))
    tops = [{"token": "Yes", "logprob": math.log(yes)}, {"token": " no", "logprob": math.log(1 - yes)}]
    whole = json.loads(completion(handler, body))
    whole["choices"][0] |= {
        "message": {"role": "assistant", "content": "Yes"},
        "logprobs": {"content": [{**tops[0], "top_logprobs": tops}]},
    }
    handler.send(200, json.dumps(whole).encode())


def test_yes_no_with_logits(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BEHAVIOURS, "logits", with_logits)
    server.default = "logits"
    run = make_reranker("yesno:any-model").rerank(task, first, 10)
    for row in range(3):
        assert run.docs[row, :10].tolist() == by_worth(task, first.docs[row, :10].tolist())
    assert notes(run)["scorer"]["with_logits"] == 30
    assert server.asked[0]["top_logprobs"] == 20
    again = make_reranker("yesno:any-model").rerank(task, first, 10)
    assert len(server.asked) == 30
    assert notes(again)["scorer"]["cache_hits"] == 30
    assert (again.scores == run.scores).all()


def test_yes_no_in_words(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    """Ties keep the first stage's order, and an answer that is neither keeps its place."""

    def answer(body: dict[str, Any]) -> str:
        user = body["messages"][-1]["content"]
        return "Yes." if "fever" in user else "no" if "cough" in user else "Hard to tell"

    server.text = answer
    run = make_reranker("yesno:any-model,logits=no").rerank(task, first, 12)
    assert "logprobs" not in server.asked[0]
    said = {"Yes.": 1, "no": 0}
    for row, query in enumerate(task.queries):
        top = first.docs[row, :12].tolist()
        verdicts = [
            said.get(answer({"messages": [{"content": f"{query.text} {task.documents.contents[d]}"}]})) for d in top
        ]
        heard = [d for d, v in zip(top, verdicts, strict=True) if v is not None]
        ranked = iter(sorted(heard, key=lambda d: -(verdicts[top.index(d)] or 0)))
        expected = [d if v is None else next(ranked) for d, v in zip(top, verdicts, strict=True)]
        assert run.docs[row, :12].tolist() == expected
    assert notes(run)["no_opinion"] == notes(run)["scorer"].get("unparsed", 0)


MINE = """
system = "You answer with yes or no."
user = "Is this of use for {{query}}? {{passages}}"
passage = "{{passage}}"
"""


def test_a_prompt_of_ones_own(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run, tmp_path: Path
) -> None:
    """It is sent as it stands, and its content is part of the reranker: answers to two prompts are never mixed."""
    server.text = lambda body: "yes" if "Is this of use" in body["messages"][-1]["content"] else "no"
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    ours, own = make_reranker("yesno:any-model"), make_reranker(f"yesno:any-model,prompt={path}")
    assert re.fullmatch(r"yesno:any-model,host=127\.0\.0\.1:\d+,prompt=mine~[0-9a-f]{8}", own.name)
    assert own.describe()["prompt"] != ours.describe()["prompt"]
    refused, taken = (notes(one.rerank(task, first, 5)) for one in (ours, own))
    assert (refused["scorer"]["in_words"], taken["scorer"]["in_words"]) == (15, 15)
    assert len(server.asked) == 30
    text = server.asked[-1]["messages"]
    assert text[0]["content"] == "You answer with yes or no."
    assert text[1]["content"].startswith("Is this of use for ")
    path.write_text(MINE.replace("Is this of use", "Does this help"))  # the same place holds another prompt now
    changed = make_reranker(f"yesno:any-model,prompt={path}")
    assert changed.spec != own.spec
    changed.rerank(task, first, 5)
    assert len(server.asked) == 45
    make_reranker(f"yesno:any-model,prompt={path}").rerank(task, first, 5)
    assert len(server.asked) == 45  # nothing is paid for twice


def by_taste(body: dict[str, Any]) -> str:
    """Another answer to another prompt: lists turned round, and yes for what was no."""
    text = body["messages"][-1]["content"]
    new, odd = "NEW" in text, bool(len(text) % 2)
    order = " > ".join(f"[{i}]" for i in (range(8, 0, -1) if new else range(1, 9)))
    return f"{'yes' if odd == new else 'no'}: {order}"


@pytest.mark.parametrize("method", ["yesno", "rankgpt"])
def test_two_prompts_never_share_a_result(server: ChatServer, tmp_path: Path, method: str) -> None:
    """Also where both lie at one place, one after the other."""
    server.text = by_taste
    path, results = tmp_path / "mine.toml", tmp_path / "results"

    def scored(word: str) -> tuple[str, float, int]:
        path.write_text(f'user = "{word} {{{{query}}}} {{{{passages}}}}"')
        before = len(server.asked)
        rerank = f"{method}:any-model,prompt={path}@8"
        made = r2med.run("bm25", tasks="mini@1/Biology", rerank=rerank, results=results).results
        ((name, value),) = [(r.system.name, r.measures["ndcg_at_10"]) for r in made if r.system.name != "bm25"]
        return name, value, len(server.asked) - before

    old, new = scored("OLD"), scored("NEW")
    assert old[0] != new[0]
    assert old[1] != new[1]
    assert old[2] == new[2] > 0  # asked anew
    assert scored("OLD") == (*old[:2], 0)  # and each of them is kept


def test_prompts_that_cannot_be(tmp_path: Path, make_reranker: MakeReranker) -> None:
    with pytest.raises(UsageError, match="prompt: there is no "):
        rerankers.parse(f"yesno:gpt4,prompt={tmp_path}/absent.toml")
    (tmp_path / "bad.toml").write_text("user = 'no gaps'")
    with pytest.raises(r2med.R2MedError, match="is no prompt: `user` does not hold"):
        make_reranker(f"yesno:any-model,prompt={tmp_path}/bad.toml")


def passage_of(body: dict[str, Any]) -> str:
    found = re.search(r"^(?:Passage: (.*)|The passage begins here.\n(.*))$", body["messages"][-1]["content"], re.M)
    assert found
    return found[1] or found[2]


def words_of(body: dict[str, Any]) -> int:
    return len(passage_of(body).split())


def reply(handler: Handler, body: dict[str, Any], parts: list[tuple[str, dict[str, float]]]) -> None:
    """An answer of tokens, each with its likeliest alternatives, itself first."""
    content = []
    for text, tops in parts:
        listed = [{"token": t, "logprob": math.log(p)} for t, p in (tops or {text: 1.0}).items()]
        content.append({**listed[0], "top_logprobs": listed})
    whole = json.loads(completion(handler, body))
    message = {"role": "assistant", "content": "".join(text for text, _ in parts)}
    whole["choices"] = [whole["choices"][0] | {"message": message, "logprobs": {"content": content}}]
    handler.send(200, json.dumps(whole).encode())


def test_grades_in_words(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    server.text = lambda body: f"1. A case.\n2. Some.\n3. <score>{words_of(body)}</score>"
    run = make_reranker("retro:any-model").rerank(task, first, 10)
    for row in range(3):
        counted = {d: len(task.documents.contents[d].split()) for d in first.docs[row, :10].tolist()}
        assert run.docs[row, :10].tolist() == sorted(counted, key=lambda d: -counted[d])
        assert run.scores[row, 0] == pytest.approx(max(counted.values()) / 100)
    assert notes(run)["scorer"] == {"graded": 30, "passages_cut": 0, "failed": 0, "cache_hits": 0}
    assert "logprobs" not in server.asked[0]
    assert "from 0 to 100" in server.asked[0]["messages"][-1]["content"]
    again = make_reranker("retro:any-model").rerank(task, first, 10)
    assert len(server.asked) == 30
    assert (again.scores == run.scores).all()
    assert notes(again)["scorer"]["cache_hits"] == 30


def test_the_mean_of_several_answers(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three answers a pair: one cannot be read, and the mean is of the other two."""

    def three(handler: Handler, body: dict[str, Any]) -> None:
        whole = json.loads(completion(handler, body))
        texts = [f"<score>{words_of(body)}</score>", "<score>900</score>", f"<score>{words_of(body) - 2}</score>"]
        whole["choices"] = [
            whole["choices"][0] | {"message": {"role": "assistant", "content": text}} for text in texts
        ]  # fmt: skip
        handler.send(200, json.dumps(whole).encode())

    monkeypatch.setitem(BEHAVIOURS, "three", three)
    server.default = "three"
    run = make_reranker("retro:any-model,samples=3").rerank(task, first, 5)
    assert server.asked[0]["n"] == 3
    assert server.asked[0]["temperature"] == 0.6  # at 0 all answers would be the same
    assert len(server.asked) == 15
    told = notes(run)["scorer"]
    assert (told["graded"], told["out_of_range"]) == (30, 15)
    best = max(len(task.documents.contents[d].split()) for d in first.docs[0, :5].tolist())
    assert run.scores[0, 0] == pytest.approx((best - 1) / 100)


@pytest.mark.parametrize(
    ("rule", "grade"), [("probability", 8 * 0.75), ("expectation", 8 * 0.75 + 4 * 0.25), ("number", 8.0)]
)
def test_grades_by_their_probability(
    server: ChatServer,
    make_reranker: MakeReranker,
    task: Task,
    first: Run,
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    grade: float,
) -> None:
    def graded(handler: Handler, body: dict[str, Any]) -> None:
        steps: list[tuple[str, dict[str, float]]] = [("<think>", {}), ("perhaps 3", {}), ("</think>", {})]
        reply(handler, body, [*steps, ("<answer>", {}), ("8", {"8": 0.75, "4": 0.25}), ("</answer>", {})])

    monkeypatch.setitem(BEHAVIOURS, "graded", graded)
    server.default = "graded"
    run = make_reranker(f"erank:any-model,score={rule}").rerank(task, first, 4)
    assert run.scores[0, 0] == pytest.approx(grade / 10, abs=1e-5)
    assert run.docs[0].tolist() == first.docs[0].tolist()  # all alike
    assert notes(run)["tied"] == 12
    if rule == "number":
        assert "logprobs" not in server.asked[0]
    else:
        assert notes(run)["scorer"]["with_logits"] == 12
    again = make_reranker(f"erank:any-model,score={rule}").rerank(task, first, 4)
    assert len(server.asked) == 12
    assert (again.scores == run.scores).all()  # log-probabilities are stored too


def test_a_server_without_log_probabilities(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out, or refused: the number itself counts, and both are counted."""
    server.text = lambda body: f"<answer>{min(words_of(body) // 6, 10)}</answer>"
    silent = make_reranker("erank:any-model").rerank(task, first, 6)
    assert notes(silent)["scorer"]["without_logits"] == notes(silent)["scorer"]["graded"] == 18

    def refuses(handler: Handler, body: dict[str, Any]) -> None:
        if "logprobs" in body:
            error(handler, 400, "logprobs is not supported by this model")
        else:
            handler.send(200, completion(handler, body))

    monkeypatch.setitem(BEHAVIOURS, "refuses", refuses)
    server.default = "refuses"
    with pytest.warns(UserWarning, match="gives no log-probabilities"):
        refused = make_reranker("erank:other-model", concurrency=1).rerank(task, first, 6)
    assert notes(refused)["scorer"]["without_logits"] == 18
    assert (refused.docs == silent.docs).all()


BAD = {
    "prose": ("It helps a lot.", "unparsed"),
    "off the scale": ("<answer>12</answer>", "out_of_range"),
    "never stops thinking": ("<think>I would say 7", "unfinished"),
}


@pytest.mark.parametrize("answer", BAD)
def test_bad_grades_keep_the_order(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run, answer: str
) -> None:
    text, counted = BAD[answer]
    bad = {task.documents.contents[d] for d in first.docs[:, 1].tolist()}

    def said(body: dict[str, Any]) -> str:
        shown = passage_of(body)
        return (
            text if any(" ".join(b.split()) == shown for b in bad) else f"<answer>{min(len(shown) // 40, 10)}</answer>"
        )

    server.text = said
    run = make_reranker("erank:any-model").rerank(task, first, 8)
    assert notes(run)["scorer"][counted] == notes(run)["no_opinion"] > 0
    for row in range(3):
        assert run.docs[row, 1] == first.docs[row, 1]
        assert sorted(run.docs[row, :8].tolist()) == sorted(first.docs[row, :8].tolist())


def test_a_prompt_that_is_too_long(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    server.text, server.plan = lambda body: "<answer>5</answer>", ["400-length"]
    run = make_reranker("erank:any-model", concurrency=1).rerank(task, first, 4)
    assert notes(run)["scorer"]["failed"] == notes(run)["scorer"]["too_long"] == notes(run)["no_opinion"] == 1
    assert run.docs.tolist() == first.docs.tolist()


def test_true_or_false_after_reasoning(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first token opens the reasoning; the last one decides."""

    def judged(handler: Handler, body: dict[str, Any]) -> None:
        sure = 1 - 1 / (2 + len(passage_of(body)))
        steps: list[tuple[str, dict[str, float]]] = [("<think>", {"<think>": 0.9, "false": 0.1}), ("Is it false?", {})]
        reply(handler, body, [*steps, ("</think>", {}), (" true", {" true": sure, " false": 1 - sure}), (".", {})])

    monkeypatch.setitem(BEHAVIOURS, "judged", judged)
    server.default = "judged"
    run = make_reranker("rank1:any-model").rerank(task, first, 10)
    for row in range(3):
        assert run.docs[row, :10].tolist() == by_worth(task, first.docs[row, :10].tolist())
    assert notes(run)["scorer"]["with_logits"] == 30


def test_true_or_false_in_words(server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run) -> None:
    server.text = lambda body: f"<think>true or false?</think>{'true' if words_of(body) > 20 else 'False.'}"
    run = make_reranker("rank1:any-model").rerank(task, first, 12)
    for row in range(3):
        top = first.docs[row, :12].tolist()
        helps = [d for d in top if len(task.documents.contents[d].split()) > 20]
        assert run.docs[row, :12].tolist() == [*helps, *(d for d in top if d not in helps)]
    assert notes(run)["scorer"]["in_words"] == 36
    server.text = lambda body: "<think>it goes on and on"
    other = make_reranker("rank1:other-model").rerank(task, first, 4)
    assert notes(other)["scorer"]["unparsed"] == notes(other)["scorer"]["unfinished"] == 12
    assert other.docs.tolist() == first.docs.tolist()


def test_names(make_reranker: MakeReranker) -> None:
    specs = [
        "erank:any-model", "retro:any-model", "rank1:any-model", "yesno:any-model", "erank:any-model,score=number",
        "erank:any-model,samples=2", "erank:any-model,scale=5", "erank:any-model,temperature=0.3",
        "rank1:any-model,logits=no",
    ]  # fmt: skip
    made = [make_reranker(spec) for spec in specs]
    assert len({json.dumps(reranker.describe(), sort_keys=True) for reranker in made}) == len(specs)
    assert len({reranker.name for reranker in made}) == len(specs)
    with pytest.raises(UsageError, match="score of erank must be number, probability or expectation"):
        rerankers.parse("erank:any-model,score=best")
    with pytest.raises(UsageError, match="samples of retro must be a number of at least 1"):
        rerankers.parse("retro:any-model,samples=0")


def test_a_task_without_candidates_has_no_bill(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run
) -> None:
    """It showed that of the task before it."""
    reranker = make_reranker("yesno:any-model")
    assert notes(reranker.rerank(task, first, 2))["answers"]["prompt_tokens"] > 0
    nothing = Run.from_rankings({query.id: [] for query in task.queries}, doc_ids=first.doc_ids)
    run = reranker.rerank(task, nothing, 2)
    assert "answers" not in notes(run)
    assert run.reused == {}
    assert len(server.asked) == 6


@pytest.mark.parametrize("method", ["yesno", "rankgpt", "yesno:{},blend=0.5"])
def test_what_must_be_said_of_a_chat_model_is_said(
    server: ChatServer, make_reranker: MakeReranker, task: Task, first: Run, tmp_path: Path, method: str
) -> None:
    """Scores of single pairs were stored without it, and no document for scripts had it."""
    name = method.partition(":")[0]
    make_reranker(f"{name}:any-model").rerank(task, first, 2)
    (kept,) = (home() / "generations").rglob("*.jsonl")
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_bytes(kept.read_bytes().replace(b'"model":{', b'"model":{"warning":"a model of no worth",', 1))
    spec = method.format(f"replay:{recorded}") if ":" in method else f"{method}:replay:{recorded}"
    with Builder() as builder:
        system = builder.build(SystemSpec.parse(f"bm25+{spec}@2"))
        assert system.rerankings[0].reranker.warning == "a model of no worth"
        said: list[str] = []
        results = run_experiment(
            [LoadedTask(task)], [system], ResultStore(tmp_path / "results"), notify=lambda *told: said.append(told[2])
        ).results
    assert "note: Note: a model of no worth" in said
    assert as_json(results)["systems"][0]["warnings"] == ["a model of no worth"]
