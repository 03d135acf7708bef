from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.llm import MARKINGS, STATUSES, Choice, Replay, open_call, parse, reasons
from r2med.llm.parsing import TOOLS, split_reasoning, without_tools

P = "Measles begins with fever, cough, coryza and conjunctivitis; the rash follows."
R = "Okay, so the patient has fever and a rash. Koplik spots would point to measles."

# marking, finish reason, what the model wrote, status, final text
TABLE = [
    # DeepSeek-R1, QwQ: the opening tag is part of the prompt, so it is missing here
    ("think", "stop", f"{R}\n</think>\n\n{P}", "ok", P),
    ("think", "stop", f"<think>\n{R}\n</think>\n\n{P}", "ok", P),
    ("think", "stop", f"<think>{R}</think>", "empty", ""),
    ("think", "length", f"<think>{R}</think>", "truncated", ""),
    ("think", "length", R, "truncated", ""),
    ("think", "length", f"<think>\n{R}", "truncated", ""),
    ("think", "stop", R, "unparsed", ""),
    ("think", "stop", f"<think>{R}", "unparsed", ""),
    ("think", "length", f"{R}</think>\n{P}", "truncated", P),
    ("think", "stop", f"{R}</think>Wait.<think>{R}</think>{P}", "ok", P),
    ("think", "length", f"{R}</think>{P}<think>{R}", "truncated", ""),
    ("think", "stop", "", "empty", ""),
    ("think", "length", "", "truncated", ""),
    # Qwen3: opens the tag itself, or does not think
    ("think-optional", "stop", f"<think>\n\n</think>\n\n{P}", "ok", P),
    ("think-optional", "stop", P, "ok", P),
    ("think-optional", "length", f"<think>\n{R}", "truncated", ""),
    ("think-optional", "length", P[:30], "truncated", P[:30]),
    # HuatuoGPT-o1
    ("final-response", "stop", f"## Thinking\n\n{R}\n\n## Final Response\n\n{P}", "ok", P),
    ("final-response", "stop", f"## Thinking\n\n{R}\n\n### Final Response:\n{P}", "ok", P),
    ("final-response", "stop", f"**Thinking**\n{R}\n\n**Final Response:**\n{P}", "ok", P),
    ("final-response", "stop", f"{R}\n\nFinal Response: {P}", "ok", P),
    ("final-response", "length", f"## Thinking\n\n{R}", "truncated", ""),
    ("final-response", "stop", f"## Thinking\n\n{R}", "unparsed", ""),
    ("final-response", "length", f"## Thinking\n\n{R}\n\n## Final Response\n\n", "truncated", ""),
    # Sky-T1 and its kin
    (
        "solution",
        "stop",
        f"<|begin_of_thought|>\n{R}\n<|end_of_thought|>\n<|begin_of_solution|>\n{P}\n<|end_of_solution|>",
        "ok",
        P,
    ),
    ("solution", "length", f"<|begin_of_thought|>{R}", "truncated", ""),
    ("solution", "stop", f"<|begin_of_thought|>{R}<|end_of_thought|>", "unparsed", ""),
    ("solution", "stop", f"<|begin_of_thought|>{R}<|end_of_thought|>\n\n{P}", "ok", P),
    ("solution", "length", f"<|begin_of_thought|>{R}<|end_of_thought|><|begin_of_solution|>{P}", "truncated", P),
    # Search-R1
    ("answer", "stop", f"<think>{R}</think><search>fever rash</search>", "unparsed", ""),
    (
        "answer",
        "stop",
        f"<think>{R}</think><search>rash</search><information>Doc 1</information><think>{R}</think>"
        f"<answer> {P} </answer>",
        "ok",
        P,
    ),
    ("answer", "stop", f"<think>{R}<answer>{P}</answer>", "ok", P),
    ("answer", "stop", f"<answer>{P}", "ok", P),  # the closing tag was a stop sequence
    ("answer", "length", f"<answer>{P[:20]}", "truncated", P[:20].strip()),
    ("answer", "stop", f"I think it is {P}", "unparsed", ""),
    ("answer", "stop", "<answer></answer>", "empty", ""),
    # Search-o1: a query left open by its stop sequence is not an answer
    ("none", "stop", "<|begin_search_query|>fever rash conjunctivitis", "unparsed", ""),
    ("none", "stop", f"<|begin_search_query|>fever<|end_search_query|>\n{P}", "ok", P),
    ("none", "stop", '<tool_call>{"name": "search"}</tool_call>', "unparsed", ""),
    # Models that answer at once
    ("none", "stop", P, "ok", P),
    ("none", "length", P, "truncated", P),
    ("none", "stop", "  \n ", "empty", ""),
    ("none", "stop", f"<think>{R}</think>{P}", "ok", P),
    ("auto", "stop", f"{R}</think>{P}", "ok", P),
    ("hidden", "stop", P, "ok", P),
    ("hidden", "length", "", "truncated", ""),
    ("none", "content_filter", P, "refused", ""),
    # Chatter
    ("none", "stop", f"Certainly! Here is a passage that answers the question:\n\n{P}", "ok", P),
    ("none", "stop", f"Sure, here's a hypothetical passage:\n{P}", "ok", P),
    ("none", "stop", f"Of course!\n\n{P}", "ok", P),
    ("none", "stop", f"Here is the passage:\n\n---\n\n{P}", "ok", P),
    ("none", "stop", f"Below is a relevant document:\n\n{P}", "ok", P),
    ("none", "stop", f"```text\n{P}\n```", "ok", P),
    ("none", "stop", f"Here's the passage:\n\n```\n{P}\n```\n\nLet me know if you need more.", "ok", P),
    ("none", "stop", f"**Passage:** {P}", "ok", P),
    ("none", "stop", f"Passage: {P}\n\nI hope this helps!", "ok", P),
    ("think", "stop", f"{R}</think>Certainly! Below is a passage:\n\n{P}", "ok", P),
    # Content that looks like chatter
    ("none", "stop", "Sure signs of measles are Koplik spots.", "ok", "Sure signs of measles are Koplik spots."),
    ("none", "stop", "Here is what measles does to the lung.", "ok", "Here is what measles does to the lung."),
    ("none", "stop", "Certainly", "ok", "Certainly"),
    ("none", "stop", "Here is the passage:", "ok", "Here is the passage:"),
    # Refusals
    ("none", "stop", "I'm sorry, but I can't assist with that request.", "refused", None),
    ("none", "stop", "I cannot provide medical advice. Please consult a doctor.", "refused", None),
    ("none", "stop", "As an AI language model, I am unable to diagnose patients.", "refused", None),
    ("think", "stop", f"{R}</think>I’m sorry, but I cannot help with that.", "refused", None),
    ("none", "stop", "I cannot stress enough that measles is contagious.", "ok", None),
    ("none", "stop", "Unfortunately, measles may be followed by encephalitis.", "ok", None),
]


