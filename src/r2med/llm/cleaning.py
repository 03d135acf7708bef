"""Taking the chat off a chat model's answer: "Certainly! Here is …", markdown fences, offers of further help."""

from __future__ import annotations

import re

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
REFUSAL = re.compile(
    r"\A(?:i(?:(?:'|’)m| am) (?:very |really |so )?sorry|sorry|i apologi[sz]e|my apologies|unfortunately)?"
    r"[,.:;]?[ \t]*(?:but[ \t]+)?(?:as an? (?:ai|language model|large language model)[^,.\n]{0,80}[,.]?[ \t]*)?"
    r"(?:i|we)[ \t]*(?:(?:'|’)m|am|'re)?[ \t]*"
    r"(?:(?:can(?:'|’)?t|cannot|can not|won(?:'|’)?t|will not|do not|don(?:'|’)?t)[ \t]+"
    r"(?:(?:help|assist|comply|continue|fulfil|provide|give|offer|answer|generate|create|write|engage|discuss|feel)\b)"
    r"|(?:unable|not able|not allowed|not permitted|not comfortable|not in a position)\b|must (?:decline|refuse)\b"
    r"|have to (?:decline|refuse)\b|decline to\b)",
    re.IGNORECASE,
)


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
    return len(text) <= LONGEST_REFUSAL and bool(REFUSAL.match(text.lstrip()))


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
