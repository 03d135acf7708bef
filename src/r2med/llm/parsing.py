"""Reading what a model wrote: where its chain of thought ends, what its answer is, and the chatter around it.

A `Generation` is one answer as it was read: what is kept and what methods work with. An unfinished chain of thought is
never an answer. Everything here is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import msgspec

from ..core import fingerprint
from ..http import TOO_LONG
from .protocol import Alternatives, Chat, Choice, Decision, FinishReason, Message

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
REASONING = frozenset(MARKINGS) - {"none", "auto"}
# Markings of models that reason first, seen or not: their tokens count against the limit of an answer.

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


LONGEST_CHATTER = 400
# Characters; a longer first paragraph is content, whatever it begins with.
LONGEST_REFUSAL = 600

OPENERS = (
    r"certainly|sure(?: thing)?|of course|absolutely|definitely|great question|good question|okay|ok|alright"
    r"|happy to help|i(?:'|’)d be happy to|i can help|no problem|understood"
)
PREAMBLE = re.compile(rf"\A(?:{OPENERS})\b[^\n]*", re.IGNORECASE)
THINGS = (
    r"passages?|documents?|texts?|paragraphs?|answers?|responses?|articles?|abstracts?|excerpts?|cases?(?: reports?)?"
    r"|reports?|descriptions?|summary|explanations?|examples?|queries|query|notes?"
)
ANNOUNCEMENT = re.compile(
    rf"\A(?:here(?:'|’)?s?(?: is| are)?|below(?: is| are)?|the following(?: is| are)?|this is|i(?:'|’)ve written"
    rf"|i have written)\b[^\n]{{0,300}}?\b(?:{THINGS})\b[^\n]*?:[ \t]*(?:\*\*)?[ \t]*(?=\n|\Z)",
    re.IGNORECASE,
)
LABEL = re.compile(
    r"\A(?:#{1,6}[ \t]*)?(?:\*\*|__)?[ \t]*(?:(?:hypothetical|relevant|generated|similar|example|final)[ \t]+)?"
    r"(?:passage|document|answer|response|paragraph|case report|case)"
    r"[ \t]*(?:\d{1,2}[ \t]*)?(?::[ \t]*(?:\*\*|__)|(?:\*\*|__)[ \t]*:|:)[ \t]*\n?",
    re.IGNORECASE,
)
FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n`~]*$\n?", re.MULTILINE)
RULE = re.compile(r"\A(?:[ \t]*(?:-{3,}|\*{3,}|_{3,})[ \t]*\n)+")
CLOSING = re.compile(
    r"(?:i hope (?:this|that|it)\b|let me know\b|please let me know\b|feel free to\b|if you (?:have|need|would|want|'d)"
    r"|would you like\b|is there anything else\b|do you (?:want|need|have)\b)[^\n]*\Z",
    re.IGNORECASE,
)
# A refusal is the first sentence of a short answer: perhaps an apology, then "I cannot", then something about the
# request. "I don't feel pain in my left leg" and "I can't write since the stroke" are patients speaking.
APOLOGY = re.compile(
    r"(?:(?:i(?:'m| am) (?:very |really |so |truly )?sorry|sorry|i apologi[sz]e|(?:my )?apologies)\b[,.:;]? *"
    r"(?:but +)?)?(?:as an? (?:ai|(?:large )?language model|assistant|chatbot)\b[^.\n]{0,80}?[, ]+(?=(?:i|we)\b))?"
)
CANNOT = re.compile(
    r"(?:unfortunately,? *)?(?P<who>i|we)(?:'m| am|'re| are)? ?(?:can't|cannot|can not|won't|will not|do not|don't"
    r"|unable to|not able to|not allowed to|not permitted to|not in a position to|not comfortable|decline to|refuse to"
    r"|(?P<declines>(?:must|have to) (?:respectfully )?decline))\b *"
)
THIS = r"(?:this|that|your|these|those|such|it|the (?:request|question|prompt|task|topic|subject))\b"
DOING = r"(?:providing|giving|offering|creating|generating|writing|answering|discussing|diagnosing)\b"
THE_REQUEST = re.compile(
    rf"(?:help|assist)(?:$|[,;:]| you\b| (?:with|in) (?:{THIS}|medical\b|{DOING}))|(?:with )?(?:{DOING}|{THIS})"
    rf"|(?:comply|engage|continue)(?:$|[,;:]| (?:with |in )?{THIS})|(?:fulfil|fulfill|discuss|address) {THIS}"
    rf"|(?:provide|give|offer|share)(?: you)?(?: with)? (?:{THIS}|an answer\b|you\b"
    r"|(?:[\w-]+ ){0,4}(?:advice|diagnos[ei]s|opinions?|guidance|recommendations?|instructions|information)\b)"
    rf"|answer (?:{THIS}|(?:medical|health|personal)\b)|diagnose (?:patients?|diseases?|you|any|medical)"
    rf"|(?:generate|create|write|produce) (?:{THIS}|(?:[\w-]+ ){{0,4}}(?:passage|document|text|article|content)\b)"
    r"|feel comfortable\b"
)
ABOUT_ONESELF = re.compile(
    r"\b(?:myself|my(?! (?:guidelines|programming|training|knowledge|polic|purpose|capabilit|abilit|instructions))"
    r"|(?<!let )(?<!ask )(?<!tell )me)\b"
)
SENTENCE = re.compile(r"[^.!?\n]*")


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


def reasons(chat: Chat) -> bool:
    """Whether a model reasons before it answers, in sight or out of it, so that an answer needs many more tokens."""
    return chat.marking in REASONING


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


def clean_text(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without chatter around it, and the names of what was taken off. Never leaves nothing of something."""
    removed: list[str] = []
    for name, strip in (
        ("preamble", _without_preamble),
        ("fence", _without_fences),
        ("preamble", _without_preamble),  # inside a fence
        ("label", _without_label),
        ("closing", _without_closing),
    ):
        stripped = strip(text.strip()).strip()
        if stripped and stripped != text.strip():
            text = stripped
            if name not in removed:
                removed.append(name)
    return text.strip(), tuple(removed)