@pytest.mark.parametrize(("marking", "finish", "text", "status", "final"), TABLE)
def test_real_looking_answers(marking: str, finish: str, text: str, status: str, final: str | None) -> None:
    parsed = parse(Choice(text, "", finish), marking)  # type: ignore[arg-type]
    assert parsed.status == status
    assert parsed.final == (parsed.final if final is None else final)
    if R in text and status in ("ok", "truncated", "unparsed"):
        assert R in parsed.reasoning
        assert R not in parsed.final


DECLINED = [
    "I'm sorry, but I can't assist with that request.",
    "I cannot provide medical advice. Please consult a doctor.",
    "As an AI language model, I am unable to diagnose patients.",
    "I’m sorry, but I cannot help with that.",
    "I can't help with that.",
    "I cannot help you.",
    "I can't help.",
    "I won't write this passage.",
    "I cannot generate a passage about that.",
    "I am unable to provide a diagnosis.",
    "I'm not able to give medical advice.",
    "I must decline this request.",
    "I have to decline.",
    "I decline to answer that.",
    "I don't feel comfortable answering this.",
    "I'm not comfortable with that request.",
    "I'm not comfortable providing medical advice.",
    "Unfortunately, I cannot answer medical questions.",
    "I apologize, but I can't comply with that.",
    "Sorry, I can't continue.",
    "My apologies, but we cannot discuss this topic.",
    "I cannot engage in this conversation.",
    "I cannot fulfill your request.",
    "I can't give you a definitive answer.",
    "I'm unable to assist with medical diagnosis.",
    "As an AI, I don't give medical opinions.",
    "I am not in a position to offer medical advice.",
    "I cannot comply with such requests.",
    "I'm sorry, I can't. My guidelines do not allow it.",
    "I cannot write that, as it goes against my guidelines.",
    "I do not provide medical advice.",
    "I am not permitted to discuss this.",
    "I'm sorry, but as an AI I cannot diagnose.",
    "I cannot create this content.",
    "I can't answer that.",
]
# What models say when they decline.
PATIENTS = [
    "I don't feel pain in my left leg, but the right one hurts at night.",
    "I can't write with my right hand since the stroke.",
    "I cannot continue walking after 100 metres because of calf pain.",
    "I'm unable to lift my arm above the shoulder.",
    "I am not able to sleep at night.",
    "I can't help coughing at night.",
    "I don't answer the phone because of hearing loss.",
    "I'm not allowed to drive since the seizure.",
    "I'm not comfortable lying flat.",
    "Unfortunately, I can't give birth naturally.",
    "We cannot provide a definitive diagnosis without a biopsy.",
    "We do not offer PSA screening to men over 70.",
    "We are unable to exclude malignancy.",
    "I cannot stress enough that measles is contagious.",
    "Unfortunately, measles may be followed by encephalitis.",
    "I can't give blood because of anaemia.",
    "I can't give myself the injections.",
    "I can't provide a urine sample.",
    "I can't provide for my family since the accident.",
    "I can't provide information about my family history because I was adopted.",
    "I don't feel the vibration of a tuning fork.",
    "I cannot feel my toes.",
    "I don't feel well.",
    "I do not feel thirsty.",
    "I can't create new memories.",
    "I can't engage in sports any more.",
    "I cannot comply with my insulin regimen.",
    "I have to refuse food after chemotherapy.",
    "I can't help with housework since the back injury.",
    "I don't discuss it with my husband.",
    "I will not continue chemotherapy.",
    "I can't generate enough force to stand up.",
    "I cannot write the letter R.",
    "I do not give consent to surgery.",
    "I won't offer resistance.",
    "I'm sorry, I can't help it, I keep scratching my arm.",
    "I can't assist my mother any more.",
    "I am not permitted to eat before the operation.",
    "I don't create tears.",
    "I can't answer questions quickly any more since the concussion.",
    "We can't discuss measles without Koplik spots.",
    "I can't continue with my job.",
]
# What patients and authors say of themselves.


