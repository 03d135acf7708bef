"""Reading what a reasoning model wrote: where its chain of thought ends, and what its answer is.

An unfinished chain of thought is never an answer. Everything here is linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, get_args

from .cleaning import clean_text, looks_refused
from .protocol import Choice

Status = Literal["ok", "truncated", "empty", "refused", "unparsed", "failed"]
STATUSES: tuple[str, ...] = get_args(Status)
# `truncated`: cut by the token limit; `final` then holds an answer that was begun, or nothing if reasoning was cut.
# `unparsed`: it ended, but its reasoning never did, or it asked for a tool. `failed`: there is no answer to read.

MARKINGS = {
    "none": "answers at once; tags are read if they appear",
    "auto": "not known; tags are read if they appear",
    "hidden": "reasons out of sight; only the answer is sent",
    "think": "always reasons first and closes with </think>; the opening tag may be part of the prompt",
    "think-optional": "opens <think> itself when it reasons",
    "final-response": "headings: ## Thinking, then ## Final Response",
    "solution": "<|begin_of_thought|> … <|end_of_thought|> <|begin_of_solution|> … <|end_of_solution|>",
    "answer": "turns of <think> and <search>, then <answer> … </answer>",
}
# How a model marks its reasoning.

TOOLS = (
    ("<search>", "</search>"),
    ("<information>", "</information>"),
    ("<|begin_search_query|>", "<|end_search_query|>"),
    ("<|begin_search_result|>", "<|end_search_result|>"),
    ("<tool_call>", "</tool_call>"),
    ("<tool_response>", "</tool_response>"),
)
THINK, THINK_END = "<think>", "</think>"
SOLUTION, SOLUTION_END = "<|begin_of_solution|>", "<|end_of_solution|>"
THOUGHT, THOUGHT_END = "<|begin_of_thought|>", "<|end_of_thought|>"
ANSWER, ANSWER_END = "<answer>", "</answer>"
# A heading of its own line: `## Final Response`, `**Final Response:**`, or the plain words with a colon.
FINAL_HEADING = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]*(?:\*\*)?Final Response\b[ \t:*]*|\*\*[ \t]*Final Response[ \t]*:?[ \t]*\*\*[ \t]*:?"
    r"|Final Response[ \t]*:)",
    re.IGNORECASE | re.MULTILINE,
)
THINKING_HEADING = re.compile(r"\A\s*(?:#{1,6}[ \t]*|\*\*[ \t]*)Thinking\b", re.IGNORECASE)


class Parsed(NamedTuple):
    """What an answer says, apart from how the model came to it."""

    status: Status
    final: str = ""
    reasoning: str = ""
    removed: tuple[str, ...] = ()


class Split(NamedTuple):
    """A text cut at the end of its reasoning; `final` is None where reasoning has no end."""

    reasoning: str
    final: str | None


def parse(choice: Choice, marking: str = "auto", *, clean: bool = True) -> Parsed:
    """Read one answer of a model that marks its reasoning as `marking`."""
    cut = choice.finish_reason == "length"
    reasoning, final = split_reasoning(choice.text, marking if not choice.reasoning else "auto")
    reasoning = "\n\n".join(part for part in (choice.reasoning.strip(), reasoning) if part)
    if choice.finish_reason == "content_filter":
        return Parsed("refused", "", reasoning)
    if final is None:
        return Parsed("truncated" if cut else "unparsed" if choice.text.strip() else "empty", "", reasoning)
    final, asked = without_tools(final)
    removed: tuple[str, ...] = ("tool-call",) if asked else ()
    if clean:
        final, taken = clean_text(final)
        removed += taken
    final = final.strip()
    if not final:
        return Parsed("truncated" if cut else "unparsed" if asked else "empty", "", reasoning, removed)
    if looks_refused(final):
        return Parsed("refused", final, reasoning, removed)
    return Parsed("truncated" if cut else "ok", final, reasoning, removed)


def split_reasoning(text: str, marking: str = "auto") -> Split:
    """Cut a text where its reasoning ends, by whatever marks it has; `marking` says which it must have."""
    if marking not in MARKINGS:
        raise ValueError(f"no such marking: {marking!r}")
    if marking == "hidden":
        return Split("", text)
    for cut in (_at_think, _at_solution, _at_heading):
        found = cut(text)
        if found is not None:
            reasoning, final = found
            if final is None:
                return found
            inner = _at_answer(final)
            return Split(_join(reasoning, inner.reasoning), inner.final) if inner else found
    if answered := _at_answer(text):
        return answered
    if marking in ("think", "final-response", "solution", "answer"):
        return Split(text.strip(), None)
    return Split("", text)


def open_call(text: str, begin: str, end: str) -> str | None:
    """What the model asks a tool for: the last `begin` … that nothing but its own `end` follows; None if it does not.

    A stop sequence takes `end` off the text, so a call may be open at the end of the text.
    """
    start = text.rfind(begin)
    if start < 0:
        return None
    inside, closed, after = text[start + len(begin) :].partition(end)
    return inside.strip() or None if not (closed and after.strip()) else None


def without_tools(text: str) -> tuple[str, bool]:
    """The text without tool calls and what tools returned, and whether there were any; an open call ends the text."""
    asked = False
    for begin, end in TOOLS:
        if begin not in text:
            continue
        asked = True
        head, *blocks = text.split(begin)
        text = head + "".join(block.partition(end)[2] for block in blocks)
    return text, asked


def _at_think(text: str) -> Split | None:
    """After the last </think>; a <think> that stands after it was never closed."""
    closed, opened = text.rfind(THINK_END), text.rfind(THINK)
    if opened > closed:
        answered = _at_answer(text)
        # Search-R1 may answer inside a chain that it does not close.
        return answered if answered and answered.final else Split(text.replace(THINK, "").strip(), None)
    if closed < 0:
        return None
    reasoning = text[:closed].replace(THINK, "").replace(THINK_END, "\n").strip()
    return Split(reasoning, text[closed + len(THINK_END) :])


def _at_solution(text: str) -> Split | None:
    """Between the solution marks; a thought without a solution has not ended."""
    start = text.rfind(SOLUTION)
    if start >= 0:
        reasoning = text[:start].replace(THOUGHT, "").replace(THOUGHT_END, "").strip()
        return Split(reasoning, text[start + len(SOLUTION) :].partition(SOLUTION_END)[0])
    if THOUGHT not in text:
        return None
    thought, ended, after = text.partition(THOUGHT)[2].rpartition(THOUGHT_END)
    return Split(thought.strip(), after) if ended and after.strip() else Split((thought or after).strip(), None)


def _at_heading(text: str) -> Split | None:
    """After the last heading `Final Response`; a heading `Thinking` without it has not ended."""
    if headings := list(FINAL_HEADING.finditer(text)):
        last = headings[-1]
        return Split(THINKING_HEADING.sub("", text[: last.start()]).strip(" \n\t*:#"), text[last.end() :])
    return Split(text.strip(), None) if THINKING_HEADING.match(text) else None


def _at_answer(text: str) -> Split | None:
    """Inside the last <answer>, closed or cut by a stop sequence."""
    start = text.rfind(ANSWER)
    if start < 0:
        return None
    return Split(text[:start].strip(), text[start + len(ANSWER) :].partition(ANSWER_END)[0])


def _join(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
