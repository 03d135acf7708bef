"""HyDE and query2doc against a real server, and the prompts they send."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from r2med.core import DataError, Task, UsageError
from r2med.core.files import home
from r2med.core.spec import Content
from r2med.expand import Expander, expanders
from r2med.expand.generated import (
    GenerationParameters,
    HyDE,
    HydeParameters,
    Query2doc,
    load_prompt,
    prompt_facts,
)
from r2med.expand.prompting import cut_to_tokens
from r2med.expand.searching import SearchO1
from r2med.llm import BudgetSpent, estimate_tokens
from r2med.llm.protocol import FAMILIES
from r2med.models.prompts import names_of
from r2med.pipeline import Builder
from tests.llm.conftest import MakeChat
from tests.llm.server import ChatServer


def prompts_of(server: ChatServer) -> list[str]:
    return [body["messages"][-1]["content"] for body in server.asked]


def test_hyde_asks_once_for_n_passages_and_never_twice(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    seen: list[tuple[int, int]] = []
    expander = HyDE(make_chat(), HydeParameters(passages=2))
    made = expander.expand(task, limit=2, on_progress=lambda done, total: seen.append((done, total)))
    assert len(server.asked) == 2
    assert [len(e.texts) for e in made] == [2, 2]
    assert seen[-1] == (4, 4)
    assert task.queries[1].text in prompts_of(server)[1] + prompts_of(server)[0]  # braces and tags untouched
    again = HyDE(make_chat(), HydeParameters(passages=2)).expand(task)
    assert len(server.asked) == 3  # only the third query was new
    assert again.items["q1"] == made.items["q1"]
    assert again.summary()["status"] == {"ok": 3}
    assert Path(str(again.notes["store"])).is_file()
    assert expander.describe()["method"] == "hyde"


def test_an_unfinished_thought_is_never_a_text(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    server.text = lambda body: "<think>Could it be croup, or"
    server.default = "cut"
    made = HyDE(make_chat("qwq-32b")).expand(task)
    assert [(e.status, e.texts) for e in made] == [("truncated", ())] * 3
    assert made.summary()["raw_query_used"] == 3
    assert "croup" in made.items["q1"].reasoning[0]


def test_preambles_are_stripped_unless_asked_not_to(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    server.text = lambda body: "Certainly! Here is a passage:\n\nCroup is viral."
    clean = HyDE(make_chat()).expand(task, limit=1)
    raw = HyDE(make_chat(), HydeParameters(raw=True)).expand(task, limit=1)
    assert clean.items["q1"].texts == ("Croup is viral.",)
    assert clean.items["q1"].notes["removed"] == ["preamble"]
    assert raw.items["q1"].texts[0].startswith("Certainly!")
    assert len(server.asked) == 1  # how an answer is read is no reason to pay for it again


def test_models_that_reason_get_room_to_finish(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    for llm in ("gpt4", "o3-mini", "qwq-32b"):
        HyDE(make_chat(llm)).expand(task, limit=1)
    allowed = [body.get("max_tokens", body.get("max_completion_tokens")) for body in server.asked]
    assert allowed == [512, 10_240, 10_240]
    HyDE(make_chat("o3-mini"), HydeParameters(max_tokens=99)).expand(task, limit=1)
    assert server.asked[-1]["max_completion_tokens"] == 99
    assert SearchO1(make_chat("qwq-32b")).limits.turn_tokens > SearchO1(make_chat("gpt4")).limits.turn_tokens


def test_query2doc_shows_examples_that_do_not_leak(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    made = Query2doc(make_chat()).expand(task, limit=1)
    assert made.notes["examples"] == 3
    assert "metanephrines" in prompts_of(server)[0]
    leaking = replace(task, queries=(task.queries[0]._replace(answer="phaeochromocytoma"), *task.queries[1:]))
    made = Query2doc(make_chat()).expand(leaking, limit=1)
    assert made.notes["examples"] == 2
    assert "metanephrines" not in prompts_of(server)[1]


def test_passages_are_cut_at_words() -> None:
    text = "one two three four five"
    for budget in range(1, 10):
        cut = cut_to_tokens(text, budget)
        assert text.startswith(cut)
        assert estimate_tokens(cut) <= budget
        assert cut.split() == text.split()[: len(cut.split())]
    assert cut_to_tokens(text, 10) == text


def test_a_plan_spends_nothing_and_knows_what_is_stored(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    settings = HydeParameters(max_tokens=100, passages=2)
    expander = HyDE(make_chat("gpt4"), settings)
    plan = expander.plan(task)
    assert not server.asked
    assert (plan.stored, plan.completion_tokens) == (0, 600)
    assert plan.cost
    assert task.queries[0].text in plan.first_prompt
    expander.expand(task, limit=2)
    after = expander.plan(task)
    assert (after.stored, after.completion_tokens) == (2, 200)
    assert str(home()) in after.store


def test_a_budget_stops_cleanly_and_what_was_paid_is_kept(server: ChatServer, make_chat: MakeChat, task: Task) -> None:
    settings = HydeParameters(max_tokens=100)
    price = HyDE(make_chat("gpt4"), settings).plan(task, limit=1).cost
    assert price
    poor = HyDE(make_chat("gpt4", max_cost=price * 1.05, concurrency=1), settings)
    with pytest.raises(BudgetSpent):
        poor.expand(task)
    paid = len(server.asked)
    assert 1 <= paid < 3
    rich = HyDE(make_chat("gpt4"), settings).expand(task)
    assert len(server.asked) == 3
    assert rich.summary()["status"] == {"ok": 3}


def named(spec: str) -> Expander:
    with Builder() as builder:
        return builder.expander(spec)


def test_names() -> None:
    assert named("hyde:gpt4").name == "hyde:gpt4"
    assert named("hyde:gpt4,passages=3,policy=mean").name == "hyde:gpt4,passages=3"
    assert named("search_r1:qwen-3b-ins").method == "search-r1"
    for spec, complaint in {
        "hyde": "it looks like hyde:LLM",
        "hide:gpt4": "did you mean hyde",
        "oracle:gpt4": "cannot read 'gpt4' in 'oracle:gpt4'",
        "hyde:replay:": "it looks like replay:FILE",
        "hyde:replay:/no/file": "there is no /no/file",
        "hyde:published:": "it looks like published:NAME",
        "hyde:gpt4,max_tokens=-1": "max_tokens of hyde must be a number of at least 1",
        "hyde:gpt4,passages=0": "passages of hyde must be",
        "hyde:gpt4,top_p=2": "top_p of hyde must be",
        "hyde:gpt4,passage=2": "has no parameter 'passage'; did you mean passages",
        "lamer:gpt4,retriever=bm26": "unknown retriever 'bm26'",
        "hyde:gpt4,prompts=/no/pack": "prompts: there is no /no/pack",
        "concepts": "unknown expansion method",
    }.items():
        with pytest.raises(UsageError, match=complaint):
            named(spec)


def test_what_a_spec_says_is_what_is_sent(server: ChatServer, task: Task) -> None:
    """Also where a parameter belongs to the chat model below."""
    with Builder() as builder:
        expander = builder.expander("hyde:qwen-7b,served=qwen2.5:7b,passages=2,max_tokens=50,temperature=0,seed=3")
        expander.expand(task, limit=1)
    (sent,) = server.asked
    assert (sent["model"], sent["n"], sent["max_tokens"], sent["temperature"], sent["seed"]) == (
        "qwen2.5:7b", 2, 50, 0.0, 3,
    )  # fmt: skip
    assert expanders.parse(str(expander.spec)) == expander.spec


def test_two_packs_never_share_a_text(server: ChatServer, task: Task, tmp_path: Path) -> None:
    """A prompt pack is part of the expander: also one that was changed where it lies."""
    pack, specs = tmp_path / "pack", set()
    pack.mkdir()
    for words in ("Answer {{query}}", "Reply to {{query}}", "Answer {{query}}"):
        (pack / "clinical-evidence.toml").write_text(f'user = "{words}"')
        with Builder() as builder:
            expander = builder.expander(f"hyde:any-model,prompts={pack}")
            expander.expand(task, limit=1)
        specs.add(expander.spec)
    assert len(server.asked) == len(specs) == 2
    assert [prompt.split()[0] for prompt in prompts_of(server)] == ["Answer", "Reply"]


METHODS = tuple(entry.name for entry in expanders if entry.argument == "chat")
GAPS = {"query", "examples", "passages", "passage", "number", "searches", "search", "answer"}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", [*METHODS, "judge"])
def test_every_method_has_a_prompt_of_its_own_for_every_family(method: str, family: str) -> None:
    prompt = load_prompt(method, ("", family))
    filled = prompt.messages(**{gap: f"<{gap}>" for gap in GAPS})
    assert "<query>" in filled[-1].content
    assert "{{" not in "".join(m.content for m in filled)
    assert load_prompt(method, ("", "a family nobody knows")).hash == load_prompt(method, ("", "Q&A reference")).hash


def test_hashes_differ_between_methods_and_families() -> None:
    hashes = [h for method in METHODS for h in prompt_facts(method).values()]
    assert len(hashes) == len(set(hashes)) == 3 * len(METHODS) == 21


def test_packs(tmp_path: Path) -> None:
    (tmp_path / "hyde").mkdir()
    (tmp_path / "hyde" / "clinical-case.toml").write_text('user = "Case: {{query}}"')
    (tmp_path / "qa-reference.toml").write_text('system = "Be brief"\nuser = "Q: {{query}}"')
    pack, file = Content.of(tmp_path), Content.of(tmp_path / "qa-reference.toml")
    assert load_prompt("hyde", ("", "Clinical case"), pack).user == "Case: {{query}}"
    assert load_prompt("search-r1", ("", "Q&A reference"), pack).system == "Be brief"
    assert load_prompt("search-r1", ("", "Clinical case"), file).system == "Be brief"
    assert list(prompt_facts("hyde", pack)) == ["qa-reference", "clinical-case"]
    with pytest.raises(DataError, match="no prompt for search-r1 on clinical-evidence"):
        load_prompt("search-r1", ("", "Clinical evidence"), pack)
    (tmp_path / "qa-reference.toml").write_text("user = 'no gap'")
    with pytest.raises(DataError, match=r"qa-reference\.toml: is no prompt"):
        load_prompt("search-r1", ("", "Clinical case"), file)


@pytest.mark.parametrize(
    ("method", "content", "lacking"),
    [
        ("lamer", 'user = "Q: {{query}}"', r"`user` does not hold \{\{passages\}\}"),
        ("thinkqe", 'user = "Q: {{query}}"', r"`user` does not hold \{\{passages\}\}"),
        ("query2doc", 'user = "Q: {{query}}"', r"`user` does not hold \{\{examples\}\}"),
        ("judge", 'user = "{{query}} {{answer}}"', r"`user` does not hold \{\{passage\}\}"),
        (
            "thinkqe",
            'user = "{{query}} {{passages}}"\nagain = "{{query}} {{previous}}"',
            r"`again` must hold \{\{passages\}\}",
        ),
        ("search-o1", 'user = "{{query}}"\ncondense = "{{search}}"', r"`condense` must hold \{\{passages\}\}"),
        (
            "query2doc",
            'user = "{{examples}} {{query}}"\nexamples = [{query = "q", passage = "p"}]',
            r"`example` must hold \{\{query\}\} and \{\{passage\}\}",
        ),
    ],
)
def test_a_prompt_shows_what_its_method_finds(tmp_path: Path, method: str, content: str, lacking: str) -> None:
    """Without the gap the first stage, the examples or the text to be judged were looked for and never shown."""
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(DataError, match=lacking):
        load_prompt(method, ("", "Clinical case"), Content.of(path))


@pytest.mark.parametrize("method", ["hyde", "search-o1"])
def test_a_model_that_the_papers_scripts_do_not_know_is_said_so(server: ChatServer, method: str) -> None:
    """It was sampled as ours are, under the name of the protocol."""
    del server
    known, unknown, ours = (
        named(f"{method}:{llm}") for llm in ("gpt4,protocol=r2med-paper", "any-model,protocol=r2med-paper", "any-model")
    )
    assert (known.warning, ours.warning) == ("", "")
    said = r"protocol r2med-paper does not say how any-model:host=\S+ is sampled: r2med's own sampling is used"
    assert re.fullmatch(said, unknown.warning)


def test_another_default_than_the_others() -> None:
    """HyDE draws passages that differ; the others leave the temperature to the model."""
    assert HydeParameters().temperature == 0.7
    assert GenerationParameters().temperature is None
    assert expanders.parse("hyde:gpt4,temperature=0.7") == expanders.parse("hyde:gpt4")
    assert expanders.parse("lamer:gpt4,temperature=0.7") != expanders.parse("lamer:gpt4")


PACK = """
[generate.hyde]
default.user = "Any: {{query}}"
"Clinical evidence".user = "Family: {{query}}"
MedQA-Diag.user = "Task: {{query}}"
"mini@1/MedQA-Diag".user = "Mini: {{query}}"
[generate.lamer]
user = "One for all: {{query}} {{passages}}"
[generate.query2doc.MedQA-Diag]
user = "no gap"
"""


def renamed(task: Task, name: str, collection: str = "", family: str = "Clinical evidence") -> Task:
    return Task(name, task.queries, task.documents, task.qrels, collection=collection, family=family)


def test_room_for_an_answer_is_no_part_of_a_prompt(tmp_path: Path, task: Task) -> None:
    """It was read by rerankers alone: the name of the system changed, and how long an answer may be did not."""
    one = tmp_path / "one.toml"
    one.write_text('user = "{{query}}"\nmax_tokens = 64\n', "utf-8")
    pack = tmp_path / "pack.toml"
    pack.write_text('[generate.hyde.default]\nuser = "{{query}}"\nmax_tokens = 64\n', "utf-8")
    for path in (one, pack):
        with pytest.raises(DataError, match="sets max_tokens = 64, which hyde takes as a parameter"):
            load_prompt("hyde", names_of(task), Content.of(path))


def test_the_narrowest_prompt_is_taken(tmp_path: Path, task: Task) -> None:
    path = tmp_path / "pack.toml"
    path.write_text(PACK)
    pack = Content.of(path)

    def user(method: str, *where: str) -> str:
        return load_prompt(method, names_of(renamed(task, *where)), pack).user.partition(":")[0]

    assert user("hyde", "MedQA-Diag", "mini@1") == "Mini"
    assert user("hyde", "MedQA-Diag", "r2med") == "Task"
    assert user("hyde", "Biology", "r2med") == "Family"
    assert user("hyde", "Biology", "r2med", "") == "Any"
    assert user("lamer", "Biology") == "One for all"
    assert prompt_facts("hyde", pack) == {"pack": f"pack~{pack.whole}"}
    with pytest.raises(UsageError, match=r"prompt pack pack has no query2doc prompt for Biology \(it has: MedQA-Diag"):
        user("query2doc", "Biology")
    with pytest.raises(DataError, match=r"is no prompt: `user` does not hold \{\{query\}\}"):
        user("query2doc", "MedQA-Diag")
    with pytest.raises(DataError, match="is a prompt pack without a prompt for search-o1"):
        user("search-o1", "Biology")


def test_prompts_in_a_folder_are_found_by_task_too(tmp_path: Path, task: Task) -> None:
    (tmp_path / "hyde").mkdir()
    (tmp_path / "hyde" / "MedQA-Diag.toml").write_text('user = "Task: {{query}}"')
    (tmp_path / "clinical-evidence.toml").write_text('user = "Family: {{query}}"')
    pack = Content.of(tmp_path)
    assert load_prompt("hyde", names_of(renamed(task, "MedQA-Diag")), pack).user == "Task: {{query}}"
    assert load_prompt("hyde", names_of(renamed(task, "Biology")), pack).user == "Family: {{query}}"
