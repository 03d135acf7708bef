"""Finding concepts in a text: the longest phrase wins, what is denied does not count."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..normalise import tokens
from .compact import LONGEST, Concept, Vocabulary

_PIECE = re.compile(r"[.;:!?\n]+(?:\s|$)")
_ABBREVIATION = re.compile(r"(?<![\w-])[A-Za-z0-9][\w/-]*(?![\w-])")
NEGATIONS = frozenset({"no", "not", "denies", "denied", "denie", "without", "never", "negative", "absent", "nor"})
ENDS_NEGATION = frozenset({"but", "however", "except", "although", "though"})
REACH = 6
# Words after a negation that it still covers.


class Mention(NamedTuple):
    """A concept that a text names."""

    concept: Concept
    phrase: str
    """Normalised, as the text has it."""
    negated: bool


class Suspect(NamedTuple):
    """A disease that the findings of a text point to."""

    name: str
    score: float
    findings: int
    """How many of them it shows."""


def find_mentions(vocabulary: Vocabulary, text: str) -> list[Mention]:
    """Concepts in the order they are named, each once; a phrase that means several gives several."""
    found: dict[tuple[str, bool], Mention] = {}
    for piece in _PIECE.split(text):
        words = tokens(piece)
        position = 0
        while position < len(words):
            phrase = _longest(vocabulary, words, position)
            if not phrase:
                position += 1
                continue
            negated = _negated(words, position)
            for number in vocabulary.surfaces[phrase]:
                concept = vocabulary.concepts[number]
                found.setdefault((concept.id, negated), Mention(concept, phrase, negated))
            position += phrase.count(" ") + 1
    return list(found.values())


def find_abbreviations(vocabulary: Vocabulary, text: str) -> dict[str, str]:
    """Unambiguous abbreviations, as written, with what they stand for."""
    words = (word[0] for word in _ABBREVIATION.finditer(text))
    return {word: vocabulary.abbreviations[word] for word in words if word in vocabulary.abbreviations}


def differential(
    vocabulary: Vocabulary, findings: Sequence[str], *, most: int = 3, least_findings: int = 2
) -> list[Suspect]:
    """Diseases that show several of the findings: each counts for how rare it is and how often the disease shows it."""
    scores = np.zeros(len(vocabulary.diseases))
    counts = np.zeros(len(vocabulary.diseases), dtype=np.int64)
    for finding in dict.fromkeys(findings):
        which, often, tells = vocabulary.diseases_with(finding)
        scores[which] += often * tells
        counts[which] += 1
    scores[counts < least_findings] = 0.0
    best = np.argsort(-scores, kind="stable")[:most]
    return [Suspect(vocabulary.diseases[i], float(scores[i]), int(counts[i])) for i in best.tolist() if scores[i] > 0]


def _longest(vocabulary: Vocabulary, words: list[str], position: int) -> str:
    for end in range(min(position + LONGEST, len(words)), position, -1):
        phrase = " ".join(words[position:end])
        if phrase in vocabulary.surfaces:
            return phrase
    return ""


def _negated(words: list[str], position: int) -> bool:
    before = words[max(0, position - REACH) : position]
    for word in reversed(before):
        if word in ENDS_NEGATION:
            return False
        if word in NEGATIONS:
            return True
    return False
