"""Reading orders, choices and verdicts out of what a model wrote, and mending what can be mended.

A model asked for `[3] > [1] > [2]` may write that, a JSON list, a numbered list or an essay. What names an order
outright counts before mere mentions; numbers out of range or said twice are dropped, numbers left out follow in the
order they came in; a text that names nothing changes nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

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
_NUMBER = re.compile(r"\d{1,4}")
_PICKED = re.compile(
    r"\b(?:most (?:relevant|helpful|useful)|best|answer|choose|choice|select)\b[^\[\]\d\n]{0,60}\[?\s*(\d{1,4})\b",
    re.IGNORECASE,
)
_VERDICT = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


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
    """The numbers of the most explicit form the text has; among several, the fullest, and the last of equals."""
    for pattern in (_CHAIN, _JSON, _BRACKETS):
        if found := [_numbers(match[0]) for match in pattern.finditer(text)]:
            return max(reversed(found), key=lambda numbers: _valid(numbers, count))
    lines = [int(match[1] or match[2]) for match in _LINE.finditer(text)]
    if _valid(lines, count) > 1:
        return lines
    if mentions := [int(match[1] or match[2]) for match in _MENTION.finditer(text)]:
        return mentions
    return _numbers(text) if _ONLY_NUMBERS.fullmatch(text) else []


def _numbers(text: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(text)]


def _valid(numbers: Sequence[int], count: int) -> int:
    return len({n for n in numbers if 1 <= n <= count})


def read_choice(text: str, count: int) -> int | None:
    """The one passage a text picks, from 0; None where it picks none."""
    order = _CHAIN.search(text)
    for match in (*_PICKED.finditer(text), order, *_MENTION.finditer(text)):
        if match is not None:
            number = _numbers(match[0])
            if number and 1 <= number[0] <= count:
                return number[0] - 1
    numbers = _numbers(text) if _ONLY_NUMBERS.fullmatch(text) else []
    return numbers[0] - 1 if numbers and 1 <= numbers[0] <= count else None


def read_verdict(text: str) -> bool | None:
    """Yes or no: the first word if it is one, else the only one of the two that occurs."""
    found = [match[1].lower() for match in _VERDICT.finditer(text)]
    if not found:
        return None
    opening = text.lstrip(" \t\n\"'*#>-`([{")[:3].lower()
    if opening.startswith(("yes", "no")) and _VERDICT.match(text.lstrip(" \t\n\"'*#>-`([{")):
        return opening.startswith("yes")
    return found[0] == "yes" if len(set(found)) == 1 else None


def verdict_odds(first_token: Sequence[tuple[str, float]]) -> float | None:
    """Log-odds of yes against no among the likeliest first tokens, however they are spelled; None if neither is there.

    Where one of the two is missing, it is less likely than the least likely token that was given: that stands for it.
    """
    tokens = {token: logprob for token, logprob in first_token if math.isfinite(logprob)}
    sums: dict[str, float] = {}
    for token, logprob in tokens.items():
        word = token.strip(" \t\n\"'*▁Ġ.,").lower()
        if word in ("yes", "no"):
            sums[word] = sums.get(word, 0.0) + math.exp(logprob)
    if not sums or max(sums.values()) <= 0:
        return None
    least = math.exp(min(tokens.values()))
    floor = max(min(least, 1.0), 1e-12)
    yes, no = (max(sums.get(word, floor), 1e-12) for word in ("yes", "no"))
    return math.log(yes) - math.log(no)
