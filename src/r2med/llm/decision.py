"""How sure a model is of the word or number it ends on: log-probabilities of those tokens and of their alternatives.

A model that reasons first decides with its last number or verdict, not with its first token. Tokenizers write numbers
digit by digit or whole; both are read.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Sequence
from typing import Any

Alternatives = tuple[tuple[str, float], ...]
"""A token with its log-probability, then those that could have stood there."""
Decision = tuple[Alternatives, ...]
"""The tokens of the last number or verdict of an answer."""

MOST_TOKENS = 4
_DECIDES = re.compile(r"\d+(?:\.\d+)?|(?<![^\W_])(?:yes|no|true|false)(?![^\W_])", re.IGNORECASE)
_MARKS = " \t\n\"'*▁Ġ.,<>/"


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
        word = token.strip(_MARKS)
        if word.isdecimal() and word.isascii() and (value := int(word)) <= top and str(value) == word:
            if token != decision[0][0][0] and not whole and 0 < 10 * value <= top:
                continue
            weights[value] = weights.get(value, 0.0) + math.exp(logprob)
    total = sum(weights.values())
    return sum(value * weight for value, weight in weights.items()) / total if total > 0 else None
