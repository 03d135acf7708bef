"""Reading orders, choices, verdicts and grades out of what a model wrote, and mending what can be mended.

A model asked for `[3] > [1] > [2]` may write that, a JSON list, a numbered list or an essay. What names an order
outright counts before mere mentions, and the fullest such list before a comparison of two passages; numbers out of
range or said twice are dropped, numbers left out follow in the order they came in; a text that names nothing changes
nothing.

One asked for `{"[1]": 7, "[2]": 0}` may write that, the same with a brace missing, a list, or lines of text. The most
explicit form counts. A number outside the scale, or for a passage that was not shown, is no grade: it is counted, and
the passage has none.

Beside its text an answer may say how sure the model was of the number or verdict that it ends on, by the
log-probabilities of those tokens and of their alternatives. A model that reasons first decides with these, not with its
first token. Tokenizers write numbers digit by digit or whole; both are read.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from .protocol import Alternatives, Decision

_ITEM = r"(?:\[\s*\d{1,4}\s*\]|\b\d{1,4}\b)"
_CHAIN = re.compile(rf"{_ITEM}(?:\s*(?:>|≻|→|&gt;)+\s*{_ITEM})+")
_JSON = re.compile(r"\[\s*\d{1,4}(?:\s*,\s*\d{1,4})+\s*\]")
_BRACKETS = re.compile(r"\[\s*(\d{1,4})\s*\](?:\s*,?\s*\[\s*\d{1,4}\s*\])+")
_LINE = re.compile(
    r"^[ \t]*(?:[-*•]|\(?\d{1,4}[.):])[ \t]*\**[ \t]*(?:passage|document|doc|text)?[ \t#]*"
    r"(?:\[\s*(\d{1,4})\s*\]|(\d{1,4})\b)",
    re.IGNORECASE | re.MULTILINE,
)
_MENTION = re.compile(r"\[\s*(\d{1,4})\s*\]|\b(?:passage|document|doc)[ \t]*#?[ \t]*(\d{1,4})\b", re.IGNORECASE)
_ONLY_NUMBERS = re.compile(r"[\s\d,;.\[\]()<>|/-]*")
_NUMBER = re.compile(r"(?<!\d)(?<!\d\.)\d{1,4}(?!\d|\.\d)")
_PICK = r"\b(?:most (?:relevant|helpful|useful)|best|answer|choose|choice|select)\b[^\[\]\d\n,;.]{0,60}"
_PICKED = re.compile(rf"{_PICK}(?:\[\s*|\b(?:passage|document|doc)[ \t]*#?[ \t]*)(\d{{1,4}})\b", re.IGNORECASE)
_PICKED_LAST = re.compile(rf"{_PICK}\b(\d{{1,4}})(?=[ \t\"'*)]*(?:[.,;:!?](?!\d)|\n|\Z))", re.IGNORECASE)
"""A number without brackets that ends its clause: one before a word may count something else (`from 2 trials`)."""
_PICKED_BARE = re.compile(rf"{_PICK}\b(\d{{1,4}})\b(?!\.\d)", re.IGNORECASE)
Words = tuple[str, str]
"""What a model says for and against a passage."""
YES_NO: Words = ("yes", "no")
TRUE_FALSE: Words = ("true", "false")
_VERDICTS = {words: re.compile(rf"\b({'|'.join(words)})\b", re.IGNORECASE) for words in (YES_NO, TRUE_FALSE)}
_NO_VERDICT = re.compile(
    r"\b(?:yes(?: or |/)no|true(?: or |/)false|(?:not|\w+n't) (?:an? )?[\"'*]*(?:yes|no|true|false))\b", re.IGNORECASE
)
_MARKS = " \t\n\"'*#>-`([{"


class Order(NamedTuple):
    """An order of all passages of a window, and what had to be done to get it."""

    places: list[int]
    """Positions from 0, each once."""
    read: bool
    """False: nothing could be read, and nothing is moved."""
    repeated: int = 0
    unknown: int = 0
    missing: int = 0

    @property
    def mended(self) -> bool:
        """Whether the answer was not simply a permutation."""
        return self.read and bool(self.repeated or self.unknown or self.missing)


def read_order(text: str, count: int) -> Order:
    """The order a text states, over passages numbered from 1 to `count`."""
    numbers = _stated(text, count)
    places: list[int] = []
    seen: set[int] = set()
    repeated = unknown = 0
    for number in numbers:
        if not 1 <= number <= count:
            unknown += 1
        elif number in seen:
            repeated += 1
        else:
            seen.add(number)
            places.append(number - 1)
    if not places:
        return Order(list(range(count)), read=False, unknown=unknown)
    missing = [place for place in range(count) if place + 1 not in seen]
    return Order([*places, *missing], read=True, repeated=repeated, unknown=unknown, missing=len(missing))


def _stated(text: str, count: int) -> list[int]:
    """The numbers of the fullest order that the text states; of equals the more explicit form, and the last."""
    found = [
        _numbers(match[0]) for pattern in (_CHAIN, _JSON, _BRACKETS) for match in reversed([*pattern.finditer(text)])
    ]
    lines = [int(match[1] or match[2]) for match in _LINE.finditer(text)]
    if found or _valid(lines, count) > 1:
        return max([*found, lines], key=lambda numbers: _valid(numbers, count))
    if mentions := [int(match[1] or match[2]) for match in _MENTION.finditer(text)]:
        return mentions
    return _numbers(text) if _ONLY_NUMBERS.fullmatch(text) else []


def _numbers(text: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(text)]


def _valid(numbers: Sequence[int], count: int) -> int:
    return len({n for n in numbers if 1 <= n <= count})


def read_choice(text: str, count: int) -> int | None:
    """The one passage a text picks, from 0; None where it picks none."""
    for pattern in (_PICKED, _PICKED_LAST, _CHAIN, _MENTION, _PICKED_BARE):
        for match in pattern.finditer(text):
            number = _numbers(match[0])
            if number and 1 <= number[0] <= count:
                return number[0] - 1
    numbers = _numbers(text) if _ONLY_NUMBERS.fullmatch(text) else []
    return numbers[0] - 1 if numbers and 1 <= numbers[0] <= count else None


def read_verdict(text: str, words: Words = YES_NO) -> bool | None:
    """For or against: the first word if it is one of the two, else the only one of the two that occurs.

    "Yes or no" repeats the question, and "not yes" says neither.
    """
    pattern, text = _VERDICTS[words], _NO_VERDICT.sub("", text)
    if opening := pattern.match(text.lstrip(_MARKS)):
        return opening[1].lower() == words[0]
    found = {match[1].lower() for match in pattern.finditer(text)}
    return found.pop() == words[0] if len(found) == 1 else None


def verdict_odds(tokens: Sequence[tuple[str, float]], words: Words = YES_NO) -> float | None:
    """Log-odds of the two words among the likeliest tokens, however they are spelled; None if neither is there.

    Where one of the two is missing, it is less likely than the least likely token that was given: that stands for it.
    """
    likely = {token: logprob for token, logprob in tokens if math.isfinite(logprob)}
    sums: dict[str, float] = {}
    for token, logprob in likely.items():
        word = token.strip(" \t\n\"'*▁Ġ.,").lower()
        if word in words:
            sums[word] = sums.get(word, 0.0) + math.exp(logprob)
    if not sums or max(sums.values()) <= 0:
        return None
    least = math.exp(min(likely.values()))
    floor = max(min(least, 1.0), 1e-12)
    yes, no = (max(sums.get(word, floor), 1e-12) for word in words)
    return math.log(yes) - math.log(no)


_GRADE = r"[+-]?\d{1,6}(?:\.\d{1,6})?"
_END = r"(?![\d.]*\d)(?![-–—]\d)"
"""No digit follows, nor the other end of a range."""
_SCALE = r"(?:\s*\(?(?:/|out of)\s*(?P<top>\d{1,6})(?!\d|\s*[:=])\)?|\s?(?P<percent>%))?"
"""Of what the grade is a part, where that is said."""
_BLOCK = re.compile(r"\{[^{}]*\}?")
_PAIR = re.compile(rf"[\"']?\[?\s*(\d{{1,4}})\s*\]*[\"']?\s*[:=]\s*[\"']?({_GRADE}){_END}{_SCALE}")
_LIST = re.compile(rf"\[\s*{_GRADE}(?:\s*,\s*{_GRADE})*\s*\]")
_GRADED_LINE = re.compile(
    rf"^[ \t]*(?:[-*•][ \t]*)?\**(?:(?:passage|document|doc|text)[ \t#]*)?\[?[ \t]*(\d{{1,4}})[ \t]*\]?\**[ \t]*"
    rf"(?:[:=–—-]|->|→)[ \t]*\**(?:score[ \t:=]*)?({_GRADE}){_END}{_SCALE}",
    re.IGNORECASE | re.MULTILINE,
)
_TAGGED = re.compile(rf"<score>\s*({_GRADE}){_END}{_SCALE}\s*(?:</score>|\Z)", re.IGNORECASE)
_NAMED = re.compile(
    rf"\b(?:score|grade|rating|relevance)\b[\"'*]*\s*(?:is|of|[:=])\s*[\"'*]*\s*({_GRADE}){_END}[\"'*]*{_SCALE}",
    re.IGNORECASE,
)
_OUT_OF = re.compile(rf"({_GRADE})\s*(?:/|out of)\s*(\d+)", re.IGNORECASE)
_ANY = re.compile(rf"(?<![\w.])(?<!\d[-–—])({_GRADE}){_END}{_SCALE}(?!\w)")


class Grades(NamedTuple):
    """The grade of each passage of a group, and what was wrong with the answer."""

    values: list[float | None]
    """One per passage; None where the answer gives it none."""
    read: bool
    """False: no passage has a grade."""
    repeated: int = 0
    unknown: int = 0
    missing: int = 0
    out_of_range: int = 0

    @property
    def mended(self) -> bool:
        """Whether the answer was not simply one grade for each passage."""
        return self.read and bool(self.repeated or self.unknown or self.missing or self.out_of_range)


class Grade(NamedTuple):
    """One grade, or None; `out_of_range` where a number was given that is not on the scale."""

    value: float | None
    out_of_range: bool = False


def read_grades(text: str, count: int, top: int) -> Grades:
    """The grades from 0 to `top` that a text gives to passages numbered from 1 to `count`; first ones count."""
    values: list[float | None] = [None] * count
    seen: set[int] = set()
    repeated = unknown = out_of_range = 0
    for number, grade in _pairs(text, count, top):
        if not 1 <= number <= count:
            unknown += 1
        elif number in seen:
            repeated += 1
        else:
            seen.add(number)
            if grade is None:
                out_of_range += 1
            values[number - 1] = grade
    read = any(value is not None for value in values)
    return Grades(values, read, repeated, unknown, count - len(seen), out_of_range)


def _pairs(text: str, count: int, top: int) -> list[tuple[int, float | None]]:
    """Numbers of passages and their grades, from the fullest form of the text; among equals the last."""
    blocks = [_found(_PAIR, match[0], top) for match in _BLOCK.finditer(text)]
    if blocks := [pairs for pairs in blocks if pairs]:
        return max(reversed(blocks), key=lambda pairs: _known(pairs, count))
    lines, anywhere = _found(_GRADED_LINE, text, top), _found(_PAIR, text, top)
    if lines:
        return max(lines, anywhere, key=lambda pairs: _known(pairs, count))
    lists = [re.findall(_GRADE, match[0]) for match in _LIST.finditer(text)]
    whole = [numbers for numbers in lists if len(numbers) == count and count > 1]
    return [(i, _on_scale(float(number), top)) for i, number in enumerate(whole[-1], start=1)] if whole else anywhere


def _found(pattern: re.Pattern[str], text: str, top: int) -> list[tuple[int, float | None]]:
    return [(int(match[1]), _graded(match, 2, top)) for match in pattern.finditer(text)]


def _known(pairs: Sequence[tuple[int, float | None]], count: int) -> int:
    return len({number for number, _ in pairs if 1 <= number <= count})


def read_grade(text: str, top: int) -> Grade:
    """The one grade from 0 to `top` that a text gives: tagged, named, out of the top, or its only number."""
    for pattern in (_TAGGED, _NAMED):
        if given := [_graded(match, 1, top) for match in pattern.finditer(text)]:
            return Grade(given[-1], out_of_range=given[-1] is None)
    if parts := [*_OUT_OF.finditer(text)]:
        given = [_on_scale(float(match[1]), top) for match in parts if int(match[2]) == top]
        return Grade(given[-1], out_of_range=given[-1] is None) if given else Grade(None)
    numbers = {float(match[1]): _graded(match, 1, top) for match in _ANY.finditer(text)}
    if len(numbers) != 1:
        return Grade(None)
    (value,) = numbers.values()
    return Grade(value, out_of_range=value is None)


def _graded(match: re.Match[str], group: int, top: int) -> float | None:
    """The grade that a match found; None where it is not on the scale, or said to be on another one."""
    said = 100 if match["percent"] else int(match["top"] or top)
    return _on_scale(float(match[group]), top) if said == top else None


def _on_scale(value: float, top: int) -> float | None:
    return value if 0 <= value <= top else None


MOST_TOKENS = 4
_DECIDES = re.compile(r"\d+(?:\.\d+)?|(?<![^\W_])(?:yes|no|true|false)(?![^\W_])", re.IGNORECASE)
_TOKEN_MARKS = " \t\n\"'*▁Ġ.,<>/"


def alternatives(entry: object) -> Alternatives:
    """What a server says of one token, the token itself first; empty where it cannot be read."""
    if not isinstance(entry, dict):
        return ()
    others = entry.get("top_logprobs")
    entries = [entry, *(others if isinstance(others, list) else [])]
    found: dict[str, float] = {}
    for given in entries:
        if isinstance(given, dict) and isinstance(given.get("token"), str):
            value = given.get("logprob")
            if isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(given["token"], float(value))
    return tuple(found.items()) if found and next(iter(found)) == entry.get("token") else ()


def decision_of(content: Sequence[Any]) -> Decision:
    """The tokens of the last number or verdict among those of an answer, as servers list them under `logprobs`."""
    texts = [e["token"] if isinstance(e, dict) and isinstance(e.get("token"), str) else "" for e in content]
    last = _last("".join(texts))
    if last is None:
        return ()
    found: list[Alternatives] = []
    start = 0
    for text, entry in zip(texts, content, strict=True):
        if text and start < last.end() and start + len(text) > last.start():
            found.append(alternatives(entry))
        start += len(text)
    return tuple(found) if len(found) <= MOST_TOKENS and all(found) else ()


def decided(decision: Decision) -> str:
    """The number or verdict itself, in small letters."""
    match = _last("".join(token[0][0] for token in decision))
    return match[0].lower() if match else ""


def _last(text: str) -> re.Match[str] | None:
    return next(iter(deque(_DECIDES.finditer(text), maxlen=1)), None)


def probability(decision: Decision) -> float:
    """How likely the number or verdict was: the product of its tokens' probabilities."""
    return min(math.exp(sum(token[0][1] for token in decision)), 1.0)


