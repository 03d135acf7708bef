"""Reading numbers that a model gives to passages: one grade, or one for each passage of a group.

A model asked for `{"[1]": 7, "[2]": 0}` may write that, the same with a brace missing, a list, or lines of text. The
most explicit form counts. A number outside the scale, or for a passage that was not shown, is no grade: it is counted,
and the passage has none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_NUMBER = r"[+-]?\d{1,6}(?:\.\d{1,6})?"
_END = r"(?![\d.]*\d)(?![-–—]\d)"
"""No digit follows, nor the other end of a range."""
_BLOCK = re.compile(r"\{[^{}]*\}?")
_PAIR = re.compile(rf"[\"']?\[?\s*(\d{{1,4}})\s*\]*[\"']?\s*[:=]\s*[\"']?({_NUMBER}){_END}")
_LIST = re.compile(rf"\[\s*{_NUMBER}(?:\s*,\s*{_NUMBER})*\s*\]")
_LINE = re.compile(
    rf"^[ \t]*(?:[-*•][ \t]*)?\**(?:(?:passage|document|doc|text)[ \t#]*)?\[?[ \t]*(\d{{1,4}})[ \t]*\]?\**[ \t]*"
    rf"(?:[:=–—-]|->|→)[ \t]*\**(?:score[ \t:=]*)?({_NUMBER}){_END}",
    re.IGNORECASE | re.MULTILINE,
)
_TAGGED = re.compile(rf"<score>\s*({_NUMBER}){_END}\s*(?:/\s*\d+\s*)?(?:</score>|\Z)", re.IGNORECASE)
_NAMED = re.compile(
    rf"\b(?:score|grade|rating|relevance)\b[\"'*]*\s*(?:is|of|[:=])\s*[\"'*]*\s*({_NUMBER}){_END}", re.IGNORECASE
)
_OUT_OF = re.compile(rf"({_NUMBER})\s*(?:/|out of)\s*(\d+)", re.IGNORECASE)
_ANY = re.compile(rf"(?<![\w.])(?<!\d[-–—])({_NUMBER}){_END}(?!\w)")


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
    for number, grade in _pairs(text, count):
        if not 1 <= number <= count:
            unknown += 1
        elif number in seen:
            repeated += 1
        else:
            seen.add(number)
            if 0 <= grade <= top:
                values[number - 1] = grade
            else:
                out_of_range += 1
    read = any(value is not None for value in values)
    return Grades(values, read, repeated, unknown, count - len(seen), out_of_range)


def _pairs(text: str, count: int) -> list[tuple[int, float]]:
    """Numbers of passages and their grades, from the fullest form of the text; among equals the last."""
    blocks = [_found(_PAIR, match[0]) for match in _BLOCK.finditer(text)]
    if blocks := [pairs for pairs in blocks if pairs]:
        return max(reversed(blocks), key=lambda pairs: _known(pairs, count))
    lines, anywhere = _found(_LINE, text), _found(_PAIR, text)
    if lines:
        return max(lines, anywhere, key=lambda pairs: _known(pairs, count))
    lists = [re.findall(_NUMBER, match[0]) for match in _LIST.finditer(text)]
    whole = [numbers for numbers in lists if len(numbers) == count and count > 1]
    return [(i, float(number)) for i, number in enumerate(whole[-1], start=1)] if whole else anywhere


def _found(pattern: re.Pattern[str], text: str) -> list[tuple[int, float]]:
    return [(int(match[1]), float(match[2])) for match in pattern.finditer(text)]


def _known(pairs: Sequence[tuple[int, float]], count: int) -> int:
    return len({number for number, _ in pairs if 1 <= number <= count})


def read_grade(text: str, top: int) -> Grade:
    """The one grade from 0 to `top` that a text gives: tagged, named, out of the top, or its only number."""
    for pattern in (_TAGGED, _NAMED):
        if given := [float(match[1]) for match in pattern.finditer(text)]:
            return _on_scale(given[-1], top)
    if given := [float(match[1]) for match in _OUT_OF.finditer(text) if int(match[2]) == top]:
        return _on_scale(given[-1], top)
    numbers = {float(match[1]) for match in _ANY.finditer(text)}
    return _on_scale(numbers.pop(), top) if len(numbers) == 1 else Grade(None)


def _on_scale(value: float, top: int) -> Grade:
    return Grade(value) if 0 <= value <= top else Grade(None, out_of_range=True)
