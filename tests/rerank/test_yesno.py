"""The yes/no reranker against a real chat server."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med.core import Run, Task, UsageError
from r2med.rerank import rerankers
from tests.llm.server import BEHAVIOURS, ChatServer, Handler, completion

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