def expectation(decision: Decision, top: int) -> float | None:
    """The mean of the whole numbers from 0 to `top` that could have stood there, by their probabilities.

    None where that cannot be told: the number has several tokens and is not `top` itself. Alternatives that may be the
    beginning of a longer number are left out, unless the number that was written shows that numbers are single tokens.
    """
    written = decided(decision)
    if not written.isdigit() or int(written) > top:
        return None
    weights: dict[int, float] = {}
    if len(decision) > 1:
        if len(decision) > 2 or int(written) != top or top != 10:
            return None
        ten = math.exp(decision[1][0][1])  # 10 and 1 begin alike: the second token divides them
        one = math.exp(decision[0][0][1])
        weights = {top: one * ten, 1: one * max(1 - ten, 0.0)}
    whole = len(decision) == 1 and len(written) > 1
    for token, logprob in decision[0][len(decision) > 1 :]:
        word = token.strip(_TOKEN_MARKS)
        if word.isdecimal() and word.isascii() and (value := int(word)) <= top and str(value) == word:
            if token != decision[0][0][0] and not whole and 0 < 10 * value <= top:
                continue
            weights[value] = weights.get(value, 0.0) + math.exp(logprob)
    total = sum(weights.values())
    return sum(value * weight for value, weight in weights.items()) / total if total > 0 else None