@pytest.mark.parametrize("text", DECLINED)
def test_a_refusal_is_seen(text: str) -> None:
    assert parse(Choice(text)).status == "refused"


@pytest.mark.parametrize("text", PATIENTS)
def test_a_patient_who_cannot_do_something_refuses_nothing(text: str) -> None:
    assert parse(Choice(text)).status == "ok"


@pytest.mark.parametrize("marking", sorted(MARKINGS))
def test_which_models_reason(marking: str) -> None:
    """Hidden reasoning counts against the tokens of an answer like any other."""
    chat = Replay({}, marking=marking)
    assert reasons(chat) == (marking not in ("none", "auto"))


def test_what_the_server_set_apart_is_reasoning_and_the_rest_an_answer() -> None:
    parsed = parse(Choice(P, R), "think")
    assert parsed == ("ok", P, R, ())
    assert parse(Choice("", R, "length"), "think").status == "truncated"
    assert parse(Choice("", R, "length"), "think").final == ""


def test_cleaning_is_recorded_and_can_be_off() -> None:
    text = f"Certainly! Here is a passage:\n\n```\n{P}\n```\n\nI hope this helps!"
    assert parse(Choice(text)).removed == ("preamble", "fence", "closing")
    assert parse(Choice(text), clean=False).final == text
    assert parse(Choice(text), clean=False).removed == ()
    assert parse(Choice(P)).removed == ()
    assert parse(Choice(f"<search>x</search>{P}")).removed == ("tool-call",)