def looks_refused(text: str) -> bool:
    """Whether a short answer begins by declining to give one."""
    if len(text) > LONGEST_REFUSAL:
        return False
    said = text.replace("’", "'").casefold().lstrip()
    apology = APOLOGY.match(said)
    start = apology.end() if apology else 0
    sentence = said[start : SENTENCE.match(said, start).end()]  # type: ignore[union-attr]
    cannot = CANNOT.match(sentence)
    if cannot is None or ABOUT_ONESELF.search(sentence):
        return False
    if start or cannot["declines"]:
        return True
    return cannot["who"] == "i" and THE_REQUEST.match(sentence, cannot.end()) is not None


def _without_preamble(text: str) -> str:
    """Without a first line that only announces the rest."""
    line = text.split("\n", 1)[0]
    if len(line) > LONGEST_CHATTER:
        return text
    for pattern in (PREAMBLE, ANNOUNCEMENT):
        found = pattern.match(text)
        # "Sure, fever is …" is content: chatter ends in a colon or stands in a paragraph of its own.
        if found and (found[0].rstrip().rstrip("*").endswith(":") or text[found.end() :].startswith("\n\n")):
            return RULE.sub("", text[found.end() :].lstrip())
    return text


def _without_fences(text: str) -> str:
    return FENCE.sub("", text)


def _without_label(text: str) -> str:
    return LABEL.sub("", text, count=1)


def _without_closing(text: str) -> str:
    """Without a last paragraph that offers more help."""
    body, separator, last = text.rpartition("\n\n")
    if separator and len(last) <= LONGEST_CHATTER and CLOSING.match(last.lstrip("-*_ \n\t")):
        return body.rstrip().rstrip("-*_").rstrip() if body.rstrip().endswith(("---", "***", "___")) else body
    return text


LOCAL_TOO_LONG = "the embedded model takes"


class Generation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer to one prompt, as read: a line of the generation store."""

    query_id: str
    # The request's key.
    sample: int = 0
    # Which of the n answers.
    prompt_hash: str
    # Of the conversation as sent: the same query with other passages in its prompt is another call.
    status: Status
    # ok, truncated, empty, refused, unparsed; `failed` (no answer could be had) is never stored.
    final: str = ""
    # The text to use; empty where the chain of thought did not end.
    reasoning: str = ""
    apart: int = 0
    # How many characters of the reasoning the server itself set apart; the rest was found in `raw`.
    raw: str = ""
    # The answer, untouched.
    removed: tuple[str, ...] = ()
    # What cleaning took off `final`: preamble, label, fence, closing, tool-call.
    clean: bool = True
    # Whether chatter was looked for at all.
    finish_reason: FinishReason = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    # Both on the first sample of a call only: its answers are one bill.
    seconds: float = 0.0
    elapsed: float | None = None
    # Seconds of the clock since the answer before it, while calls ran side by side: all of them add up to what the
    # calls took together. None in lines of before it was measured.
    retries: int = 0
    # How often its call was sent again.
    rate_limits: int = 0
    # How often the server said that it was asked too often.
    again: int = 0
    # How often the same was answered before, with an answer that somebody did not want.
    cost: float | None = None
    model: str = ""
    error: str = ""
    # Why it failed.
    prompt: tuple[Message, ...] = ()
    # Kept on request.
    extra: dict[str, object] = {}
    # What a method adds: searches, turns, evidence.

    @property
    def mark(self) -> str:
        """By which an answer is known that took the place of another; empty for the first one."""
        facts = [self.query_id, self.prompt_hash, self.sample, self.again, self.raw]
        return fingerprint("asked-again", facts) if self.again else ""

    @property
    def usable(self) -> bool:
        """Whether `final` may stand in for the query; otherwise the raw query does, and that is counted."""
        return bool(self.final) and self.status in ("ok", "truncated")

    @property
    def decision(self) -> Decision:
        """The tokens of the last number or verdict with their alternatives, where the server gave them."""
        return msgspec.convert(self.extra.get("decision", ()), Decision)

    @property
    def too_long(self) -> bool:
        """Whether it failed because the prompt did not fit into the model's context."""
        return self.status == "failed" and any(hint in self.error.lower() for hint in (*TOO_LONG, LOCAL_TOO_LONG))

    @property
    def unfinished(self) -> bool:
        """Whether there is reasoning without an answer: it was cut, or it never came to an end."""
        return not self.final and bool(self.reasoning) and self.status in ("truncated", "unparsed", "empty")

    @property
    def choice(self) -> Choice:
        """The answer as it came."""
        first_token = msgspec.convert(self.extra.get("first_token", ()), Alternatives)
        return Choice(self.raw, self.reasoning[: self.apart], self.finish_reason, first_token, self.decision)


StatusOf = Callable[[Generation], str]
"""What an answer is worth to the method that asked for it."""


def as_parsed(answer: Generation) -> str:
    """What it is worth to a method that takes any text."""
    return answer.status


def unless_read(answer: Generation, read: object) -> str:
    """A whole answer that a method could not read is `unparsed`."""
    return answer.status if read or answer.status != "ok" else "unparsed"


def put_newest(samples: dict[int, Generation], answer: Generation) -> None:
    """Take in one of several answers: the first of its number stays, unless it was asked for again since."""
    kept = samples.setdefault(answer.sample, answer)
    if answer.again > kept.again:
        samples[answer.sample] = answer
