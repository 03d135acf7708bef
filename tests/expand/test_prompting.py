"""Passages cut to words, and few-shot examples that give nothing away."""

from __future__ import annotations

from dataclasses import replace

import pytest

import r2med
from r2med.core import Query, Task, UsageError
from r2med.expand.generated import PASSAGE_WORDS, load_prompt
from r2med.expand.prompting import cut_to_words, leak, render_examples, without_leaks
from r2med.llm.protocol import FAMILIES, Example, Prompt
from r2med.models.prompts import names_of


@pytest.mark.parametrize("task", r2med.load_all("mini@1"), ids=lambda t: t.name)
def test_our_examples_touch_no_query_of_mini(task: Task) -> None:
    prompt = load_prompt("query2doc", names_of(task))
    assert len(prompt.examples) >= 2
    assert without_leaks(prompt, task) == (prompt, ())


@pytest.mark.parametrize(
    ("query", "passage", "why"),
    [
        ("fever; a BARKING cough, and stridor in a toddler -- diagnosis", "It is viral.", "it is query 'q1'"),
        ("Fever, a barking cough, stridor in a small toddler. Diagnosis?", "It is viral.", "it is nearly query 'q1'"),
        ("Why does milk upset me?", "Lactose intolerance is common.", "it names the answer of query 'q2'"),
        ("Why is the sky blue?", "Light is scattered.", ""),
    ],
)
def test_leaks_are_seen(task: Task, query: str, passage: str, why: str) -> None:
    assert leak(Example(query, passage), task) == why


def test_leaking_examples_are_left_out_and_a_prompt_with_none_is_refused(task: Task) -> None:
    prompt = load_prompt("query2doc", names_of(task))
    leaking = replace(task, queries=(*task.queries, Query("q9", prompt.examples[0].query)))
    kept, dropped = without_leaks(prompt, leaking)
    assert kept.examples == prompt.examples[1:]
    assert kept.hash != prompt.hash
    assert dropped == ("example 1 left out: it is query 'q9'",)
    everything = replace(task, queries=tuple(Query(str(i), e.query) for i, e in enumerate(prompt.examples)))
    with pytest.raises(UsageError, match="no few-shot example that may be shown on small"):
        without_leaks(prompt, everything)


def test_examples_with_braces_stay_what_they_are() -> None:
    prompt = Prompt(user="{{query}}", example="Q: {{query}} A: {{passage}}")
    assert render_examples(prompt, [Example("{{passage}}", "{x}")]) == "Q: {{passage}} A: {x}"
    assert set(FAMILIES) == {"Q&A reference", "Clinical evidence", "Clinical case"}


def test_words_of_a_passage() -> None:
    assert cut_to_words("a\n b  c", 2) == "a b"
    assert len(cut_to_words("x " * 600, PASSAGE_WORDS).split()) == 512