def test_a_marking_nobody_knows() -> None:
    with pytest.raises(ValueError, match="no such marking"):
        split_reasoning("x", "thinking")


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("<think>hm</think><search>fever rash", "fever rash"),
        ("<search>fever rash</search>", "fever rash"),
        ("<search>first</search>…<search> second ", "second"),
        ("<search>first</search> and so the answer is", None),
        ("<search></search>", None),
        ("<search>", None),
        ("no search", None),
    ],
)
def test_what_a_model_asks_its_tool(text: str, asked: str | None) -> None:
    assert open_call(text, "<search>", "</search>") == asked


MARKS = st.sampled_from(
    [
        "<think>", "</think>", "<answer>", "</answer>", "<search>", "</search>", "<information>", "</information>",
        "## Thinking\n", "\n## Final Response\n", "<|begin_of_thought|>", "<|end_of_thought|>", "```", "\n\n",
        "<|begin_of_solution|>", "<|end_of_solution|>", "Certainly! Here is a passage:\n", "I'm sorry, I can't help",
        "fever", " ", "é", "𝛼", "{x}",
    ]
)  # fmt: skip
TEXTS = st.lists(st.one_of(MARKS, st.text(max_size=8)), max_size=12).map("".join)
CHOICES = st.builds(Choice, TEXTS, st.sampled_from(["", R]), st.sampled_from(["stop", "length", "content_filter"]))


@given(CHOICES, st.sampled_from(sorted(MARKINGS)), st.booleans())
def test_any_text_can_be_read(choice: Choice, marking: str, clean: bool) -> None:
    parsed = parse(choice, marking, clean=clean)
    assert parsed.status in STATUSES
    assert parsed.final == parsed.final.strip()
    assert bool(parsed.final) or parsed.status not in ("ok",)
    if parsed.status in ("empty", "unparsed"):
        assert not parsed.final
    if choice.finish_reason == "length" and parsed.status != "refused":
        assert parsed.status == "truncated"
    assert parse(choice, marking, clean=clean) == parsed


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_chain_of_thought_is_never_the_answer(before: str, thought: str) -> None:
    for opening in ("<think>", "<|begin_of_thought|>"):
        text = before.replace("<", "") + opening + thought.replace("<", "")
        for finish in ("stop", "length"):
            assert parse(Choice(text, "", finish)).final == ""


@given(TEXTS.filter(lambda text: "<" not in text and "Final" not in text and "Thinking" not in text))
def test_plain_text_is_kept_as_it_is_without_cleaning(text: str) -> None:
    assert parse(Choice(text), "none", clean=False).final == text.strip()


@given(TEXTS)
def test_tools_leave_nothing_behind(text: str) -> None:
    rest, asked = without_tools(text)
    assert asked == any(begin in text for begin, _ in TOOLS)
    assert asked or rest == text
    assert len(rest) <= len(text)


@pytest.mark.parametrize(
    "unit",
    ["<think>", "</think>", "<search>", "Here is ", "## Final Response\n", "```\n", "I'm sorry", " ", "\n\n", "a"],
)
def test_ten_megabytes_are_read_in_linear_time(unit: str) -> None:
    """Thirty times the text takes about thirty times as long, on any machine; quadratic time would be nine hundred."""

    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        begun = time.process_time()  # a busy machine is not the parser's fault
        parse(Choice(text), "think")
        parse(Choice(text), "none")
        return time.process_time() - begun

    small, large = (seconds(size) for size in (300_000, 9_000_000))
    assert large < 250 * max(small, 0.02)
